"""Honest weak doctors for cases of unknown probabilities: all that they know is cases that they have seen before."""

import re
from collections.abc import Sequence

from clinic.actions import diagnosis, examination, question, without_marks
from clinic.cases import Case, Fact
from clinic.events import Event, Inquiry
from clinic.history import GENERAL_HISTORY
from clinic.language import Phrases, phrases
from clinic.matching import TopicMatcher
from clinic.understanding.record import kind_of


def name_of(case: Case) -> str:
    """The diagnosis of a case as a doctor would say it, where the record has a sentence."""
    return case.synonyms[0] if case.synonyms else case.diagnosis


def inquiry(fact: Fact, words: Phrases) -> str:
    """A turn that asks for a fact of a record by its heading, or in words where that is a code: one question, or the test
    that shows it.
    """
    heading = without_marks(fact.topic)
    if kind_of(fact) == "test":
        return examination(heading, words)
    return question(_in_words(fact, words) if _CODE.fullmatch(heading) else f"{heading}?", None, words)


_CODE = re.compile(r"\w*\d\w*")  # "E_53"
_WHETHER = {"en": "Do you have this: {}?", "zh": "{}，对吗？"}


def _in_words(fact: Fact, words: Phrases) -> str:
    """A question for what a patient once said: the recorded one, or whether this one would say so too."""
    if "?" in fact.topic or "？" in fact.topic:
        return f"{without_marks(fact.topic)}?"
    return _WHETHER[words.code].format(without_marks(fact.text))


class NearestCase:
    """An honest weak doctor for cases of unknown probabilities: it treats a patient as the one it has seen that opened
    in the most similar words, and asks for what that one had, the facts of most worth first.
    """

    def __init__(self, seen: Sequence[Case]) -> None:
        """Remember cases.

        Args:
            seen: cases it has seen before, never the ones it is to be measured on.
        """
        self._seen = {case.case_id: case for case in seen}
        self._nearest = TopicMatcher({case.case_id: (case.self_report,) for case in seen}, 0.0)

    def doctor(self, case: Case, questions: int) -> "_FollowsACase":
        """The doctor for one patient, of whom it reads the self-report alone."""
        like = self.like(case)
        told = [
            fact for fact in like.facts if fact.present and fact.topic not in like.opening and kind_of(fact) != "test"
        ]
        told.sort(key=lambda fact: -(fact.worth or 0.0))
        return _FollowsACase(told[:questions], like)

    def like(self, case: Case) -> Case:
        """The case it has seen that opened in the most similar words."""
        return self._seen[self._nearest.match(case.self_report) or next(iter(self._seen))]


class Listener:
    """An honest doctor for cases of unknown probabilities: it takes a general history and names the diagnosis of the
    case it has seen that reads most like all it heard.
    """

    def __init__(self, seen: Sequence[Case]) -> None:
        """Args: cases it has seen before, never the ones it is to be measured on."""
        self._seen = {case.case_id: case for case in seen}
        told = {case.case_id: (" ".join([case.self_report, *(fact.text for fact in case.facts)]),) for case in seen}
        self._nearest = TopicMatcher(told, 0.0)

    def doctor(self, case: Case, questions: int) -> "_TakesAHistory":
        """The doctor for one patient."""
        return _TakesAHistory(self, case, questions)

    def likeness(self, heard: str) -> Case:
        """The case that reads most like what was heard."""
        return self._seen[self._nearest.match(heard) or next(iter(self._seen))]


class _TakesAHistory:
    def __init__(self, listener: Listener, case: Case, questions: int) -> None:
        self._listener, self._heard = listener, [case.self_report]
        self._questions = iter(GENERAL_HISTORY[case.language][:questions])
        self._words = phrases(case.language)

    def turn(self) -> str:
        asked = next(self._questions, None)
        if asked is not None:
            return question(asked, None, self._words)
        like = self._listener.likeness(" ".join(self._heard))
        return diagnosis(name_of(like), like.recommendation, self._words)

    def hear(self, event: Event) -> None:
        """Take note of an answer."""
        if isinstance(event, Inquiry) and event.topic is not None:
            self._heard.append(event.reply)


class _FollowsACase:
    def __init__(self, inquiries: Sequence[Fact], like: Case) -> None:
        self._inquiries, self._like = iter(inquiries), like

    def turn(self) -> str:
        fact = next(self._inquiries, None)
        words = phrases(self._like.language)
        if fact is None:
            return diagnosis(name_of(self._like), self._like.recommendation, words)
        return question(_in_words(fact, words), None, words)

    def hear(self, event: Event) -> None:
        """It does not listen."""
