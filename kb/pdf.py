"""PDF -> a record: the text layer, page by page. The only door to pypdf.

Left out: scanned pages, which are pictures, and the order of columns, which a PDF does not state.
"""

import logging
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kb.errors import shortened
from kb.extras import library_for
from kb.records import Record, Rejected

_BROKEN = (ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError,
           NotImplementedError, struct.error, zlib.error)  # fmt: skip
"""What pypdf stumbles over in a broken file, beside errors of its own."""


def read_pdf(path: Path) -> list[Record | Rejected]:
    """Read a document; of a damaged one the pages that can be read, and a rejection for each of the others.

    Raises:
        KnowledgeBaseError: if pypdf is not installed.
    """
    library = library_for(path, "pypdf")
    broken = (*_BROKEN, library.errors.PyPdfError, library.errors.DependencyError)
    texts: list[str] = []
    found: list[Record | Rejected] = []
    with _complaints() as complaints:
        try:
            reader = library.PdfReader(path)
            pages = list(reader.pages)
            title = str((reader.metadata and reader.metadata.title) or "")
            language = str(reader.root_object.get("/Lang") or "")
        except broken as error:
            return [Rejected(path, None, _told(error, "the file"))]
        for number, page in enumerate(pages, start=1):
            complaints.clear()
            try:
                texts.append(page.extract_text())
                reason: BaseException | str = complaints[0] if complaints and not texts[-1].strip() else ""
            except broken as error:
                reason = error
            if reason:
                found.append(Rejected(path, None, _told(reason, f"page {number} of {len(pages)}")))
    text = "\n\n".join(texts)
    if text.strip():
        return [Record(path, None, {"title": title, "language": language, "text": text}), *found]
    reason = "no text in it: if its pages are scanned, run text recognition (OCR) first"
    return [*found, Rejected(path, None, reason)]


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """What pypdf logs meanwhile, where it goes on without a part that it cannot read; nobody else hears it."""
    logger, heard = logging.getLogger("pypdf"), _Heard()
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(heard)
    try:
        yield heard.messages
    finally:
        logger.removeHandler(heard)
        logger.propagate = propagate


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        self.messages.append(record.getMessage())


def _told(error: BaseException | str, what: str) -> str:
    reason = " ".join(str(error).split()) or type(error).__name__
    return shortened(f"not a whole PDF: {what} cannot be read ({reason})")
