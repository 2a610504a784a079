"""Files and folders -> documents, with every bad record accounted for.

What it leaves out: any judgement on what a text says.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Protocol, TypeVar

from kb.cleaning import cleaned, one_line
from kb.config import JOINTS, DocumentSource
from kb.errors import KnowledgeBaseError, shortened
from kb.files import sha256_text
from kb.readers import SUFFIXES, read_records
from kb.records import Record, Rejected
from kb.sentences import first_heading, has_body
from kb.sources import SourceFile, Sources, source_files

logger = logging.getLogger(__name__)

UNKNOWN_LICENCE = "unknown"
_OWN_FIELDS = frozenset({"doc_id", "title", "text", "source", "licence", "license", "url", "language", "date"})
_ID_DIGITS = 16  # of the hash that names a record: two of a million share one with a chance of 3e-8


class Named(Protocol):
    """What is known of a document before it is read."""

    @property
    def doc_id(self) -> str:
        """Unique in the corpus."""

    @property
    def licence(self) -> str:
        """As stated."""

    @property
    def sha256(self) -> str:
        """Hash of every field."""


D = TypeVar("D", bound=Named)


@dataclass(frozen=True, kw_only=True)
class Document:
    """One text with its provenance. Made by `load_documents`, read by `kb.splitting`.

    Attributes:
        doc_id: unique in the corpus.
        title: one line, may be empty.
        text: the body; Markdown headings in it open sections.
        source: who published it, or the file it came from, relative to the project, if nobody says.
        licence: as stated, or "unknown".
        url: its address, or "".
        language: as stated, or "".
        date: as stated, or "".
        metadata: every other stated field, as text.
    """

    doc_id: str
    title: str
    text: str
    source: str
    licence: str
    url: str = ""
    language: str = ""
    date: str = ""
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """Hash of every field, so that a change of the licence alone is seen too."""
        fields = [self.doc_id, self.title, self.text, self.source, self.licence, self.url, self.language, self.date]
        return sha256_text(json.dumps([*fields, self.metadata], sort_keys=True, ensure_ascii=True))


class _UnusableError(Exception):
    """Reason why a record is no document; becomes a `Rejected`."""


def load_documents(
    sources: Sources, root: Path, licences: Sequence[str] | None
) -> tuple[list[Document], list[Rejected]]:
    """Read every document of the given files and folders.

    What cannot be used is returned as a `Rejected`, never dropped in silence; of two
    records with one doc_id the first is kept.

    Args:
        sources: files or folders, relative to `root`; `kb.readers.SUFFIXES` are read.
        root: the project.
        licences: documents under any other licence are rejected; None: none is. Case, spaces, hyphens do not matter.

    Returns:
        Documents in the order of `sources`, and what was rejected, with paths relative to `root`.

    Raises:
        KnowledgeBaseError: if a source does not exist, a file needs a library that is not installed, or no document is
            left, since an empty index would only fail later and further away.
    """
    files, rejected = source_files(sources, root)
    documents, unusable = documents_of(files, licences)
    refuse_nothing(documents, files, rejected + unusable)
    return documents, rejected + unusable


def documents_of(files: Sequence[SourceFile], licences: Sequence[str] | None) -> tuple[list[Document], list[Rejected]]:
    """The same of files that are listed already; maybe nothing comes of them.

    Raises:
        KnowledgeBaseError: if a file needs a library that is not installed.
    """
    return chosen(((file, *documents_in(file)) for file in files), licences)


def chosen(
    held: Iterable[tuple[SourceFile, Sequence[tuple[D, int | None]], Sequence[Rejected]]],
    licences: Sequence[str] | None,
) -> tuple[list[D], list[Rejected]]:
    """Of all that files hold what may be used: under an allowed licence, and the first of its id.

    Args:
        held: files, each with its documents, their lines, and what was rejected.
        licences: as in `load_documents`.

    Returns:
        Documents, and all that was rejected, file by file.
    """
    allowed = None if licences is None else {_comparable(licence) for licence in licences}
    documents: dict[str, D] = {}
    rejected: list[Rejected] = []
    for file, found, unusable in held:
        rejected += unusable
        for document, line in found:
            if allowed is not None and _comparable(document.licence) not in allowed:
                reason = f"licence {document.licence!r} is none of 'licences' ({', '.join(licences or ())})"
            elif document.doc_id in documents:
                reason = f"duplicate doc_id {document.doc_id!r}: give this record a doc_id of its own"
            else:
                documents[document.doc_id] = document
                continue
            rejected.append(Rejected(Path(file.name), line, shortened(reason)))
    return list(documents.values()), rejected


def refuse_nothing(documents: Sequence[Named], files: Sequence[SourceFile], rejected: Sequence[Rejected]) -> None:
    """Stop where no document is left, since an empty index would only fail later and further away.

    Raises:
        KnowledgeBaseError: if there is none.
    """
    if not documents:
        raise KnowledgeBaseError(_nothing_found([file.name for file in files], rejected))
    logger.info("loaded %d documents, rejected %d records", len(documents), len(rejected))


def documents_in(file: SourceFile) -> tuple[list[tuple[Document, int | None]], list[Rejected]]:
    """Read one file. What comes of it depends on its bytes and on `file` alone.

    A record without a doc_id is named after its file; where a file has several, after its content too, so that a record
    put in before it does not rename it.

    Returns:
        Documents, each with its line, and what was rejected.

    Raises:
        KnowledgeBaseError: if the library for the file's format is not installed.
    """
    columns = file.source.fields.columns() if file.source.fields else {}
    unseen = {column for group in columns.values() for column in group}
    found: list[tuple[Document, int | None]] = []
    rejected: list[Rejected] = []
    for record in read_records(file.path):
        if isinstance(record, Rejected):
            rejected.append(replace(record, path=Path(file.name), reason=one_line(record.reason)))
            continue
        unseen -= record.fields.keys()
        try:
            found.append((_document(record, file, columns), record.line))
        except _UnusableError as error:
            rejected.append(Rejected(Path(file.name), record.line, shortened(str(error))))
    if unseen and (found or rejected):
        reason = f"no record has the column {min(unseen)!r} that 'fields' of its source names"
        rejected.append(Rejected(Path(file.name), None, shortened(reason)))
    return found, rejected


def _comparable(licence: str) -> str:
    return re.sub(r"[\s_-]+", " ", licence.casefold()).strip()


def _nothing_found(names: Sequence[str], rejected: Sequence[Rejected]) -> str:
    where = f"{len(names)} files of 'sources'" if names else "'sources'"
    if not rejected:
        return f"no documents in {where}: add {', '.join(SUFFIXES)} files or correct 'sources'"
    return (
        f"no documents in {where}: all {len(rejected)} records were rejected, the first is {rejected[0]}; correct them"
    )


def _document(record: Record, file: SourceFile, columns: Mapping[str, Sequence[str]]) -> Document:
    fields = _mapped(record.fields, columns)
    text = cleaned(_text_field(fields, "text"))
    if not text:
        raise _UnusableError("no text: the field 'text' is missing or blank")
    if not has_body(text):
        raise _UnusableError("no text below the headings")
    given: DocumentSource = file.source

    def stated(name: str, otherwise: str | None) -> str:
        return one_line(_text_field(fields, name)) or one_line(otherwise or "")

    document = Document(
        doc_id=stated("doc_id", None) or _default_id(record, file),
        title=_title(fields, record, text),
        text=text,
        source=stated("source", given.source) or file.name,
        licence=stated("licence", None) or stated("license", given.licence) or UNKNOWN_LICENCE,
        url=stated("url", None),
        language=stated("language", given.language),
        date=stated("date", None),
        metadata=_metadata(fields),
    )
    _check_unicode(document)
    return document


def _default_id(record: Record, file: SourceFile) -> str:
    if not record.many:
        return file.stem
    content = json.dumps(record.fields, sort_keys=True, ensure_ascii=True, default=str)
    return f"{file.stem}:{sha256_text(content)[:_ID_DIGITS]}"


def _mapped(fields: Mapping[str, object], columns: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """The fields with those of the map put together from their columns, which are left out."""
    if not columns:
        return dict(fields)
    used = {column for group in columns.values() for column in group}
    mapped = {name: value for name, value in fields.items() if name not in used}
    for name, group in columns.items():
        parts = [part for column in group for part in _values(fields.get(column), column)]
        mapped[name] = JOINTS.get(name, "; ").join(part for part in parts if part)
    return mapped


def _values(value: object, column: str) -> list[str]:
    if isinstance(value, list):
        return [_text_field({column: item}, column) for item in value]
    return [_text_field({column: value}, column)]


def _title(fields: Mapping[str, object], record: Record, text: str) -> str:
    """Stated title, else focus and qtype, else the first heading, else the name of a file that is one document."""
    title = one_line(_text_field(fields, "title"))
    if title:
        return title
    parts = (one_line(_text_field(fields, name)) for name in ("focus", "qtype"))
    title = ": ".join(part for part in parts if part) or first_heading(text)
    if title or record.many:
        return one_line(title)
    return one_line(record.path.stem.replace("_", " ").replace("-", " "))


def _text_field(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if _is_nothing(value):
        return ""
    if name == "date" and isinstance(value, date):  # YAML makes one of 2024-05-01
        return value.isoformat()
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _UnusableError(f"field '{name}' is {type(value).__name__}, not text")
    if isinstance(value, float) and value.is_integer():  # an integer beside empty cells
        value = int(value)
    return str(value)


def _is_nothing(value: object) -> bool:
    """Whether a field has no value: null, or not a number, as pandas writes an empty cell."""
    return value is None or value != value  # NaN differs from itself


def _metadata(fields: Mapping[str, object]) -> dict[str, str]:
    """Every other field as text; a list of plain values is joined with '; '."""
    metadata: dict[str, str] = {}
    for name, value in fields.items():
        if name in _OWN_FIELDS or _is_nothing(value):
            continue
        if isinstance(value, list) and not any(isinstance(item, list | dict) for item in value):
            metadata[name] = "; ".join(str(item) for item in value)
        elif isinstance(value, list | dict):
            metadata[name] = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
        else:
            metadata[name] = str(value)
    return metadata


def _check_unicode(document: Document) -> None:
    r"""Refuse lone surrogates, which JSON can spell (`\ud800`) and UTF-8 cannot store."""
    stated = [document.doc_id, document.title, document.text, document.source, document.licence]
    stated += [document.url, document.language, document.date]
    stated += [*document.metadata.keys(), *document.metadata.values()]
    for value in stated:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _UnusableError("not valid Unicode: the record holds half a surrogate pair") from error
