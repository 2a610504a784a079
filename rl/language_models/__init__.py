"""Language models that play patients and judges: on this machine, or behind an endpoint."""
