"""What an environment is to the school: messages in, messages out, one episode and then thrown away."""

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
