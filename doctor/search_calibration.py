"""What searching costs and gives a doctor: one search that it did not ask for, of the opening words in its first turn;
and those that it makes of its own. Beside both the same consultations with "Nothing found." in place of the passages.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import numpy as np

from clinic.cases import Case, read_cases
from clinic.consultation import Consultation, largest_turn_budget
from clinic.errors import ClinicError
from clinic.events import FoundPassage, Searched, read_events
from clinic.intervals import difference, mean
from clinic.library import Fits, Library, names_condition
from clinic.openings import SearchedConsultation, opening_query
from clinic.patients.scripted import ScriptedPatient
from clinic.splits import sampled
from doctor.environments import ConsultationFactory, open_factory
from doctor.parameters import Params
from doctor.scoring import right
from rl.environment import Count, Environment, EpisodeSpec
from rl.experience import StopReason, Trajectory
from rl.machine import place_of
from rl.workers.local import LocalSession

S = TypeVar("S", bound=Consultation)
STEP = -4  # in the noise key: of nothing else


class Empty:
    """A `Library` in which nothing is found."""

    def __init__(self, count: Count) -> None:
        """Args: tokens of a text."""
        self.tokens = count

    async def search(self, query: str, results: int, fits: Fits) -> Sequence[FoundPassage]:  # noqa: ARG002  a `Library`
        """Nothing."""
        return ()


def search_lines(params: Params, model: Path, cases: Path, index: Path, count: int) -> list[str]:
    """Out of tokens and accuracy on test cases of the starter clinic, with passages and without, and the difference.

    Raises:
        ClinicError: there are no such cases, or no turn after a search.
    """
    if largest_turn_budget(params.consultation) < 2:
        raise ClinicError(
            "params.yaml: consultation.turn_budget is 1: a search would take the only turn; set it to 2 or more"
        )
    factory, chosen = _opened(params, cases, index, count)
    lines, rights = [], []
    factory.shelf.find_beforehand([opening_query(case) for case in chosen])
    both = _with_and_without(params, model, factory, chosen, SearchedConsultation)
    for name, (seats, played, counted) in zip(("passages", "nothing found"), both, strict=True):
        rights.append([float(right(case, held)) for case, held in zip(chosen, played, strict=True)])
        lines.append(_line(name, chosen, seats, played, rights[-1], counted))
    with_them, without = map(np.array, rights)
    less = mean(list(with_them - without), (-1.0, 1.0))
    return [*lines, f"accuracy, passages minus nothing found: {less.mean:+.3f} [{less.low:+.3f}, {less.high:+.3f}]"]


def own_search_lines(params: Params, model: Path, cases: Path, index: Path, count: int) -> list[str]:
    """What a doctor's own searches find on test cases of the starter clinic, and its accuracy with and without it; those
    whose condition only the library knows apart.

    Raises:
        ClinicError: there are no such cases.
    """
    factory, chosen = _opened(params, cases, index, count)
    played = [held for _, held, _ in _with_and_without(params, model, factory, chosen, Consultation)]
    known = {condition.condition_id for condition in factory.clinic.common.conditions}
    trios = list(zip(chosen, *played, strict=True))
    learned = [trio for trio in trios if trio[0].diagnosis_id in known]
    alone = [trio for trio in trios if trio[0].diagnosis_id not in known]
    return [*_own_lines("of conditions that it learned", learned), *_own_lines("that only the library knows", alone)]


def _own_lines(name: str, trios: Sequence[tuple[Case, Trajectory, Trajectory]]) -> list[str]:
    if not trios:
        return []
    searches = [[one for one in read_events(with_it.events) if isinstance(one, Searched)] for _, with_it, _ in trios]
    shown = [
        any(names_condition(case, passage) for search in own for passage in search.passages)
        for (case, *_), own in zip(trios, searches, strict=True)
        if own
    ]
    rights = [(right(case, with_it), right(case, without)) for case, with_it, without in trios]
    ours, theirs = np.mean(rights, axis=0)
    gain = difference(rights.count((True, False)), rights.count((False, True)), len(rights))
    return [
        f"{len(trios)} cases {name}: {np.mean([len(own) for own in searches]):.2f} searches each"
        + (f", {np.mean(shown):.1%} of those who search are shown its name" if shown else ""),
        f"  accuracy {ours:.3f}, with nothing found {theirs:.3f}, difference {gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]",
    ]


def _with_and_without(
    params: Params, model: Path, factory: ConsultationFactory, cases: Sequence[Case], opened: type[S]
) -> Iterator[tuple[list[S], Sequence[Trajectory], Count]]:
    """Seats and consultations of the cases with the library, then with one in which nothing is found."""
    seated: dict[str, S] = {}
    with closing(_session(params, model, seated)) as session:
        for library in (factory.library(session.chat.count), Empty(session.chat.count)):
            seated |= {case.case_id: _seated(factory, case, library, opened) for case in cases}
            played = session.rollout(_specs(params, cases), params.decoding.evaluate.temperature)
            yield list(seated.values()), played, session.chat.count


def _session(params: Params, model: Path, seated: Mapping[str, Environment]) -> LocalSession:
    return LocalSession(
        str(model),
        place_of(params.machines),
        params.rollout,
        None,
        params.seed,
        seat=lambda spec, _: seated[spec.case_id],
    )


def _opened(params: Params, cases: Path, index: Path, count: int) -> tuple[ConsultationFactory, list[Case]]:
    factory = open_factory(params, index, cases)
    found = [case for case in read_cases(cases / "cases.parquet", "test") if case.source == factory.clinic.name]
    if not found:
        raise ClinicError(f"no test cases of {factory.clinic.name!r} in {cases}; run python -m flows.patient_cases")
    return factory, sampled(found, count, params.patient_cases.split.salt)


def _seated(factory: ConsultationFactory, case: Case, library: Library, opened: type[S]) -> S:
    budget = largest_turn_budget(factory.rules)
    seat = opened(case, ScriptedPatient(case, factory.matcher), factory.rules, budget, library)
    seat.opening()  # outside the event loop, where whatever is not remembered can be looked up
    return seat


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
    seats: Sequence[SearchedConsultation],
    played: Sequence[Trajectory],
    rights: Sequence[float],
    count: Count,
) -> str:
    found = [seat.found for seat in seats if seat.found is not None]
    tokens = [count(reply.text or "") for reply in found]
    passages = [getattr(reply.event, "passages", ()) for reply in found]
    named = np.mean([any(names_condition(case, p) for p in own) for case, own in zip(cases, passages, strict=True)])
    cut = np.mean([held.stop_reason == StopReason.OUT_OF_TOKENS for held in played])
    return (
        f"{name:<14} reply {np.mean(tokens):.0f} tokens, at most {max(tokens)}; {named:.1%} name the condition; "
        f"{cut:.1%} out of tokens; accuracy {np.mean(rights):.3f} on {len(cases)} cases"
    )
