"""Files and folders -> documents, with every bad record accounted for.

What it leaves out: HTML, PDF and XML, and any judgement on what a text says.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kb.errors import KnowledgeBaseError, shortened
from kb.files import sha256_file, sha256_text
from kb.readers import SUFFIXES, Record, Rejected, read_records, suffix_of
from kb.sentences import first_heading, has_body

logger = logging.getLogger(__name__)

UNKNOWN_LICENCE = "unknown"
_OWN_FIELDS = frozenset({"doc_id", "title", "text", "source", "licence", "license"})


@dataclass(frozen=True, kw_only=True)
class Document:
    """One text with its provenance. Made by `load_documents`, read by `kb.splitting`.

    Attributes:
        doc_id: unique in the corpus.
        title: one line, may be empty.
        text: the body; Markdown headings in it open sections.
        source: who published it, or the file it came from if the file does not say.
        licence: as stated, or "unknown".
        metadata: every other stated field, as text.
    """

    doc_id: str
    title: str
    text: str
    source: str
    licence: str
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """Hash of every field, so that a change of the licence alone is seen too."""
        fields = [self.doc_id, self.title, self.text, self.source, self.licence, self.metadata]
        return sha256_text(json.dumps(fields, sort_keys=True, ensure_ascii=True))


class _UnusableError(Exception):
    """Reason why a record is no document; becomes a `Rejected`."""


def source_files(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """List the files to read as (file, name), where the name is the path inside its folder.

    Folders are searched recursively, in sorted order; hidden files and folders are left out.

    Raises:
        KnowledgeBaseError: if a path does not exist.
    """
    found: dict[Path, str] = {}
    for path in paths:
        if path.is_dir():
            for file in sorted(path.rglob("*")):
                name = file.relative_to(path)
                if file.is_file() and not any(part.startswith(".") for part in name.parts):
                    found.setdefault(file, name.as_posix())
        elif path.is_file():
            found.setdefault(path, path.name)
        else:
            raise KnowledgeBaseError(
                f"knowledge base source {path} does not exist: correct 'sources' or fetch the data"
            )
    return list(found.items())


def hash_sources(paths: Sequence[Path]) -> dict[str, str]:
    """Map every source file, as a POSIX path, to its SHA-256, for the index manifest.

    Raises:
        KnowledgeBaseError: if a path does not exist.
    """
    return {file.as_posix(): sha256_file(file) for file, _ in source_files(paths)}


def load_documents(paths: Sequence[Path]) -> tuple[list[Document], list[Rejected]]:
    """Read every document of the given files and folders.

    A record that cannot be used is returned as a `Rejected`, never dropped in silence; of two
    records with one doc_id the first is kept. A record without a `doc_id` is named after its
    file (and line, in JSONL).

    Args:
        paths: files or folders; `.md`, `.txt`, `.jsonl` and `.jsonl.gz` are read.

    Returns:
        Documents in the order of `paths`, and the rejected records.

    Raises:
        KnowledgeBaseError: if a path does not exist, a gzip file is damaged, or no document is
            left, since an empty index would only fail later and further away.
    """
    documents, rejected = documents_of(source_files(paths))
    if not documents:
        raise KnowledgeBaseError(_nothing_found(paths, rejected))
    logger.info("loaded %d documents, rejected %d records", len(documents), len(rejected))
    return documents, rejected


def documents_of(files: Sequence[tuple[Path, str]]) -> tuple[list[Document], list[Rejected]]:
    """The same of files that are listed with the names by which their documents go, and maybe nothing.

    Raises:
        KnowledgeBaseError: if a file is missing, or a gzip file is damaged.
    """
    documents: dict[str, Document] = {}
    rejected: list[Rejected] = []
    for item in _records(files):
        if isinstance(item, Rejected):
            rejected.append(item)
            continue
        record, default_id = item
        try:
            document = _document(record, default_id)
        except _UnusableError as error:
            rejected.append(Rejected(record.path, record.line, shortened(str(error))))
            continue
        if document.doc_id in documents:
            reason = f"duplicate doc_id {document.doc_id!r}: give this record a doc_id of its own"
            rejected.append(Rejected(record.path, record.line, shortened(reason)))
            continue
        documents[document.doc_id] = document
    return list(documents.values()), rejected


def _records(files: Sequence[tuple[Path, str]]) -> Iterator[Rejected | tuple[Record, str]]:
    for file, name in files:
        stem = name.removesuffix(suffix_of(file) or "")
        for record in read_records(file):
            if isinstance(record, Rejected):
                yield record
            else:
                yield record, stem if record.line is None else f"{stem}:{record.line}"


def _nothing_found(paths: Sequence[Path], rejected: Sequence[Rejected]) -> str:
    where = ", ".join(str(path) for path in paths) or "an empty list of sources"
    if not rejected:
        return f"no documents in {where}: add {', '.join(SUFFIXES)} files or correct 'sources'"
    first = rejected[0]
    at = str(first.path) if first.line is None else f"{first.path}:{first.line}"
    return (
        f"no documents in {where}: all {len(rejected)} records were rejected, "
        f"the first at {at} ({first.reason}); correct them"
    )


def _document(record: Record, default_id: str) -> Document:
    fields = record.fields
    text = _text_field(fields, "text").replace("\r\n", "\n").strip()
    if not text:
        raise _UnusableError("no text: the field 'text' is missing or blank")
    if not has_body(text):
        raise _UnusableError("no text below the headings")
    document = Document(
        doc_id=_text_field(fields, "doc_id").strip() or default_id,
        title=_title(record, text),
        text=text,
        source=_one_line(_text_field(fields, "source")) or record.path.as_posix(),
        licence=_one_line(_text_field(fields, "licence") or _text_field(fields, "license")) or UNKNOWN_LICENCE,
        metadata=_metadata(fields),
    )
    _check_unicode(document)
    return document


def _title(record: Record, text: str) -> str:
    """Stated title, else focus and qtype, else the first heading, else a text file's name."""
    title = _one_line(_text_field(record.fields, "title"))
    if title:
        return title
    parts = (_one_line(_text_field(record.fields, name)) for name in ("focus", "qtype"))
    title = ": ".join(part for part in parts if part) or first_heading(text)
    if title or record.line is not None:
        return title
    return _one_line(record.path.stem.replace("_", " ").replace("-", " "))


def _text_field(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _UnusableError(f"field '{name}' is {type(value).__name__}, not text")
    return str(value)


def _metadata(fields: Mapping[str, object]) -> dict[str, str]:
    """Every other field as text; a list of plain values is joined with '; '."""
    metadata: dict[str, str] = {}
    for name, value in fields.items():
        if name in _OWN_FIELDS or value is None:
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
    stated += [*document.metadata.keys(), *document.metadata.values()]
    for value in stated:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _UnusableError("not valid Unicode: the record holds half a surrogate pair") from error


def _one_line(text: str) -> str:
    return " ".join(text.split())
