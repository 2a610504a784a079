"""What a consultation records: one event per doctor turn, and how it ended.

`Consultation.step` and `SingleTurn.step` make events; rewards, metrics, doctors, traces and pages read them. They are
stored as JSON: `to_json` and `event_from_json` are the only places that know its keys.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, Self

from clinic.actions import Kind
from clinic.errors import ClinicError


class Ending(StrEnum):
    """Why a consultation is over; what a rollout's own limits cut ends with a reason of the rollout's."""

    DIAGNOSED = "diagnosed"
    OUT_OF_TURNS = "out_of_turns"
    ANSWERED = "answered"  # a single-turn question


@dataclass(frozen=True)
class Event:
    """What came of one doctor turn."""

    kind: ClassVar[str]  # as it is stored

    def to_json(self) -> dict[str, Any]:
        """The event as JSON values."""
        return {"kind": self.kind, **vars(self)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """The event again; what its class has a default for may be missing."""
        return cls(**{name: stored[name] for name in cls._names() if name in stored})

    @classmethod
    @cache
    def _names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))


@dataclass(frozen=True, kw_only=True)
class Inquiry(Event):
    """A question or a test, and what the patient said to it."""

    text: str
    withheld: bool = False  # the patient would not say
    topic: str | None  # of the fact it told; None: off the record, or withheld
    present: bool | None  # whether the patient has what it told
    repeated: bool  # asked before, or told already
    leaks: int = 0  # how often the filter took the diagnosis out of the reply
    reply: str = ""  # as the doctor heard it
    further: tuple[Self, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As JSON values; `withheld` and `further` only where there is something to them."""
        stored = super().to_json() | {"further": [one.to_json() for one in self.further]}
        return {name: value for name, value in stored.items() if value or name not in ("withheld", "further")}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """The question or test again."""
        return super().from_json({**stored, "further": tuple(cls.from_json(one) for one in stored.get("further", ()))})


class Asked(Inquiry):
    """A question to the patient; `further` are the other questions of the same turn."""

    kind = Kind.QUESTION.value


class Examined(Inquiry):
    """An examination or laboratory test; `further` are the other results that the same order brought."""

    kind = Kind.TEST.value


@dataclass(frozen=True, kw_only=True)
class FoundPassage:
    """A passage of the knowledge base that a search found."""

    passage_id: str
    title: str
    section: str = ""
    text: str  # as it was shown: of the passage what fitted, or nothing
    source: str
    licence: str
    score: float

    @property
    def shown(self) -> str:
        """The line that the doctor reads."""
        section = f", {self.section}" if self.section not in ("", self.title) else ""
        return f"[{self.passage_id}] {self.title}{section}" + (f": {self.text}" if self.text else "")


@dataclass(frozen=True)
class Searched(Event):
    """A search of the knowledge base, and what it found, best first."""

    kind = Kind.SEARCH.value
    text: str
    passages: tuple[FoundPassage, ...] = ()
    repeated: bool = False  # looked up before

    def to_json(self) -> dict[str, Any]:
        """As JSON values, with the number of passages; `repeated` only where it is so."""
        return {
            "kind": self.kind,
            "text": self.text,
            "hits": len(self.passages),
            "passages": [dict(vars(passage)) for passage in self.passages],
            **({"repeated": True} if self.repeated else {}),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """The search again; without passages where only their number was stored."""
        passages = tuple(FoundPassage(**passage) for passage in stored.get("passages", ()))
        return cls(stored["text"], passages, stored.get("repeated", False))


@dataclass(frozen=True)
class Diagnosed(Event):
    """The diagnosis that ends a consultation."""

    kind = Kind.DIAGNOSIS.value
    diagnosis: str
    recommendation: str = ""
    evidence: tuple[str, ...] = ()  # ids of passages that were cited

    def to_json(self) -> dict[str, Any]:
        """As JSON values; `evidence` only where some was cited."""
        stored = super().to_json() | {"evidence": list(self.evidence)}
        if not self.evidence:
            del stored["evidence"]
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """The diagnosis again."""
        return super().from_json({**stored, "evidence": tuple(stored.get("evidence", ()))})


@dataclass(frozen=True)
class Invalid(Event):
    """A turn outside the grammar."""

    kind = Kind.INVALID.value
    text: str
    error: str


@dataclass(frozen=True)
class Answered(Event):
    """The answer to a single-turn question."""

    kind = "answer"
    text: str


_BY_KIND: Mapping[str, type[Event]] = {
    event.kind: event for event in (Asked, Examined, Searched, Diagnosed, Invalid, Answered)
}


def event_from_json(stored: Mapping[str, Any]) -> Event:
    """Read what `to_json` wrote.

    Raises:
        ClinicError: it is no event of a consultation.
    """
    try:
        return _BY_KIND[stored["kind"]].from_json(stored)
    except (KeyError, TypeError) as error:
        raise ClinicError(
            f"not an event of a consultation ({error}): {stored!r}; was it recorded with other environments?"
        ) from error


def read_events(stored: Iterable[Mapping[str, Any]]) -> list[Event]:
    """The events of one stored consultation."""
    return [event_from_json(one) for one in stored]


def one_by_one(events: Iterable[Event]) -> Iterator[Event]:
    """The events, with the further questions and results of a turn as events of their own."""
    for event in events:
        yield event
        if isinstance(event, Inquiry):
            yield from event.further


def inquiries(event: Event) -> list[Inquiry]:
    """What a turn asked for: each of its questions; or its test, once whatever it brought."""
    if isinstance(event, Asked):
        return [event, *event.further]
    return [event] if isinstance(event, Inquiry) else []


def final_diagnosis(events: Sequence[Event]) -> Diagnosed | None:
    """The diagnosis that ended a consultation; None if none did."""
    return events[-1] if events and isinstance(events[-1], Diagnosed) else None


def speakers(messages: Sequence[Mapping[str, str]], events: Sequence[Event], turns: int | None = None) -> list[str]:
    """Who says each message: the system, the doctor, the patient, or the library that was searched.

    Args:
        messages: of one consultation, from its opening on, by role.
        events: one for each turn of the doctor; of a turn that came to nothing there is none.
        turns: that the doctor took; None: all that were. What was said in its name before, in the opening, was a search.
    """
    said: list[str] = []
    before = sum(message["role"] == "assistant" for message in messages) - turns if turns is not None else 0
    searches = iter([*[True] * before, *(isinstance(event, Searched) for event in events)])
    searched = False
    for message in messages:
        if message["role"] == "assistant":
            searched = next(searches, False)
            said.append("doctor")
        elif message["role"] == "user":
            said.append("library" if searched else "patient")
        else:
            said.append(message["role"])
    return said


def told_topics(events: Iterable[Event]) -> set[str]:
    """Topics of the facts that questions and tests brought up, present or not."""
    return {event.topic for event in one_by_one(events) if isinstance(event, Inquiry) and event.topic is not None}


def leaks_of(events: Iterable[Event]) -> int:
    """How often the filter had to take the diagnosis out of what the patient said."""
    return sum(event.leaks for event in one_by_one(events) if isinstance(event, Inquiry))
