"""Workers of one role, asked together or one by one; where they live is known only to who opens them."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rl.errors import TrainingError

Opener = Callable[..., Any]
"""Makes a worker, given which it is, how many there are, and where they meet (None: nowhere)."""


class WorkerLostError(TrainingError):
    """A worker died, or did not answer in time."""

    def __init__(self, message: str, worker: int) -> None:
        """Which of its group, and what to tell."""
        super().__init__(message)
        self.worker = worker


class Pending(Protocol):
    """What a worker has been asked for."""

    def result(self) -> Any:
        """What it gives; waits for it.

        Raises:
            WorkerLostError: it died, or took longer than it may; the message names the worker and what it was doing.
            TrainingError: it failed.
        """
        ...

    def waited(self, seconds: float) -> bool:
        """Whether `result` has no need to wait any more, within so many seconds."""
        ...


class WorkerGroup(Protocol):
    """Workers of one role. An argument is sent to all alike; what `keep` gave reaches a worker as the value itself."""

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def start(self, worker: int, method: str, *arguments: Any) -> Pending:
        """Ask one of them, and go on; each does one thing after the other."""
        ...

    def look(self, method: str) -> list[Any]:
        """What a method without arguments gives of each at once, whatever it is busy with; None of who does not say."""
        ...

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """Ask all of them the same; what each gives.

        Raises: as `Pending.result`; for the first that is lost, whatever the others wait for.
        """
        ...

    def keep(self, method: str, *arguments: Any) -> Any:
        """Ask all of them the same, and have what the first gives as something to send on, without bringing it here.

        Raises: as `call`.
        """
        ...

    def revive(self, worker: int) -> None:
        """A fresh worker in the place of one that is lost."""
        ...

    def close(self) -> None:
        """End them."""
        ...


class LocalGroup:
    """Workers in this process, which do what they are asked at once. They share its fate: none is ever lost, and none
    is waited for.
    """

    def __init__(self, size: int, opener: Opener) -> None:
        """Open them, one after the other."""
        self._opener = opener
        self.workers = [opener(worker, size, None) for worker in range(size)]

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.workers)

    def start(self, worker: int, method: str, *arguments: Any) -> Pending:
        """Done when this returns."""
        return _Done(getattr(self.workers[worker], method)(*arguments))

    def look(self, method: str) -> list[Any]:
        """All are idle."""
        return self.call(method)

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """Ask one after the other."""
        return [self.start(worker, method, *arguments).result() for worker in range(self.size)]

    def keep(self, method: str, *arguments: Any) -> Any:
        """What the first gives."""
        return self.call(method, *arguments)[0]

    def revive(self, worker: int) -> None:
        """A fresh one."""
        self.workers[worker] = self._opener(worker, self.size, None)

    def close(self) -> None:
        """Let go of them."""
        self.workers = []


class _Done:
    def __init__(self, found: Any) -> None:
        self._found = found

    def result(self) -> Any:
        return self._found

    def waited(self, seconds: float) -> bool:  # noqa: ARG002  it is done
        return True


def dealt_by_group(groups: Sequence[str], hands: int) -> list[list[int]]:
    """Who plays which episodes: whole groups, in the order in which they appear, one hand after the other.

    A function of the list alone, so that a share can be played again.

    Args:
        groups: of each episode, its group's id.
        hands: how many there are.

    Returns:
        Places in the list, for each hand.
    """
    number = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    dealt: list[list[int]] = [[] for _ in range(hands)]
    for place, group in enumerate(groups):
        dealt[number[group] % hands].append(place)
    return dealt
