"""What a fact of an imported case is worth to a doctor who brings it out: how much it tells apart, and how little of it
comes unasked for.

The rarity of a fact is that of its words over the training cases of its source, the mean of log(N / n) / log N for a
word in n of N cases, so in [0, 1]. What is found or said to be normal, or denied, has none; what stands under the
heading of a test has less the more cases have that test (vital signs: next to none). A fact's worth is its share of
the rarity of all that the case has to tell, divided by the square of 1 + the number of routine questions that bring it
out: the general history and the commonest questions of the training cases. So whoever asks everybody the same earns little of
it (`clinic.attacks`), and the worths of a case sum to less than 1 where much of it is routine.

Facts of the starter clinic have none: there the probabilities say what an answer tells. Those of a drawn DDXPlus patient
get theirs where it is drawn, by how common each is (`clinic.loaders.ddxplus`).
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from clinic.actions import without_marks
from clinic.cases import Case, Fact
from clinic.history import GENERAL_HISTORY
from clinic.matching import content_words, normalise
from clinic.patients.base import record_matchers
from clinic.understanding.record import Kind, kind_of

# commonest questions of a source that count as routine, beside the general history; with none the list of the seven
# commonest earns more than the general history of an honest doctor on MTMedDialog (docs/rewards.md)
ROUTINE = 20
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
    """The cases, each fact with its worth; rarity and routine are those of the training cases of the same source."""
    by_source: dict[str, list[Case]] = {}
    for case in training:
        by_source.setdefault(case.source, []).append(case)
    scales = {source: _Scale(seen) for source, seen in by_source.items()}
    unknown = _Scale([])
    return [scales.get(case.source, unknown).weighed(case) for case in cases]


def commonest_inquiries(cases: Iterable[Case], at_least: int = 1) -> list[tuple[Kind, str]]:
    """The questions and tests under which at least so many cases hold a fact, as (kind, heading), the commonest first."""
    count = Counter(
        inquiry
        for case in cases
        for inquiry in {(kind_of(fact), without_marks(fact.topic)) for fact in case.facts if fact.present}
    )
    kept = [inquiry for inquiry, cases_with_it in count.items() if cases_with_it >= at_least]
    return sorted(kept, key=lambda inquiry: (-count[inquiry], inquiry))


class _Scale:
    """What cases of one source are weighed by: how often words and headings of tests occur, and what is routine."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self._cases = len(cases)
        self._words = Counter(word for case in cases for word in {w for f in case.facts for w in content_words(f.text)})
        self._headings = Counter(heading for case in cases for heading in {_heading(fact) for fact in case.facts})
        self._routine = commonest_inquiries(cases, at_least=2)[:ROUTINE]

    def weighed(self, case: Case) -> Case:
        """The case, each fact with its worth, to four digits."""
        rarity = {fact.topic: self._rarity(fact) for fact in case.facts}
        total = sum(rarity[fact.topic] for fact in case.facts if fact.present and fact.topic not in case.opening) or 1.0
        times = self._brought_out(case)
        return replace(
            case,
            facts=tuple(
                replace(f, worth=round(rarity[f.topic] / total / (1 + times[f.topic]) ** 2, 4)) for f in case.facts
            ),
        )

    def _brought_out(self, case: Case) -> Counter[str]:
        """How many routine questions bring out each fact of a case."""
        match = record_matchers(case)
        routine: list[tuple[Kind, str]] = [("history", asked) for asked in GENERAL_HISTORY[case.language]]
        return Counter(topic for kind, asked in (*routine, *self._routine) for topic in match[kind](asked))

    def _rarity(self, fact: Fact) -> float:
        """In [0, 1]."""
        words = content_words(fact.text)
        if not words or is_normal(fact.text):
            return 0.0
        mean = sum(map(self._rarity_of, words)) / len(words)
        common = self._headings[_heading(fact)] / max(self._cases, 1) if kind_of(fact) == "test" else 0.0
        return mean * max(0.0, 1 - common)

    def _rarity_of(self, word: str) -> float:
        total = math.log(self._cases + 1)
        return math.log((self._cases + 1) / (self._words[word] + 1)) / total if total else 1.0


def is_normal(text: str) -> bool:
    """Whether a statement only denies, or finds something normal."""
    return bool((_DENIAL.match(text) and not _TURN.search(text)) or _NORMAL_END.search(text))


def _heading(fact: Fact) -> str:
    return normalise(_NUMBER.sub("", fact.topic))
