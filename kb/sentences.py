"""Where a text may be cut: headings, paragraphs, sentences.

Everything is a span (start, end) into the original text, so a passage is always a verbatim slice
of its document. Recognises Markdown headings (`# ...`), fenced code and tables in any document, and
sentence ends in Latin and Chinese punctuation. It knows nothing of abbreviations beyond refusing to end a sentence
before a lower-case letter: a wrong cut costs a little context, never text.
"""

import re
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass

_HEADING = re.compile(r"^[ ]{0,3}#{1,6}[ \t]+(?P<title>.*\S)[ \t]*$", re.MULTILINE)
_FENCE = re.compile(r"^[ ]{0,3}(?P<mark>`{3,}(?=[^`\n]*$)|~{3,})(?P<rest>.*)$", re.MULTILINE)
_TABLE = re.compile(
    r"""^(?P<head>(?=[^\n]*\|)[^\n]*\n                     # a line of cells, and one of dashes that makes it a header
          (?=[^\n]*\|)(?=[^\n]*-)[|:\- \t]+)$
        (?P<rows>(?:\n(?=[^\n]*\|)[^\n]*)*)                # and every line of cells that follows
    """,
    re.MULTILINE | re.VERBOSE,
)
_PARAGRAPH_END = re.compile(r"\n[ \t\r\f\v]*\n\s*")
_LINE_END = re.compile(r"\n")
_SENTENCE_END = re.compile(
    r"""(?<=[.!?])["')\]]*\s+(?![a-z])     # Latin: stop, then anything but a lower-case letter
      | (?<=[\u3002\uff01\uff1f\uff1b])\s*  # Chinese full stop, "!", "?", ";": no space needed
      | \n(?=[ \t]*(?:[-*+•]|\d+[.)])\s)    # a list item starts
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Section:
    """The text below one heading. The part before the first heading has the title ""."""

    title: str
    start: int
    end: int


@dataclass(frozen=True)
class Sentence:
    """A span that is kept whole if it fits, stripped of white space at both ends.

    A row of a table is one; `header` is then the span of the table's header, without which it says little.
    """

    start: int
    end: int
    opens_paragraph: bool
    header: tuple[int, int] | None = None


def split_sections(text: str) -> list[Section]:
    """Split at Markdown headings; sections without text are left out."""
    headings = _headings(text)
    titles = [""] + [_heading_title(heading) for heading in headings]
    starts = [0] + [heading.end() for heading in headings]
    ends = [heading.start() for heading in headings] + [len(text)]
    sections = [Section(*part) for part in zip(titles, starts, ends, strict=True)]
    return [section for section in sections if text[section.start : section.end].strip()]


def split_sentences(text: str, start: int, end: int) -> list[Sentence]:
    """List the sentences of `text[start:end]` in order; together they hold all but white space.

    The header of a Markdown table, with the line below it, and each of its rows is one sentence.
    """
    sentences: list[Sentence] = []
    done = start
    for table in _TABLE.finditer(text, start, end) if "|" in text else ():
        sentences += _prose(text, done, table.start())
        sentences += _rows(text, table)
        done = table.end()
    return sentences + _prose(text, done, end)


def _prose(text: str, start: int, end: int) -> list[Sentence]:
    return [
        Sentence(first, last, opens_paragraph=number == 0)
        for paragraph in _spans(text, start, end, _PARAGRAPH_END)
        for number, (first, last) in enumerate(_spans(text, *paragraph, _SENTENCE_END))
    ]


def _rows(text: str, table: re.Match[str]) -> list[Sentence]:
    (header,) = _stripped(text, *table.span("head"))
    rows = _spans(text, *table.span("rows"), _LINE_END)
    return [Sentence(*header, True), *(Sentence(first, last, False, header) for first, last in rows)]


def first_heading(text: str) -> str:
    """Return the title of the first Markdown heading, or "" if there is none."""
    headings = _headings(text)
    return _heading_title(headings[0]) if headings else ""


def has_body(text: str) -> bool:
    """Say whether there is any text besides headings."""
    return bool(split_sections(text))


def _headings(text: str) -> list[re.Match[str]]:
    """Headings outside fenced code, in order."""
    if "#" not in text:
        return []
    fences = _fences(text)
    starts = [start for start, _ in fences]

    def fenced(at: int) -> bool:
        near = bisect(starts, at)
        return near > 0 and at < fences[near - 1][1]

    return [heading for heading in _HEADING.finditer(text) if not fenced(heading.start())]


def _fences(text: str) -> list[tuple[int, int]]:
    """Spans of fenced code. A fence that is never closed runs to the end (CommonMark 4.5)."""
    spans: list[tuple[int, int]] = []
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif fence["mark"].startswith(opened["mark"]) and not fence["rest"].strip():
            spans.append((opened.start(), fence.end()))
            opened = None
    return spans if opened is None else [*spans, (opened.start(), len(text))]


def _heading_title(heading: re.Match[str]) -> str:
    return " ".join(heading["title"].rstrip("#").split())


def _spans(text: str, start: int, end: int, separator: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Spans between separators, white space stripped, empty ones left out.

    A separator's own visible characters (closing quotes) stay with the span before them.
    """
    first = start
    for match in separator.finditer(text, start, end):
        yield from _stripped(text, first, match.end())
        first = match.end()
    yield from _stripped(text, first, end)


def _stripped(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    part = text[start:end]
    left = len(part) - len(part.lstrip())
    right = len(part.rstrip())
    if left < right:
        yield start + left, start + right
