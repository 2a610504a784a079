"""What one search costs and gives a doctor that did not ask for it: its first turn looks up the opening words, and the
rest is its own. Beside it the same consultations with "Nothing found." in place of the passages.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clinic.actions import lookup
from clinic.cases import Case, read_cases
from clinic.consultation import Consultation, Message, Reply, largest_turn_budget
from clinic.dialogues import at_once
from clinic.errors import ClinicError
from clinic.events import FoundPassage
from clinic.intervals import mean
from clinic.language import phrases
from clinic.library import Fits, Library, names_condition
from clinic.patients.scripted import ScriptedPatient
from clinic.splits import sampled
from doctor.environments import ConsultationFactory, open_factory
from doctor.parameters import Params
from doctor.scoring import right
from rl.environment import Count, EpisodeSpec
from rl.experience import StopReason, Trajectory
from rl.machine import place_of
from rl.workers.local import LocalSession

STEP = -4  # in the noise key: of nothing else


class Empty:
    """A `Library` in which nothing is found."""

    def __init__(self, count: Count) -> None:
        """Args: tokens of a text."""
        self.tokens = count

    async def search(self, query: str, results: int, fits: Fits) -> Sequence[FoundPassage]:  # noqa: ARG002  a `Library`
        """Nothing."""
        return ()


class Forced:
    """A consultation whose first turn is a search for the opening words."""

    def __init__(self, consultation: Consultation) -> None:
        """Search; outside an event loop."""
        case = consultation.case
        turn = lookup(case.self_report, phrases(case.language))
        opening = consultation.opening()
        reply = at_once(consultation.step(turn))
        self.text, self.event = reply.text or "", reply.event
        self._messages = [*opening, {"role": "assistant", "content": turn}, {"role": "user", "content": self.text}]
        self._consultation = consultation

    def opening(self) -> list[Message]:
        """All up to what was found."""
        return self._messages

    async def step(self, turn: str) -> Reply:
        """Take the doctor's turn."""
        return await self._consultation.step(turn)


def search_lines(params: Params, model: Path, cases: Path, index: Path, count: int) -> list[str]:
    """Out of tokens and accuracy on test cases of the starter clinic, with passages and without, and the difference.

    Raises:
        ClinicError: there are no such cases.
    """
    factory = open_factory(params, index, cases)
    found = [case for case in read_cases(cases / "cases.parquet", "test") if case.source == factory.clinic.name]
    if not found:
        raise ClinicError(f"no test cases of {factory.clinic.name!r} in {cases}; run python -m flows.patient_cases")
    chosen = sampled(found, count, params.patient_cases.split.salt)
    forced: dict[str, Forced] = {}
    session = LocalSession(
        str(model),
        place_of(params.machines),
        params.rollout,
        None,
        params.seed,
        seat=lambda spec, _: forced[spec.case_id],
    )
    counted = session.chat.count
    lines, rights = [], []
    for name, library in (("passages", factory.library(counted)), ("nothing found", Empty(counted))):
        forced |= {case.case_id: Forced(_seated(factory, case, library)) for case in chosen}
        played = session.rollout(_specs(params, chosen), params.decoding.evaluate.temperature)
        rights.append([float(right(case, held)) for case, held in zip(chosen, played, strict=True)])
        lines.append(_line(name, chosen, [forced[case.case_id] for case in chosen], played, rights[-1], counted))
    with_them, without = map(np.array, rights)
    less = mean(list(with_them - without), (-1.0, 1.0))
    return [*lines, f"accuracy, passages minus nothing found: {less.mean:+.3f} [{less.low:+.3f}, {less.high:+.3f}]"]


def _seated(factory: ConsultationFactory, case: Case, library: Library) -> Consultation:
    budget = largest_turn_budget(factory.rules)
    return Consultation(case, ScriptedPatient(case, factory.matcher), factory.rules, budget, library)


def _specs(params: Params, cases: Sequence[Case]) -> list[EpisodeSpec]:
    return [
        EpisodeSpec(
            case_id=case.case_id,
            group_id=case.case_id,
            sample=0,
            turn_budget=largest_turn_budget(params.consultation),
            noise=(params.seed, STEP),
            case=case,
            privileged={},
        )
        for case in cases
    ]


def _line(
    name: str,
    cases: Sequence[Case],
    forced: Sequence[Forced],
    played: Sequence[Trajectory],
    rights: Sequence[float],
    count: Count,
) -> str:
    tokens = [count(one.text) for one in forced]
    passages = [getattr(one.event, "passages", ()) for one in forced]
    named = np.mean([any(names_condition(case, p) for p in own) for case, own in zip(cases, passages, strict=True)])
    cut = np.mean([held.stop_reason == StopReason.OUT_OF_TOKENS for held in played])
    return (
        f"{name:<14} reply {np.mean(tokens):.0f} tokens, at most {max(tokens)}; {named:.1%} name the condition; "
        f"{cut:.1%} out of tokens; accuracy {np.mean(rights):.3f} on {len(cases)} cases"
    )
