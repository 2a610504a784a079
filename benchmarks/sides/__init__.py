"""Who is measured. Each side lives in a process of its own (`benchmarks.worker`)."""
