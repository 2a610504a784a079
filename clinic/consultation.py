"""The consultation as an environment: single-use, messages in, messages out.

It keeps the rules (grammar, turn budget, endings) and records events. It gives no reward: `clinic.rewards`
maps the recorded events to scores later, so that stored consultations can be scored again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from clinic.actions import Action, Kind, parse
from clinic.cases import Case
from clinic.config import ConsultationParams
from clinic.matching import normalise
from clinic.patient import Patient

Message = dict[str, str]
Event = dict[str, Any]
Retrieve = Callable[[str, int], Sequence[str]]
RANDOM_BUDGET = (2, 10)  # inclusive, as in DoctorAgent-RL

SHORT = "Ask the patient, then diagnose."
FULL = """You are a doctor interviewing a patient. In each turn write exactly one of:
<answer>Question: one short question to the patient?</answer>
<answer>Search: words to look up in the medical knowledge base</answer>
<answer>Test: an examination or laboratory test to order</answer>
<answer>Diagnosis: the name of the one most likely condition
Recommendation: the next step for the patient</answer>
You may think first inside <think>...</think>. Every reply ends with the number of turns you have left; the
diagnosis takes one too, and the last turn must be the diagnosis. Never repeat a question."""
INSTRUCTIONS = {"short": SHORT, "full": FULL}


@dataclass(frozen=True)
class Reply:
    """What the environment says to one doctor turn; `text` is None when the consultation is over."""

    text: str | None
    event: Event
    stop_reason: str | None


class CaseInfo(TypedDict):
    """Privileged information: what only the simulator knows."""

    diagnosis_id: str
    opening: list[str]
    present: list[str]


def draw_turn_budget(params: ConsultationParams, seed: Sequence[int]) -> int:
    """The turn budget of one group: fixed, or uniform on 2 to 10 from the seed, the same for all members."""
    if params.turn_budget != -1:
        return params.turn_budget
    low, high = RANDOM_BUDGET
    return int(np.random.default_rng(list(seed)).integers(low, high + 1))


class Consultation:
    """One doctor, one patient, one case, a budget of doctor turns."""

    def __init__(self, case: Case, patient: Patient, params: ConsultationParams, turn_budget: int, retrieve: Retrieve | None) -> None:
        """Args: the case, who plays it, the rules, the budget of this group, and the knowledge base search if there is one."""
        self._case = case
        self._patient = patient
        self._params = params
        self._left = turn_budget
        self._retrieve = retrieve
        self._asked: set[str] = set()
        self._told: set[str] = set(case.opening)
        self._over = False

    def opening(self) -> list[Message]:
        """The system and first patient message."""
        return [
            {"role": "system", "content": INSTRUCTIONS[self._params.instructions]},
            {"role": "user", "content": self._with_budget(self._case.self_report)},
        ]

    async def step(self, turn: str) -> Reply:
        """Take one doctor turn, in text, and answer it. Any text is a legal move; bad grammar costs the turn.

        Raises:
            RuntimeError: the consultation is over; nothing is revived.
        """
        if self._over:
            raise RuntimeError(f"case {self._case.case_id}: the consultation is over; start a new one")
        action = parse(turn)
        self._left -= 1
        self._over = action.kind is Kind.DIAGNOSIS or self._left <= 0
        if action.kind is Kind.DIAGNOSIS:
            event = {"kind": action.kind.value, "diagnosis": action.text, "recommendation": action.recommendation}
            return Reply(None, event, "diagnosed")
        event, text = await self._respond(action)
        if self._over:
            return Reply(None, event, "out_of_turns")
        return Reply(self._with_budget(text), event, None)

    def _with_budget(self, text: str) -> str:
        return f"{text} ({self._left} left)"

    async def _respond(self, action: Action) -> tuple[Event, str]:
        event: Event = {"kind": action.kind.value, "text": action.text}
        if action.kind is Kind.INVALID:
            return event | {"error": action.error}, f"Not understood: {action.error}."
        if action.kind is Kind.SEARCH:
            return self._search(event, action.text)
        answer = await self._patient.answer(action.text)
        repeated = normalise(action.text) in self._asked or (answer.topic is not None and answer.topic in self._told)
        self._asked.add(normalise(action.text))
        if answer.topic is not None:
            self._told.add(answer.topic)
        event |= {"topic": answer.topic, "present": answer.present, "repeated": repeated, "leaks": answer.leaks, "reply": answer.text}
        return event, answer.text

    def _search(self, event: Event, query: str) -> tuple[Event, str]:
        if self._retrieve is None:
            return event | {"hits": 0}, "There is no knowledge base here."
        passages = list(self._retrieve(query, self._params.search_results))
        return event | {"hits": len(passages)}, "\n".join(passages) or "Nothing found."


def privileged(case: Case) -> CaseInfo:
    """What only the simulator knows about a case, kept beside its trajectories for teachers that may see it."""
    return {"diagnosis_id": case.diagnosis_id, "opening": list(case.opening), "present": [f.topic for f in case.facts if f.present]}
