"""The consultation as an environment: single-use, messages in, messages out.

It keeps the rules (grammar, turn budget, endings) and records events. It gives no reward: `clinic.rewards`
maps the recorded events to scores later, so that stored consultations can be scored again.
"""

from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, TypeVar

import numpy as np

from clinic.actions import Action, Kind, parse, questions_in
from clinic.cases import Case
from clinic.config import ConsultationParams
from clinic.events import Asked, Diagnosed, Ending, Event, Examined, FoundPassage, Invalid, Searched
from clinic.language import phrases
from clinic.leaks import LeakFilter
from clinic.library import Library
from clinic.matching import normalise
from clinic.patients.base import Answer, Patient

Message = dict[str, str]
T = TypeVar("T")
RANDOM_BUDGET = (2, 10)  # inclusive, as in DoctorAgent-RL


@dataclass(frozen=True)
class Reply:
    """What the environment says to one doctor turn; `text` is None when the consultation is over."""

    text: str | None
    event: Event
    stop_reason: Ending | None


CHARTS = ("facts", "facts_and_diagnosis")


class CaseInfo(TypedDict):
    """Privileged information: what only the simulator knows."""

    diagnosis_id: str
    opening: list[str]
    present: list[str]
    chart: dict[str, str]  # texts for teachers that read one, by `CHARTS`


def draw_turn_budget(params: ConsultationParams, seed: Sequence[int]) -> int:
    """The turn budget of one group: fixed, or uniform on 2 to 10 from the seed, the same for all members."""
    if params.turn_budget != -1:
        return params.turn_budget
    low, high = RANDOM_BUDGET
    return int(np.random.default_rng(list(seed)).integers(low, high + 1))


def largest_turn_budget(params: ConsultationParams) -> int:
    """The turn budget, or the largest of random ones: what evaluations and attacks play with."""
    return params.turn_budget if params.turn_budget != -1 else RANDOM_BUDGET[1]


def self_report(case: Case) -> str:
    """What the patient says first; one that names the diagnosis is heard without it."""
    return LeakFilter(case).clean(case.self_report)[0]


def at_once(step: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits (the scripted patient's) without an event loop."""
    try:
        step.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # StopIteration.value is untyped
    raise RuntimeError("a scripted patient must answer without waiting")


class Consultation:
    """One doctor, one patient, one case, a budget of doctor turns."""

    def __init__(
        self,
        case: Case,
        patient: Patient,
        params: ConsultationParams,
        turn_budget: int,
        library: Library | None,
        others: Collection[str] = (),
    ) -> None:
        """Seat a patient.

        Args:
            case: the patient's record.
            patient: who plays it.
            params: the rules.
            turn_budget: doctor turns, the diagnosis included; the same for all of a group.
            library: the knowledge base, if there is one.
            others: names of other diseases, which the patient may not echo.
        """
        self.case = case
        self._words = phrases(case.language)
        self._filter = LeakFilter(case, others)
        self._patient = patient
        self.params = params
        self.left = turn_budget
        self._library = library
        self._asked: set[str] = set()
        self._searched: set[str] = set()
        self._told: set[str] = set(case.opening)
        self._over = False

    def opening(self) -> list[Message]:
        """The system and first patient message."""
        return [
            {"role": "system", "content": self._words.instructions[self.params.instructions]},
            {"role": "user", "content": self._with_budget(self_report(self.case))},
        ]

    async def step(self, turn: str) -> Reply:
        """Take one doctor turn, in text, and answer it. Any text is a legal move; bad grammar costs the turn.

        Raises:
            RuntimeError: the consultation is over; nothing is revived.
        """
        if self._over:
            raise RuntimeError(f"case {self.case.case_id}: the consultation is over; start a new one")
        action = parse(turn, self._words, self.params.max_questions)
        self.left -= 1
        if action.kind is Kind.DIAGNOSIS:
            self._over = True
            return Reply(None, Diagnosed(action.text, action.recommendation, action.evidence), Ending.DIAGNOSED)
        event, text = await self._respond(action)
        self._over = self.left <= 0
        if self._over:
            return Reply(None, event, Ending.OUT_OF_TURNS)
        return Reply(self._with_budget(text), event, None)

    def _with_budget(self, text: str) -> str:
        return self._words.turns_left.format(text, self.left)

    async def _respond(self, action: Action) -> tuple[Event, str]:
        if action.kind is Kind.INVALID:
            return Invalid(action.text, action.error), self._words.not_understood.format(action.error)
        if action.kind is Kind.SEARCH:
            return await self._search(action.text)
        if action.kind is Kind.TEST:
            found = await self._patient.examine(action.text)
            new = [answer for answer in found if answer.topic not in self._told] or found[:1]
            again = self._was_asked(action.text)
            return _as_one([Examined(**self._note(action.text, answer, again)) for answer in new])
        questions = questions_in(action.text) if self.params.max_questions > 1 else []
        heard = questions[: min(self.params.max_questions, self.left + 1)] or [action.text]
        self.left -= len(heard) - 1  # each counts as a turn
        return _as_one(
            [Asked(**self._note(text, await self._patient.answer(text), self._was_asked(text))) for text in heard]
        )

    def _was_asked(self, text: str) -> bool:
        return normalise(text) in self._asked

    def _note(self, asked: str, answer: Answer, again: bool) -> dict[str, Any]:
        """What is recorded of a question or test, asked for the first time or again, and of its answer as the doctor hears it."""
        text, leaks = self._filter.clean(answer.text, asked)
        repeated = again or (answer.topic is not None and answer.topic in self._told)
        if not answer.withheld:
            self._asked.add(normalise(asked))
        if answer.topic is not None:
            self._told.add(answer.topic)
        return {
            "text": asked,
            "withheld": answer.withheld,
            "topic": answer.topic,
            "present": answer.present,
            "repeated": repeated,
            "leaks": leaks,
            "reply": text,
        }

    async def _search(self, query: str) -> tuple[Event, str]:
        repeated = normalise(query) in self._searched
        self._searched.add(normalise(query))
        if self._library is None:
            return Searched(query, repeated=repeated), self._words.no_library
        tokens, most = self._library.tokens, self.params.search_tokens
        found = await self._library.search(
            query,
            self.params.search_results,
            lambda passages: tokens(self._with_budget(self._passages(passages))) <= most,
        )
        return Searched(query, tuple(found), repeated), self._passages(found)

    def _passages(self, found: Sequence[FoundPassage]) -> str:
        """Passages as the doctor reads them: labelled, and set off from what the consultation itself says."""
        return self._words.library.format("\n".join(one.shown for one in found)) if found else self._words.nothing_found


def _as_one(several: Sequence[Asked] | Sequence[Examined]) -> tuple[Event, str]:
    """The event of a turn that asked several questions, or whose test brought several results, and what was said."""
    first, *further = several
    return replace(first, further=tuple(further)), " ".join(one.reply for one in several)


def privileged(case: Case) -> CaseInfo:
    """What only the simulator knows about a case, kept beside its trajectories for teachers that may see it."""
    words = phrases(case.language)
    told = words.list_comma.join(fact.text for fact in case.facts if fact.present)
    facts = words.chart.format(LeakFilter(case).clean(told)[0])
    return {
        "diagnosis_id": case.diagnosis_id,
        "opening": list(case.opening),
        "present": [f.topic for f in case.facts if f.present],
        "chart": {"facts": facts, "facts_and_diagnosis": f"{facts} {words.diagnosis}{case.diagnosis}"},
    }
