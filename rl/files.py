"""Files and folders that are never half-written, and what is in them."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from rl.errors import TrainingError


def file_hash(path: Path) -> str:
    """sha256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_hash(directory: Path) -> str:
    """sha256 over the names and contents of a folder's files: the identity of a model."""
    digest = hashlib.sha256()
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        digest.update(path.relative_to(directory).as_posix().encode() + b"\0" + bytes.fromhex(file_hash(path)))
    return digest.hexdigest()


def replace_folder(temporary: Path, directory: Path) -> None:
    """Move a finished folder into place; what stood there before goes last."""
    old = directory.with_name(f".{directory.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if directory.exists():
        os.replace(directory, old)
    os.replace(temporary, directory)
    shutil.rmtree(old, ignore_errors=True)


def write_json(path: Path, content: Any) -> None:
    """Write JSON so that the file is whole or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    temporary.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(temporary, path)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep a folder to this process, until it leaves the block or dies in whatever way.

    Raises:
        TrainingError: another process has it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder.with_name(f".{folder.name}.lock"), timeout=0):
            yield
    except Timeout as error:
        raise TrainingError(
            f"{folder} is being written by another run of the same configuration; wait until it ends, or stop it"
        ) from error
