"""File formats -> raw records: Markdown with front matter, plain text, JSONL.

A reader only finds out which fields a file states. What a document must have is decided in
`kb.documents`, once for all formats.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent

from kb.errors import shortened
from kb.files import numbered_lines

SUFFIXES = (".md", ".txt", ".jsonl", ".jsonl.gz")
_FENCE = "---"


@dataclass(frozen=True)
class Rejected:
    """A record that could not become a document. Made by the loaders, read by whoever reports.

    Attributes:
        path: the file.
        line: line number from 1, or None if the whole file is meant.
        reason: one line.
    """

    path: Path
    line: int | None
    reason: str


@dataclass(frozen=True)
class Record:
    """The fields one record states, not yet checked. Made here, read by `kb.documents`."""

    path: Path
    line: int | None
    fields: Mapping[str, object]


def suffix_of(path: Path) -> str | None:
    """Return which of `SUFFIXES` the file name ends with, or None."""
    name = path.name.lower()
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), None)


def read_records(path: Path) -> Iterator[Record | Rejected]:
    """Yield the records of one file, in order; what cannot be read comes as a `Rejected`.

    Raises:
        KnowledgeBaseError: if a gzipped file is damaged.
    """
    match suffix_of(path):
        case ".md":
            yield _read_text(path, front_matter=True)
        case ".txt":
            yield _read_text(path, front_matter=False)
        case ".jsonl" | ".jsonl.gz":
            yield from _read_jsonl(path)
        case _:
            yield Rejected(path, None, f"unknown file type: use {', '.join(SUFFIXES)}")


def _read_text(path: Path, *, front_matter: bool) -> Record | Rejected:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Rejected(path, None, f"not UTF-8 text ({error.reason} at byte {error.start})")
    if front_matter and text.split("\n", 1)[0].rstrip() == _FENCE:
        return _split_front_matter(path, text)
    return Record(path, None, {"text": text})


def _split_front_matter(path: Path, text: str) -> Record | Rejected:
    lines = text.split("\n")
    closing = next((i for i, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)
    if closing is None:
        return Rejected(path, 1, f"front matter is not closed: add a second '{_FENCE}' line")
    stated = "\n".join(lines[1:closing])
    try:
        if "*" in stated and any(isinstance(event, AliasEvent) for event in YAML(typ="safe", pure=True).parse(stated)):
            return Rejected(path, 1, "front matter repeats a value by an alias (*name): write it out")
        fields = YAML(typ="safe", pure=True).load(stated)
    except (YAMLError, ValueError, RecursionError) as error:  # ValueError: a date or number that cannot be
        return Rejected(path, 1, shortened(f"front matter is not YAML: {' '.join(str(error).split())}"))
    if fields is None:
        fields = {}
    if not isinstance(fields, dict):
        return Rejected(path, 1, "front matter is not a mapping of fields: write 'title: ...'")
    if "text" in fields:
        return Rejected(path, 1, "front matter has a field 'text': the text goes below it")
    named = {str(key): value for key, value in fields.items()}
    return Record(path, None, {**named, "text": "\n".join(lines[closing + 1 :])})


def _read_jsonl(path: Path) -> Iterator[Record | Rejected]:
    for number, raw in numbered_lines(path):
        if not raw.strip():
            continue
        try:
            fields = json.loads(raw.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            yield Rejected(path, number, f"not UTF-8 text ({error.reason})")
            continue
        except (ValueError, RecursionError) as error:
            yield Rejected(path, number, f"not JSON: {error}")
            continue
        if not isinstance(fields, dict):
            yield Rejected(path, number, f"not a JSON object but {type(fields).__name__}")
            continue
        yield Record(path, number, fields)
