"""What an environment is to the school: messages in, messages out, one episode and then thrown away."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

Message = dict[str, str]


class Event(Protocol):
    """What happened in one turn. The school keeps it as JSON and never looks inside; who made it scores it later."""

    def to_json(self) -> dict[str, Any]:
        """The event as JSON values."""
        ...


class EnvironmentReply(Protocol):
    """What comes back from one turn."""

    @property
    def text(self) -> str | None:
        """The next message to the policy; None when the episode is over."""
        ...

    @property
    def event(self) -> Event:
        """What happened."""
        ...

    @property
    def stop_reason(self) -> str | None:
        """Why the episode is over; None while it goes on."""
        ...


class Environment(Protocol):
    """One episode. Never sees tokens, gives no reward."""

    def opening(self) -> list[Message]:
        """The messages before the policy's first turn."""
        ...

    async def step(self, turn: str) -> EnvironmentReply:
        """Take the policy's turn. Any text is a legal move."""
        ...


@dataclass(frozen=True, kw_only=True)
class EpisodeSpec:
    """One episode to play: plain data, so that it can be sent to another process."""

    case_id: str
    group_id: str
    sample: int
    turn_budget: int
    noise: tuple[object, ...]  # (run seed, step), joined with case, sample and turn
    case: Any  # what the environment is made of; the school never looks inside
    privileged: dict[str, Any]
    opened: Any = ""  # how the environment is to begin; the school never looks inside


Count = Callable[[str], int]
"""Tokens of a text, as the policy reads it."""
Seat = Callable[[EpisodeSpec, Count], Environment]
"""Makes the environment of an episode for the policy that plays it. Belongs to the process that plays; never sent."""
