"""What a file states, before anybody asks whether it makes a document; and what could not be read of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Rejected:
    """A file, or a part of one, that could not become a document. Made by the loaders, read by whoever reports.

    Attributes:
        path: the file, as `load_documents` returns it relative to the project.
        line: line number from 1, or None if the whole file is meant.
        reason: one line.
    """

    path: Path
    line: int | None
    reason: str

    def __str__(self) -> str:
        where = str(self.path) if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {self.reason}"


@dataclass(frozen=True)
class Record:
    """The fields one record states, not yet checked. Made by the readers, read by `kb.documents`.

    Attributes:
        path: the file.
        line: line number from 1, or None if the file has no lines or is one record.
        fields: name to value.
        many: whether the file may hold other records too, so that its name does not name this one.
    """

    path: Path
    line: int | None
    fields: Mapping[str, object]
    many: bool = False


def write_rejected(rejected: Sequence[Rejected], path: Path) -> None:
    """Write a JSON object (file, line, reason) a line; an empty file says that everything was used."""
    rows = [{"file": item.path.as_posix(), "line": item.line, "reason": item.reason} for item in rejected]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
