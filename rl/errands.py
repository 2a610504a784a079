"""Short work of environments off the event loop, after which the next forward waits.

Who is in which forward of an engine must depend on no clock, or a run would not give the same bits again. So an engine
lets its environments come back before it goes on: those that answer without waiting, and those that are on an errand. An
environment that waits for another machine is on none.
"""

import asyncio
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from rl.engines.worker_thread import Lane

P = ParamSpec("P")
R = TypeVar("R")
STEPS = 4  # of the event loop from a finished turn to the request for the next
_under_way: WeakKeyDictionary[asyncio.AbstractEventLoop, set[asyncio.Future[Any]]] = WeakKeyDictionary()


async def errand(lane: Lane, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run it in the lane's thread while the event loop serves others, but no engine goes on."""
    future = asyncio.wrap_future(lane.submit(call, *args, **kwargs))
    together = _under_way.setdefault(asyncio.get_running_loop(), set())
    together.add(future)
    try:
        return await future
    finally:
        together.discard(future)


async def back_from_errands() -> None:
    """Let what environments were told reach them, and their answers come back."""
    while True:
        for _ in range(STEPS):
            await asyncio.sleep(0)
        if not (under_way := _under_way.get(asyncio.get_running_loop())):
            return
        await asyncio.wait(under_way)
