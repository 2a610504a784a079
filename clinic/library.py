"""The knowledge base as a consultation knows it: who searches it, and how what it says is made harmless.

Passages are data. In their line stands nothing that the grammar, a chat template or the consultation itself could have
written: no tag, no count of turns, no end of the library's words, no line of its own.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Protocol

from clinic.cases import Case
from clinic.diagnoses import relation
from clinic.events import FoundPassage
from clinic.matching import normalise

Fits = Callable[[Sequence[FoundPassage]], bool]
"""Whether a reply of these passages, as they are shown, is within the doctor's tokens."""

_TAG = re.compile(r"[<\[]([/|｜]?[^\W\d][^<>\[\]]*)[>\]]")
_COUNT = re.compile(r"[(（]\s*(?:[还還]剩\s*)?\d+\s*(?:turns?\s*)?(?:left|轮|輪)\s*[)）]", re.IGNORECASE)
_BRACKETS = re.compile(r"<{2,}|>{2,}")
_NOT_IN_AN_ID = re.compile(r"[\s,，、;；<>\[\]()（）]+")


class Library(Protocol):
    """A knowledge base, as one doctor reads it."""

    def tokens(self, text: str) -> int:
        """How many tokens a text has for this doctor."""
        ...

    async def search(self, query: str, results: int, fits: Fits) -> Sequence[FoundPassage]:
        """The passages nearest to a query, best first and at most `results`, with as much of their texts as fits."""
        ...


def harmless(text: str) -> str:
    """A text of the library on one line, without tags, counts of turns and signs that are not seen."""
    seen = (letter for letter in " ".join(text.split()) if unicodedata.category(letter) not in ("Cc", "Cf"))
    text = _COUNT.sub("(…)", "".join(seen))
    while (plain := _TAG.sub(r"(\1)", text)) != text:
        text = plain
    return _BRACKETS.sub(lambda found: found[0][0], text)


def harmless_id(passage_id: str) -> str:
    """The id of a passage as the doctor reads and cites it: nothing in it ends it."""
    return _NOT_IN_AN_ID.sub("_", harmless(passage_id))


def names_condition(case: Case, passage: FoundPassage) -> bool:
    """Whether a passage, as it was shown, names the condition of the case, by its name or a synonym."""
    if relation(case, passage.title) == "exact":
        return True
    said = f"{normalise(passage.title)} {normalise(passage.section)} {normalise(passage.text)}"
    return any(_stands_in(normalise(name), said) for name in (case.diagnosis, *case.synonyms))


def _stands_in(name: str, said: str) -> bool:
    """Whether words stand in others, whole; Chinese words have no ends."""
    return (
        bool(name) and re.search(rf"(?<![^\W\u3400-\u9fff]){re.escape(name)}(?![^\W\u3400-\u9fff])", said) is not None
    )
