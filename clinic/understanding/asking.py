"""How people ask for what the lexicon names: a question in words that it lacks is compared with these by meaning."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from ruamel.yaml import YAML

from clinic.matching import Embed
from clinic.understanding.chinese import chinese
from clinic.understanding.lexicon import Lexicon, Reading

FILE = Path(__file__).with_name("asking.yaml")
CHINESE_FILE = FILE.with_name("asking_zh.yaml")
LEAST = 0.65  # cosine to the nearest known question below which a question is not understood
LEAST_BY_CHARACTERS = 0.5
MARGIN = 0.05  # by which what is nearest must lead over the next that is no kind of it


@dataclass(frozen=True)
class Asking:
    """Questions by what they ask for."""

    concepts: tuple[str, ...]  # of each question: the concept or aspect that it asks for
    aspects: frozenset[str]
    vectors: NDArray[np.float32]  # (questions, D), unit length
    embed: Embed
    least: float = LEAST

    @cached_property
    def rows(self) -> dict[str, NDArray[np.intp]]:
        """Of each concept and aspect, which questions ask for it."""
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(self.concepts):
            rows.setdefault(name, []).append(row)
        return {name: np.array(found) for name, found in rows.items()}

    def cosines(self, question: str) -> NDArray[np.float32]:
        """Cosine of a question to every known one."""
        return np.asarray(self.vectors @ embedded(question, self.embed))

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
        cosines = self.cosines(question)
        best = int(cosines.argmax())
        name = self.concepts[best]
        akin = {name} | lexicon.broader.get(name, frozenset())
        others = [
            i
            for i, other in enumerate(self.concepts)
            if other not in akin and name not in lexicon.broader.get(other, ())
        ]
        clear = cosines[best] - cosines[others].max() >= MARGIN
        return name if cosines[best] >= self.least and clear else None


@lru_cache(maxsize=4096)
def embedded(question: str, embed: Embed) -> NDArray[np.float32]:
    """The vector of a question, float32 (D,), which several ask for."""
    return np.asarray(embed([question])[0])


@lru_cache(maxsize=1)
def asking(embed: Embed) -> Asking:
    """The questions of `asking.yaml`, embedded once for an embedder."""
    pairs, aspects = _listed(FILE)
    vectors = embed([question for _, question in pairs])
    return Asking(tuple(name for name, _ in pairs), aspects, vectors, embed)


@lru_cache(maxsize=1)
def chinese_asking() -> Asking:
    """The questions of `asking_zh.yaml`, compared by characters: to the bundled embedder all Chinese sentences are alike."""
    pairs, aspects = _listed(CHINESE_FILE)
    questions = [question for _, question in pairs]
    embed = _by_characters(questions)
    return Asking(tuple(name for name, _ in pairs), aspects, embed(questions), embed, LEAST_BY_CHARACTERS)


def _listed(file: Path) -> tuple[list[tuple[str, str]], frozenset[str]]:
    """(name, question) of a list, and the names of its aspects."""
    source = YAML(typ="safe").load(file)
    pairs = [
        (name, question.strip())
        for section in ("concepts", "aspects")
        for name, questions in source[section].items()
        for question in re.findall(r"[^?？]+[?？]", questions)
    ]
    return pairs, frozenset(source["aspects"])


def _by_characters(questions: Sequence[str]) -> Embed:
    """Single characters and pairs, rare ones weighing more (inverse document frequency), to unit length."""
    plain = chinese().plain
    seen = Counter(gram for question in questions for gram in set(_grams(plain(question))))
    place = {gram: i for i, gram in enumerate(sorted(seen))}
    unknown = math.log(1 + len(questions))
    weight = {gram: math.log((1 + len(questions)) / count) for gram, count in seen.items()}

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), len(place)), dtype=np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            grams = set(_grams(plain(text)))
            length = math.sqrt(sum(weight.get(gram, unknown) ** 2 for gram in grams)) or 1.0
            for gram in grams & place.keys():
                vector[place[gram]] = weight[gram] / length
        return vectors

    return embed


def _grams(text: str) -> list[str]:
    bare = re.sub(r"\W", "", text)
    return [*bare, *(bare[i : i + 2] for i in range(len(bare) - 1))]
