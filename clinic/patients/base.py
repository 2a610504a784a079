"""What every patient is to the consultation, whoever plays it."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from clinic.cases import Case, Fact
from clinic.language import EN
from clinic.matching import MATCH_THRESHOLD, Embed, TopicMatcher
from clinic.understanding.asking import chinese_asking
from clinic.understanding.chinese_examinations import ChineseExaminationMatcher
from clinic.understanding.comparison import Compare
from clinic.understanding.examinations import ExaminationMatcher
from clinic.understanding.matcher import QuestionMatcher
from clinic.understanding.record import Kind, kind_of, record_of

Matcher = Callable[[str], str | None]
"""A question to the topic of the fact that it asks for; None where nothing on record is near enough."""
Tests = Callable[[str], Sequence[str]]
"""An order to the topics of its results; none where nothing on record answers it."""
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

    async def examine(self, test: str) -> Sequence[Answer]:
        """The results of an examination or laboratory test that the doctor ordered; one that is off the record if there
        are none.
        """
        ...


_CLAUSE = re.compile(r"[.!?;,。！？；，]+|\b(?:and|but)\b")


def clauses(text: str) -> list[str]:
    """The parts of a reply that can tell a fact each."""
    return [clause.strip() for clause in _CLAUSE.split(text) if len(clause.strip()) > 1]


def question_matcher(case: Case, embed: Embed | None = None, compare: Compare | None = None) -> Matcher:
    """Matches questions to what the patient of a case can tell, by type and meaning, for cases of no generative clinic.
    What examinations and tests found is no answer.

    Args:
        case: whose facts are asked for.
        embed: sentence embeddings, for questions in words that the lexicon does not know; given them, Chinese questions
            are compared by characters: to the bundled model all Chinese sentences are alike.
        compare: a cross-encoder beside them, for English questions.
    """
    if case.language == EN.code or embed is None:
        return QuestionMatcher(record_of(case), embed, compare=compare).match
    return QuestionMatcher(record_of(case), known=chinese_asking()).match


def test_matcher(case: Case) -> Tests:
    """Matches orders of examinations and tests to their results on record: `clinic.understanding.examinations`, in Chinese
    `clinic.understanding.chinese_examinations`.
    """
    results = [fact for fact in case.facts if kind_of(fact) == "test"]
    return (ExaminationMatcher if case.language == EN.code else ChineseExaminationMatcher)(results).match


def record_matchers(case: Case) -> dict[Kind, Tests]:
    """What questions and tests bring out of a record, as topics."""
    return {"history": _each(question_matcher(case)), "test": test_matcher(case)}


def _each(match: Matcher) -> Tests:
    def matched(text: str) -> list[str]:
        topic = match(text)
        return [] if topic is None else [topic]

    return matched


def statement_matcher(case: Case) -> Matcher:
    """Matches what was said to the facts of a case by their headings and texts."""
    return _lexical(case.facts)


def _lexical(facts: Sequence[Fact]) -> Matcher:
    return TopicMatcher({fact.topic: (fact.topic, fact.text) for fact in facts}, MATCH_THRESHOLD).match
