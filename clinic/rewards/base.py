"""What every reward preset starts from: one recorded consultation, and small readings of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clinic.actions import Kind
from clinic.cases import Case
from clinic.generative import GenerativeClinic
from clinic.matching import relation

Event = Mapping[str, Any]
Components = dict[str, float]


@dataclass(frozen=True)
class Record:
    """What a preset scores: a case and what happened to it. Made by `Scorer`, read by the presets."""

    case: Case
    events: Sequence[Event]  # one per doctor turn, at least one
    stop_reason: str
    opinion: Mapping[str, float]  # what a judge, a reward model or a person said, by criterion; empty for presets that ask nobody
    clinic: GenerativeClinic | None  # that the case was drawn from

    @property
    def diagnosis(self) -> str:
        """The diagnosis that ended the consultation; empty if none did."""
        return str(self.events[-1].get("diagnosis", ""))

    @property
    def recommendation(self) -> str:
        """The recommendation given with the diagnosis."""
        return str(self.events[-1].get("recommendation", ""))

    @property
    def verdict(self) -> str:
        """How the diagnosis relates to the case: "exact", "parent" or "other"."""
        return relation(self.case, self.diagnosis) if self.events[-1]["kind"] == Kind.DIAGNOSIS else "other"


@dataclass(frozen=True)
class Preset:
    """One reward scheme: its function, the names of its components and whose opinion it needs ("judge", "model", "human" or nobody's)."""

    score: Callable[[Any, Record], list[Components]]  # of the preset's own constants
    components: frozenset[str]
    opinion: str = ""
    criteria: tuple[str, ...] = ()  # that a judge is asked for
    single_turn: bool = False  # whether it can score the answer to a single-turn question


def missed_red_flags(case: Case, events: Sequence[Event]) -> list[str]:
    """Red flags that an urgent case has and the consultation never brought up."""
    if not case.urgent:
        return []
    told = set(case.opening) | {event.get("topic") for event in events}
    return [fact.topic for fact in case.facts if fact.present and fact.topic in case.red_flags and fact.topic not in told]
