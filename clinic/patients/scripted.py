"""The scripted patient: answers from the facts by meaning, deterministically; restates the finding, as people do.

A persona (`clinic.cases.PERSONAS`) changes how it words an answer and how willingly it gives one, never what it says:

    plain      answers and restates the finding
    terse      yes or no, where the finding needs no restating
    talkative  wraps the answer in more words
    worried    asks back whether it is serious
    reluctant  does not answer every second topic at the first asking
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from clinic.cases import Case
from clinic.language import phrases
from clinic.matching import Embed
from clinic.patients.base import Answer, Matcher, Tests, question_matcher, test_matcher
from clinic.understanding.comparison import Compare
from clinic.understanding.examinations import named_result


class ScriptedPatient:
    """Plays one case by the record."""

    def __init__(
        self, case: Case, matcher: Matcher | None, embed: Embed | None = None, compare: Compare | None = None
    ) -> None:
        """Args: the case; a matcher of questions to its topics, or None to match against the record, with sentence
        embeddings if they are given, and a cross-encoder beside them.

        Without a matcher the topics are headings of a record, not findings, so a fact is told as it stands:
        "Yes, denies fever" would turn it round.
        """
        self._case = case
        self._words = phrases(case.language)
        self._as_it_stands = matcher is None
        self._facts = {fact.topic: fact for fact in case.facts}
        self._match = matcher or question_matcher(case, embed, compare)
        self._asked_before: set[str] = set()

    @cached_property
    def _match_test(self) -> Tests:
        """Made when a test is first ordered: it reads what every fact is, in every consultation anew."""
        return test_matcher(self._case)

    async def answer(self, question: str) -> Answer:
        """Yes or no with the fact in this patient's words (the words alone without a matcher), or "I don't know"."""
        answer = self._on_record(self._match(question))
        if answer.topic is None:
            return answer
        if (
            self._case.persona == "reluctant"
            and answer.topic not in self._asked_before
            and _coin(self._case.case_id, answer.topic)
        ):
            self._asked_before.add(answer.topic)
            return Answer(self._words.withheld, None, None, withheld=True)
        return Answer(self._worded(answer.text, answer.present), answer.topic, answer.present)

    async def examine(self, test: str) -> Sequence[Answer]:
        """The results on record, plainly, several under their names; of a record without vocabulary only what examinations
        and tests found.

        In a generative clinic, where a finding can be both asked and examined for, the persona holds for both: no test
        is a way round it.
        """
        if not self._as_it_stands:
            return [await self.answer(test)]
        topics = self._match_test(test)
        found = [self._on_record(topic) for topic in topics] or [self._on_record(None)]
        if len(found) == 1:
            return found
        return [replace(one, text=named_result(topic, one.text)) for topic, one in zip(topics, found, strict=True)]

    def _on_record(self, topic: str | None) -> Answer:
        fact = self._facts.get(topic) if topic is not None else None
        if fact is None:
            return Answer(self._words.unknown, None, None)
        said = (
            fact.text if self._as_it_stands else (self._words.yes if fact.present else self._words.no).format(fact.text)
        )
        return Answer(said, fact.topic, fact.present)

    def _worded(self, said: str, present: bool | None) -> str:
        match self._case.persona:
            case "terse" if not self._as_it_stands:
                return self._words.bare_yes if present else self._words.bare_no
            case "talkative":
                return self._words.rambling.format(said)
            case "worried":
                return self._words.worried.format(said)
        return said


def _coin(*parts: str) -> bool:
    """A fixed fair coin for these words."""
    return hashlib.sha256("\x1f".join(parts).encode()).digest()[0] % 2 == 0
