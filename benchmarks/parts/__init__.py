"""What is measured: one file per part of `make bench`."""
