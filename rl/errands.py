"""Short work of environments off the event loop, after which the next forward waits.

Who is in which forward of an engine must depend on no clock, or a run would not give the same bits again. So an engine
lets its environments come back before it goes on: those that answer without waiting, and those that are on an errand. An
environment that waits for another machine is on none.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from rl.engines.worker_thread import Lane

P = ParamSpec("P")
R = TypeVar("R")
STEPS = 4  # of the event loop from a finished turn to the request for the next


@dataclass
class _Errands:
    """Those of one event loop."""

    under_way: set[asyncio.Future[Any]] = field(default_factory=set)
    done: int = 0  # ever


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Errands] = WeakKeyDictionary()


def _errands() -> _Errands:
    return _of_loop.setdefault(asyncio.get_running_loop(), _Errands())


async def errand(lane: Lane, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run it in the lane's thread while the event loop serves others, but no engine goes on."""
    future = asyncio.wrap_future(lane.submit(call, *args, **kwargs))
    errands = _errands()
    errands.under_way.add(future)
    try:
        return await future
    finally:
        errands.under_way.discard(future)
        errands.done += 1


async def back_from_errands() -> None:
    """Let what environments were told reach them, and their answers come back."""
    errands, done = _errands(), -1
    while errands.under_way or errands.done != done:  # what ended a moment ago is still on its way back
        done = errands.done
        if errands.under_way:
            await asyncio.wait(errands.under_way)
        for _ in range(STEPS):
            await asyncio.sleep(0)
