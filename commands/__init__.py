"""What people type beside the flows: each is `python -m commands.<name>` and has a --help."""
