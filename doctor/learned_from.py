"""Ids of the cases that a doctor was trained and chosen on, in its folder, one a line: who meets it on others has to know."""

from collections.abc import Iterable
from pathlib import Path

FILE = "learned_from.txt"


def read(folder: Path) -> frozenset[str] | None:
    """The ids; None where they are not recorded."""
    told = folder / FILE
    return frozenset(told.read_text(encoding="utf-8").split("\n")) - {""} if told.exists() else None


def write(folder: Path, ids: Iterable[str]) -> None:
    """Record them, in order."""
    (folder / FILE).write_text("\n".join(sorted(ids)) + "\n", encoding="utf-8")
