"""How people ask for what the lexicon names: a question in words that it lacks is compared with these by meaning."""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from ruamel.yaml import YAML

from clinic.matching import Embed
from clinic.understanding.lexicon import Lexicon, Reading

FILE = Path(__file__).with_name("asking.yaml")
LEAST = 0.65  # cosine to the nearest known question below which a question is not understood
MARGIN = 0.05  # by which what is nearest must lead over the next that is no kind of it


@dataclass(frozen=True)
class Asking:
    """Questions by what they ask for."""

    concepts: tuple[str, ...]  # of each question: the concept or aspect that it asks for
    aspects: frozenset[str]
    vectors: NDArray[np.float32]  # (questions, D), unit length
    embed: Embed

    def understood(self, question: str, read: Reading, lexicon: Lexicon) -> Reading:
        """The reading of a question, with the concept or aspect of the nearest known question where the lexicon names no
        concept and leaves words over; as it is where none is near enough.
        """
        if read.concepts or not (read.rest - lexicon.common or read.silent):
            return read
        name = self.nearest(question, lexicon)
        if name is None:
            return read
        if name in self.aspects:
            return replace(read, aspects=frozenset({name}), rest=frozenset()) if read.silent else read
        return replace(read, concepts=frozenset({name}), rest=frozenset())

    def nearest(self, question: str, lexicon: Lexicon) -> str | None:
        """The concept or aspect of the nearest known question, or None."""
        cosines = self.vectors @ self.embed([question])[0]
        best = int(cosines.argmax())
        name = self.concepts[best]
        akin = {name} | lexicon.broader.get(name, frozenset())
        others = [
            i
            for i, other in enumerate(self.concepts)
            if other not in akin and name not in lexicon.broader.get(other, ())
        ]
        clear = cosines[best] - cosines[others].max() >= MARGIN
        return name if cosines[best] >= LEAST and clear else None


@lru_cache(maxsize=1)
def asking(embed: Embed) -> Asking:
    """The questions of `asking.yaml`, embedded once for an embedder."""
    source = YAML(typ="safe").load(FILE)
    pairs = [
        (name, question.strip())
        for section in ("concepts", "aspects")
        for name, questions in source[section].items()
        for question in re.findall(r"[^?]+\?", questions)
    ]
    vectors = embed([question for _, question in pairs])
    return Asking(tuple(name for name, _ in pairs), frozenset(source["aspects"]), vectors, embed)
