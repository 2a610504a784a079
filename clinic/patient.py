"""Patients: they hear text, they answer in text, and they never say the diagnosis.

A patient is made for one consultation and sees only the question's words. Answers come from the case's
facts; what is not on record gets "I don't know".
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from clinic.cases import Case
from clinic.matching import TopicMatcher

MATCH_THRESHOLD = 0.45
UNKNOWN = "I don't know"


@dataclass(frozen=True)
class Answer:
    """What the patient said, and which fact it told (topic None: off the record)."""

    text: str
    topic: str | None
    present: bool | None
    leaks: int  # times the leak filter had to remove the diagnosis


class Patient(Protocol):
    """Answers questions about one case."""

    async def answer(self, question: str) -> Answer:
        """Answer one question."""
        ...


Matcher = Callable[[str], str | None]


class ScriptedPatient:
    """Answers from the facts by meaning, deterministically; restates the finding, as people do."""

    def __init__(self, case: Case, matcher: Matcher | None) -> None:
        """Args: the case; a matcher of questions to its topics, or None to match against the fact texts."""
        self._facts = {fact.topic: fact for fact in case.facts}
        self._match = matcher or TopicMatcher({f.topic: (f.topic, f.text) for f in case.facts}, MATCH_THRESHOLD).match
        self._filter = LeakFilter(case)

    async def answer(self, question: str) -> Answer:
        """Yes or no with the fact in this patient's words, or "I don't know"."""
        topic = self._match(question)
        fact = self._facts.get(topic) if topic is not None else None
        if fact is None:
            return Answer(f"{UNKNOWN}.", None, None, 0)
        text, leaks = self._filter.clean(f"{'Yes' if fact.present else 'No'}, {fact.text}.")
        return Answer(text, fact.topic, fact.present, leaks)


class LeakFilter:
    """Removes the case's diagnosis, its synonyms and accepted parents from anything said to the doctor."""

    REPLACEMENT = "that illness"

    def __init__(self, case: Case) -> None:
        """Compile the terms of one case."""
        terms = sorted({case.diagnosis, *case.synonyms, *case.parents} - {""}, key=len, reverse=True)
        body = "|".join(re.escape(term) for term in terms)
        self._pattern = re.compile(rf"(?<![^\W_])(?:{body})(?![^\W_])", re.IGNORECASE) if body else None

    def clean(self, text: str) -> tuple[str, int]:
        """Return the text without the terms, and how often one was removed."""
        if self._pattern is None:
            return text, 0
        return self._pattern.subn(self.REPLACEMENT, text)
