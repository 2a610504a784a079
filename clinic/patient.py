"""Patients: they hear text, they answer in text, and they never say the diagnosis.

A patient is made for one consultation and sees only the question's words. Answers come from the case's
facts; what is not on record gets "I don't know".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from clinic.cases import Case, mention_of
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
        """Args: the case; a matcher of questions to its topics, or None to match against the fact texts.

        Without a matcher the topics are headings of a record, not findings, so a fact is told as it stands:
        "Yes, denies fever" would turn it round.
        """
        self._plain = matcher is None
        self._facts = {fact.topic: fact for fact in case.facts}
        self._match = matcher or TopicMatcher({f.topic: (f.topic, f.text) for f in case.facts}, MATCH_THRESHOLD).match
        self._filter = LeakFilter(case)

    async def answer(self, question: str) -> Answer:
        """Yes or no with the fact in this patient's words (the words alone without a matcher), or "I don't know"."""
        topic = self._match(question)
        fact = self._facts.get(topic) if topic is not None else None
        if fact is None:
            return Answer(f"{UNKNOWN}.", None, None, 0)
        said = fact.text if self._plain else f"{'Yes' if fact.present else 'No'}, {fact.text}."
        text, leaks = self._filter.clean(said)
        return Answer(text, fact.topic, fact.present, leaks)


class LeakFilter:
    """Removes the case's diagnosis, its synonyms and accepted parents from anything said to the doctor."""

    REPLACEMENT = "that illness"

    def __init__(self, case: Case) -> None:
        """Compile the terms of one case."""
        self._pattern = mention_of(frozenset({case.diagnosis, *case.synonyms, *case.parents}))

    def clean(self, text: str) -> tuple[str, int]:
        """Return the text without the terms, and how often one was removed."""
        if self._pattern is None:
            return text, 0
        return self._pattern.subn(self.REPLACEMENT, text)
