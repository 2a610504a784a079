"""What a fact of an imported case is worth to a doctor who brings it out: how much it tells apart.

The worth of a fact is the mean rarity of its words over the training cases of its source, log(N / n) / log N for a word
in n of N cases, so in [0, 1]. What is found or said to be normal, or denied, is worth nothing; what stands under the
heading of a test is worth less the more cases have that test (vital signs: next to nothing). The worths of a case's
facts are compared with each other only (`clinic.rewards.outcome`).

Facts of generative clinics have none: there the probabilities say what an answer tells.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from clinic.cases import Case, Fact
from clinic.matching import content_words, normalise
from clinic.understanding.record import kind_of

_NUMBER = re.compile(r"\s*\(\d+\)\Z")
_DENIAL = re.compile(
    r"\A\W*(?:no\b|none\b|nil\b|not\b|never\b|den(?:ies|y|ied)\b|normal|negative|unremarkable|without\b|within normal|intact\b|clear\b|absent|regular rate"
    r"|non-?tender|non-?contributory|insignificant|nkda\b|no known\b|(?:the )?(?:patient|he|she) (?:denies|has no|does not|reports no)\b|没|无|否认|正常|阴性|未)",
    re.IGNORECASE,
)
_TURN = re.compile(r"\b(?:but|however|except|although|reports|admits)\b|但", re.IGNORECASE)
_NORMAL_END = re.compile(
    r"\b(?:normal|negative|unremarkable|within normal limits|正常|阴性)\W*(?:\([^)]*\))?\W*\Z", re.IGNORECASE
)


def with_worth(cases: Sequence[Case], training: Iterable[Case]) -> list[Case]:
    """The cases, each fact with its worth; rarities are counted over the training cases of the same source."""
    by_source: dict[str, list[Case]] = {}
    for case in training:
        by_source.setdefault(case.source, []).append(case)
    scales = {source: _Rarity(seen) for source, seen in by_source.items()}
    unknown = _Rarity([])
    return [
        replace(case, facts=tuple(replace(f, worth=scales.get(case.source, unknown).worth(f)) for f in case.facts))
        for case in cases
    ]


class _Rarity:
    """How often words and headings of tests occur in cases."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self._cases = len(cases)
        self._words = Counter(word for case in cases for word in {w for f in case.facts for w in content_words(f.text)})
        self._headings = Counter(heading for case in cases for heading in {_heading(fact) for fact in case.facts})

    def worth(self, fact: Fact) -> float:
        """In [0, 1], to four digits."""
        words = content_words(fact.text)
        if not words or is_normal(fact.text):
            return 0.0
        mean = sum(map(self._rarity, words)) / len(words)
        common = self._headings[_heading(fact)] / max(self._cases, 1) if kind_of(fact) == "test" else 0.0
        return round(mean * max(0.0, 1 - common), 4)

    def _rarity(self, word: str) -> float:
        total = math.log(self._cases + 1)
        return math.log((self._cases + 1) / (self._words[word] + 1)) / total if total else 1.0


def is_normal(text: str) -> bool:
    """Whether a statement only denies, or finds something normal."""
    return bool((_DENIAL.match(text) and not _TURN.search(text)) or _NORMAL_END.search(text))


def _heading(fact: Fact) -> str:
    return normalise(_NUMBER.sub("", fact.topic))
