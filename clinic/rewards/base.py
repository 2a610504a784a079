"""What every reward preset starts from: one recorded consultation, and small readings of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clinic.cases import Case
from clinic.diagnoses import relation
from clinic.events import Event, Searched, final_diagnosis, told_topics
from clinic.generative import GenerativeClinic
from clinic.library import names_condition

Components = dict[str, float]


@dataclass(frozen=True)
class Record:
    """What a preset scores: a case and what happened to it. Made by `Scorer`, read by the presets."""

    case: Case
    events: Sequence[Event]  # one per doctor turn, at least one
    stop_reason: str  # an `Ending`, or the rollout's own
    # what a judge, a reward model or a person said, by criterion; empty for presets that ask nobody
    opinion: Mapping[str, float]
    clinic: GenerativeClinic | None  # that the case was drawn from

    @property
    def diagnosis(self) -> str:
        """The diagnosis that ended the consultation; empty if none did."""
        return last.diagnosis if (last := final_diagnosis(self.events)) else ""

    @property
    def recommendation(self) -> str:
        """The recommendation given with the diagnosis."""
        return last.recommendation if (last := final_diagnosis(self.events)) else ""

    @property
    def evidence(self) -> float:
        """Share of the cited passages that the doctor was shown and that name the condition; 0 where none is cited."""
        last = final_diagnosis(self.events)
        if last is None or not last.evidence:
            return 0.0
        shown = [one for event in self.events if isinstance(event, Searched) for one in event.passages]
        good = {one.passage_id for one in shown if names_condition(self.case, one)}
        return len(good.intersection(last.evidence)) / len(set(last.evidence))

    @property
    def verdict(self) -> str:
        """How the diagnosis relates to the case: "exact", "parent" or "other"."""
        return relation(self.case, self.diagnosis) if final_diagnosis(self.events) else "other"


@dataclass(frozen=True)
class Preset:
    """One reward scheme: its function, the names of its components and whose opinion it needs ("judge", "model",
    "human" or nobody's).
    """

    score: Callable[[Any, Record], list[Components]]  # of the preset's own constants
    components: frozenset[str]
    opinion: str = ""
    criteria: tuple[str, ...] = ()  # that a judge is asked for
    single_turn: bool = False  # whether it can score the answer to a single-turn question


def missed_red_flags(case: Case, events: Sequence[Event]) -> list[str]:
    """Red flags that an urgent case has and the consultation never brought up."""
    if not case.urgent:
        return []
    told = set(case.opening) | told_topics(events)
    return [
        fact.topic for fact in case.facts if fact.present and fact.topic in case.red_flags and fact.topic not in told
    ]
