"""What is searched: pieces of documents."""

import json
from dataclasses import dataclass
from typing import NamedTuple


class Origin(NamedTuple):
    """A document that says the same as a passage."""

    doc_id: str
    title: str
    source: str
    url: str
    licence: str


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A piece of a document, as searched. Made by `kb.splitting`, stored by `kb.index`.

    Attributes:
        passage_id: `<doc_id>#<number from 0>`.
        doc_id: the document it was cut from.
        title: the document's title, cut if it would crowd out the text.
        section: the heading it stands under, or "".
        text: a verbatim slice of the document; one that begins inside a table has the table's header in front.
        source: the document's.
        licence: the document's.
        sha256: hash of what is embedded; equal hashes have equal vectors.
        url: the document's, or "".
        language: the document's, or "".
        date: the document's, or "".
        also: the other documents that say the same, as JSON (a list of `Origin`s), or ""; see `origins`.
    """

    passage_id: str
    doc_id: str
    title: str
    section: str
    text: str
    source: str
    licence: str
    sha256: str
    url: str = ""
    language: str = ""
    date: str = ""
    also: str = ""

    @property
    def origins(self) -> tuple[Origin, ...]:
        """The other documents that say the same."""
        return tuple(Origin(*one) for one in json.loads(self.also)) if self.also else ()

    @property
    def embedded_text(self) -> str:
        """What the embedder reads."""
        return embedded_text(self.title, self.section, self.text)


def embedded_text(title: str, section: str, text: str) -> str:
    """Put title and section on a line before the text; a section equal to the title is dropped."""
    heading = ": ".join(part for part in (title, section if section != title else "") if part)
    return f"{heading}\n{text}" if heading else text
