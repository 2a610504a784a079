"""Sources -> the documents in them, without reading a file that was read before: its hash says what it holds.

What comes out is the same with any cache and with none.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from kb.cache import Cache, maker_of
from kb.config import DocumentSource
from kb.documents import Document, chosen, documents_in
from kb.errors import KnowledgeBaseError
from kb.files import sha256_file, sha256_texts
from kb.records import Rejected
from kb.sources import SourceFile, Sources, source_files

READERS = tuple(
    f"kb.{name}"
    for name in (
        "cleaning",
        "config",
        "documents",
        "errors",
        "medquad",
        "pdf",
        "readers",
        "records",
        "sentences",
        "web_pages",
    )
)
KEPT_EVERY_S = 5.0  # what was read is in the cache; a kill loses so much at most
LIBRARIES = ("defusedxml", "pypdf", "ruamel.yaml", "trafilatura")


class Listed(NamedTuple):
    """A document that need not have been read: enough to choose it, and to find its passages in the cache."""

    doc_id: str
    licence: str
    sha256: str


@dataclass(frozen=True)
class _Held:
    """What a file holds: documents with their lines, and what was rejected."""

    listed: list[tuple[Listed, int | None]]
    rejected: list[Rejected]

    def to_bytes(self) -> bytes:
        rejected = [(one.path.as_posix(), one.line, one.reason) for one in self.rejected]
        return json.dumps([self.listed, rejected]).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> "_Held":
        listed, rejected = json.loads(content)
        return cls(
            [(Listed(*one), line) for one, line in listed],
            [Rejected(Path(path), line, reason) for path, line, reason in rejected],
        )


class Corpus:
    """The documents of some sources.

    Attributes:
        files: in the order of the sources.
        documents: in the same order; maybe there are none.
        rejected: what cannot be used.
        hashes: name of a file to its SHA-256; unreadable files are left out.
    """

    def __init__(self, sources: Sources, root: Path, licences: Sequence[str] | None, cache: Cache | None) -> None:
        """List the documents; files that the cache does not know are read.

        Args:
            sources: as for `kb.documents.load_documents`.
            root: likewise.
            licences: likewise.
            cache: what each file holds, by its bytes; None: all files are read.

        Raises:
            KnowledgeBaseError: if a source does not exist, a file needs a library that is not installed, or changes while
                it is read.
        """
        self.files, unlisted = source_files(sources, root)
        self.hashes = {file.name: found for file in self.files if (found := _hash(file.path)) is not None}
        self._read: dict[str, Document] = {}
        self._file_of: dict[str, SourceFile] = {}
        held = self._held(cache)
        self.documents, unusable = chosen(
            ((file, held[file.name].listed, held[file.name].rejected) for file in self.files), licences
        )
        self.rejected = unlisted + unusable

    def read(self, wanted: Sequence[Listed]) -> list[Document]:
        """The whole documents, in the same order; their files are read now, if they were not yet."""
        for document in wanted:
            if document.sha256 not in self._read:
                self._documents_in(self._file_of[document.sha256])
        return [self._read[document.sha256] for document in wanted]

    def _held(self, cache: Cache | None) -> dict[str, _Held]:
        """What every file holds, by its name."""
        held: dict[str, _Held] = {}
        if cache is not None:
            makers: dict[str, dict[str, SourceFile]] = {}
            for file in (file for file in self.files if file.name in self.hashes):
                makers.setdefault(_maker(file.source), {})[_row(file, self.hashes[file.name])] = file
            for maker, rows in makers.items():
                known = cache.get(maker, list(rows))
                held.update((rows[row].name, _Held.from_bytes(content)) for row, content in known.items())
                self._read_new({row: file for row, file in rows.items() if row not in known}, maker, cache, held)
        held.update((file.name, self._documents_in(file)) for file in self.files if file.name not in held)
        for file in self.files:
            self._file_of.update((listed.sha256, file) for listed, _ in held[file.name].listed)
        return held

    def _read_new(self, rows: Mapping[str, SourceFile], maker: str, cache: Cache, held: dict[str, _Held]) -> None:
        """Read files by their rows in the cache, where they stand every few seconds."""
        fresh: dict[str, bytes] = {}
        since = time.monotonic()
        for row, file in rows.items():
            held[file.name] = self._documents_in(file)
            fresh[row] = held[file.name].to_bytes()
            if time.monotonic() - since > KEPT_EVERY_S:
                cache.put(maker, fresh)
                fresh, since = {}, time.monotonic()
        cache.put(maker, fresh)

    def _documents_in(self, file: SourceFile) -> _Held:
        found, rejected = documents_in(file)
        if _hash(file.path) != self.hashes.get(file.name):
            raise KnowledgeBaseError(f"{file.name} changed while it was read: run the build again")
        listed = [(Listed(document.doc_id, document.licence, document.sha256), line) for document, line in found]
        self._read.update((one.sha256, document) for (one, _), (document, _) in zip(listed, found, strict=True))
        return _Held(listed, rejected)


def all_known(sources: Sources, root: Path, cache: Cache) -> bool:
    """Whether the cache knows what every file of some sources holds, so that none is read.

    Raises:
        KnowledgeBaseError: a source does not exist.
    """
    files, _ = source_files(sources, root)
    rows: dict[str, list[str]] = {}
    for file in files:
        if (found := _hash(file.path)) is not None:
            rows.setdefault(_maker(file.source), []).append(_row(file, found))
    return all(len(cache.get(maker, some)) == len(some) for maker, some in rows.items())


def _row(file: SourceFile, sha256: str) -> str:
    """By what the cache knows a file."""
    return sha256_texts([sha256, file.name, file.stem])


def _maker(source: DocumentSource) -> str:
    """All that a file's documents depend on besides its bytes and names."""
    columns = source.fields.columns() if source.fields else {}
    stated = [columns, source.licence, source.language, source.source]
    return maker_of("documents", stated, [_version(library) for library in LIBRARIES], code=READERS)


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


def _hash(path: Path) -> str | None:
    try:
        return sha256_file(path)
    except OSError:
        return None
