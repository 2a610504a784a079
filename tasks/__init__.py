"""The staircase: Prefect tasks. Each loads, makes one call into the core, saves and records."""
