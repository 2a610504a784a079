"""PDF -> a record: the text layer, page by page. The only door to pypdf.

Left out: scanned pages, which are pictures, and the order of columns, which a PDF does not state.
"""

import logging
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from kb.errors import shortened
from kb.extras import library_for
from kb.records import Record, Rejected

_BROKEN = (ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError,
           NotImplementedError, struct.error, zlib.error)  # fmt: skip
"""What pypdf stumbles over in a broken file, beside errors of its own."""


def read_pdf(path: Path) -> Iterator[Record | Rejected]:
    """Read a document; of a damaged one the pages that can be read, and a rejection for each of the others.

    Raises:
        KnowledgeBaseError: if pypdf is not installed.
    """
    library = library_for(path, "pypdf")
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # what it has to say is told as a rejection
    broken = (*_BROKEN, library.errors.PyPdfError, library.errors.DependencyError)
    try:
        reader = library.PdfReader(path)
        pages = list(reader.pages)
        title = str((reader.metadata and reader.metadata.title) or "")
        language = str(reader.root_object.get("/Lang") or "")
    except broken as error:
        yield Rejected(path, None, _told(error, "the file"))
        return
    texts: list[str] = []
    for number, page in enumerate(pages, start=1):
        try:
            texts.append(page.extract_text())
        except broken as error:
            yield Rejected(path, None, _told(error, f"page {number} of {len(pages)}"))
    text = "\n\n".join(texts)
    if text.strip():
        yield Record(path, None, {"title": title, "language": language, "text": text})
    elif texts:
        yield Rejected(path, None, "no text in it: if its pages are scanned, run text recognition (OCR) first")


def _told(error: BaseException, what: str) -> str:
    reason = " ".join(str(error).split()) or type(error).__name__
    return shortened(f"not a whole PDF: {what} cannot be read ({reason})")
