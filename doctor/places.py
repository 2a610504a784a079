"""Where things are: the checkout that runs, and the project that it belongs to."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The checkout that is running: its parameters, code and outputs."""
HOME = Path(os.environ.get("ANAMNESIS_HOME") or os.environ.get("DVC_ROOT") or ROOT).resolve()
"""The project that owns checkpoints, runs and the MLflow store: the parent's in `dvc exp run --temp`, else the same
checkout.
"""
KB_CACHE = HOME / "cache" / "kb.sqlite"
"""What earlier builds of the knowledge base have read, cut and embedded."""
