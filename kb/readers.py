"""File formats -> raw records: Markdown with front matter, plain text, JSONL, and HTML, PDF and XML next door.

A reader only finds out which fields a file states. What a document must have is decided in
`kb.documents`, once for all formats. What is damaged is a `Rejected`; what stood before the damage is kept.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent

from kb.errors import shortened
from kb.files import DAMAGE, raw_lines
from kb.medquad import read_medquad
from kb.pdf import read_pdf
from kb.records import Record, Rejected
from kb.web_pages import read_html

SUFFIXES = (".md", ".txt", ".html", ".htm", ".pdf", ".xml", ".jsonl", ".jsonl.gz")
_FENCE = "---"


def suffix_of(path: Path) -> str | None:
    """Return which of `SUFFIXES` the file name ends with, or None."""
    name = path.name.lower()
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), None)


def read_records(path: Path) -> Iterator[Record | Rejected]:
    """Yield the records of one file, in order; what cannot be read comes as a `Rejected`.

    Raises:
        KnowledgeBaseError: if the library for HTML, PDF or XML is not installed.
    """
    match suffix_of(path):
        case ".md":
            yield _read_text(path, front_matter=True)
        case ".txt":
            yield _read_text(path, front_matter=False)
        case ".html" | ".htm":
            yield read_html(path)
        case ".pdf":
            yield from read_pdf(path)
        case ".xml":
            yield from read_medquad(path)
        case ".jsonl" | ".jsonl.gz":
            yield from _read_jsonl(path)
        case _:
            yield Rejected(path, None, f"unknown file type: use {', '.join(SUFFIXES)}")


def _read_text(path: Path, *, front_matter: bool) -> Record | Rejected:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Rejected(path, None, f"not UTF-8 text ({error.reason} at byte {error.start})")
    except DAMAGE as error:
        return Rejected(path, None, f"cannot be read ({error})")
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
    return Record(path, None, {**_with_text_keys(fields), "text": "\n".join(lines[closing + 1 :])})


def _with_text_keys(value: Any) -> Any:
    """As JSON has it: YAML takes numbers and dates for keys, too."""
    if isinstance(value, dict):
        return {str(key): _with_text_keys(inner) for key, inner in value.items()}
    return [_with_text_keys(inner) for inner in value] if isinstance(value, list) else value


def _read_jsonl(path: Path) -> Iterator[Record | Rejected]:
    number = 0
    try:
        for number, raw in raw_lines(path):
            if raw.strip():
                yield _json_record(path, number, raw)
    except DAMAGE as error:
        yield Rejected(path, number + 1, f"cannot be read from here on ({error}): fetch the file again")


def _json_record(path: Path, number: int, raw: bytes) -> Record | Rejected:
    try:
        fields = json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return Rejected(path, number, f"not UTF-8 text ({error.reason})")
    except (ValueError, RecursionError) as error:
        return Rejected(path, number, f"not JSON: {error}")
    if not isinstance(fields, dict):
        return Rejected(path, number, f"not a JSON object but {type(fields).__name__}")
    return Record(path, number, fields, many=True)
