"""HTML -> a record: the text that is meant to be read, without menus and footers. The only door to trafilatura.

Headings, lists and tables come as Markdown. A title, a date, an address, a site's name and a Creative Commons licence
are taken where the page states them. Left out: whatever a script would put there, and the page's comments.
"""

import logging
import re
from pathlib import Path
from typing import Any

from kb.extras import library_for
from kb.files import DAMAGE
from kb.records import Record, Rejected

MAX_ELEMENTS = 50_000  # trafilatura's time grows with the square: 4 s for as many, 53 s for four times as many
_STATED = {"title": "title", "url": "url", "date": "date", "sitename": "source", "license": "licence"}
_ESCAPED = re.compile(r"\\([*_`~\[\]<>+.)-])")  # not the number sign, which would open a heading, nor a cell's bar
_RAISED = re.compile(r"(?<!\\)<sup>(?=[\d+−-])")  # a power or a charge; brackets that the page itself shows are escaped
_TAG = re.compile(r"(?<!\\)</?su[bp]>")


def read_html(path: Path) -> Record | Rejected:
    """Read a page.

    Raises:
        KnowledgeBaseError: if trafilatura is not installed.
    """
    library = library_for(path, "trafilatura")
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # what it has to say is told as a rejection
    try:
        tree = library.load_html(path.read_bytes())
    except DAMAGE as error:
        return Rejected(path, None, f"cannot be read ({error})")
    if tree is None:
        return Rejected(path, None, "not HTML: no page can be made of it")
    if (elements := sum(1 for _ in tree.iter())) > MAX_ELEMENTS:
        return Rejected(path, None, f"a page of {elements:,} elements, {MAX_ELEMENTS:,} at most: split it")
    stated = library.extract_metadata(tree, extensive=False)
    language = tree.get("lang") or ""
    _mark_main(tree)
    text = library.extract(tree, output_format="markdown", include_comments=False, with_metadata=False)
    if not text:
        return Rejected(path, None, "no text on the page: its text may be put there by a script")
    text = _ESCAPED.sub(r"\1", _TAG.sub("", _RAISED.sub("^", text)))
    fields = {ours: getattr(stated, theirs) for theirs, ours in _STATED.items()}
    return Record(path, None, {**fields, "language": language, "text": text})


def _mark_main(tree: Any) -> None:
    """Where a page marks no article, its body is what is meant: of unmarked text trafilatura keeps no headings and lists."""
    body = tree if tree.find("body") is None else tree.find("body")  # a piece of a page has none
    if any(tree.find(f".//{name}") is not None for name in ("article", "main")):
        return
    main = body.makeelement("main")
    main.text, body.text = body.text, None
    main.extend(list(body))
    body.append(main)
