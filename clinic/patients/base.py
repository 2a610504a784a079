"""What every patient is to the consultation, whoever plays it."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from clinic.cases import Case
from clinic.matching import MATCH_THRESHOLD, TopicMatcher

Matcher = Callable[[str], str | None]
"""A question to the topic of the fact that it asks for; None where nothing on record is near enough."""
Generate = Callable[[Sequence[Mapping[str, str]]], Awaitable[str]]
"""A language model: messages in, one reply out. Raises where none can be had."""


@dataclass(frozen=True)
class Answer:
    """What the patient said, and which fact it told (topic None: off the record)."""

    text: str
    topic: str | None
    present: bool | None
    withheld: bool = False  # the patient would not say; asking again is no repetition


class Patient(Protocol):
    """Answers one consultation's questions about one case.

    What it says passes the leak filter (`clinic.leaks`) before the doctor hears it.
    """

    async def answer(self, question: str) -> Answer:
        """Answer one question."""
        ...

    async def examine(self, test: str) -> Answer:
        """The result of an examination or laboratory test that the doctor ordered."""
        ...


_CLAUSE = re.compile(r"[.!?;,。！？；，]+|\b(?:and|but)\b")


def clauses(text: str) -> list[str]:
    """The parts of a reply that can tell a fact each."""
    return [clause.strip() for clause in _CLAUSE.split(text) if len(clause.strip()) > 1]


def record_matcher(case: Case) -> Matcher:
    """Matches questions to a case's own facts by their headings and texts, for cases of no generative clinic."""
    return TopicMatcher({f.topic: (f.topic, f.text) for f in case.facts}, MATCH_THRESHOLD).match
