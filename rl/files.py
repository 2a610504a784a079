"""Files and folders that are never half-written."""

import os
import shutil
from pathlib import Path


def replace_folder(temporary: Path, directory: Path) -> None:
    """Move a finished folder into place; what stood there before goes last."""
    old = directory.with_name(f".{directory.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if directory.exists():
        os.replace(directory, old)
    os.replace(temporary, directory)
    shutil.rmtree(old, ignore_errors=True)
