"""What is searched: pieces of documents."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A piece of a document, as searched. Made by `kb.splitting`, stored by `kb.index`.

    Attributes:
        passage_id: `<doc_id>#<number from 0>`.
        doc_id: the document it was cut from.
        title: the document's title, cut if it would crowd out the text.
        section: the heading it stands under, or "".
        text: a verbatim slice of the document.
        source: the document's.
        licence: the document's.
        sha256: hash of what is embedded; equal hashes have equal vectors.
    """

    passage_id: str
    doc_id: str
    title: str
    section: str
    text: str
    source: str
    licence: str
    sha256: str

    @property
    def embedded_text(self) -> str:
        """What the embedder reads."""
        return embedded_text(self.title, self.section, self.text)


def embedded_text(title: str, section: str, text: str) -> str:
    """Put title and section on a line before the text; a section equal to the title is dropped."""
    heading = ": ".join(part for part in (title, section if section != title else "") if part)
    return f"{heading}\n{text}" if heading else text
