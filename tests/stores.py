"""A project's own MLflow store, in a folder of a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tracking import runs

VARIABLES = ("MLFLOW_TRACKING_URI", "ANAMNESIS_HOME", "DVC_ROOT")  # that would lead elsewhere


@contextmanager
def store_in(root: Path) -> Iterator[Path]:
    """The store is there for the block."""
    with pytest.MonkeyPatch.context() as patch:
        for name in VARIABLES:
            patch.delenv(name, raising=False)
        runs.setup(root)
        try:
            yield root
        finally:
            runs.mlflow.set_tracking_uri(None)
