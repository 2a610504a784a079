"""Small helpers on files: hashes, and lines of plain or gzipped text."""

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from kb.errors import KnowledgeBaseError

_CHUNK_BYTES = 1 << 20
DAMAGE = (OSError, EOFError, zlib.error)
"""What reading a file raises that is unreadable or a damaged gzip."""


def sha256_text(text: str) -> str:
    """Return the SHA-256 of the UTF-8 bytes of `text`, as 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_texts(texts: Iterable[str]) -> str:
    """Return the SHA-256 of several texts, in their order and not run together."""
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode()
        digest.update(b"%d " % len(content) + content)
    return digest.hexdigest()


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, as 64 hex digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    r"""Yield (line number from 1, raw line without its end) of a plain or `.gz` file, up to where it is damaged.

    Lines are bytes, so that one undecodable line does not cost the whole file, and only `\n`
    ends a line.

    Raises:
        OSError, EOFError, zlib.error: at the damage (`DAMAGE`), after every whole line before it.
    """
    with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            yield number, line.rstrip(b"\r\n")


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """As `raw_lines`, of a file that is wanted whole or not at all.

    Raises:
        KnowledgeBaseError: if the file is missing, unreadable or a damaged gzip, since the lines
            behind the damage would be lost without a word.
    """
    try:
        yield from raw_lines(path)
    except FileNotFoundError as error:
        raise KnowledgeBaseError(f"{path} is missing: check the path or fetch the file") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise KnowledgeBaseError(f"{path} is not a whole gzip file ({error}): fetch it again") from error
