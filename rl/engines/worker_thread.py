"""One thread that runs calls in order, so that whoever waits for one can stop waiting.

A call that is stuck in native code cannot be interrupted: after a time-out its thread lives on, and what it works on
must not be used again.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_Calls = SimpleQueue[Callable[[], None] | None]


class Lane:
    """A daemon thread; it ends when the lane is forgotten."""

    def __init__(self) -> None:
        """Start the thread."""
        self._calls: _Calls = SimpleQueue()
        threading.Thread(target=_serve, args=(self._calls,), name="engine", daemon=True).start()
        weakref.finalize(self, self._calls.put, None)

    def submit(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run it after what was submitted before."""
        future: Future[R] = Future()
        future.set_running_or_notify_cancel()  # from here on it cannot be cancelled: calls are never left out

        def run() -> None:
            try:
                future.set_result(call(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  handed to whoever waits
                future.set_exception(error)

        self._calls.put(run)
        return future

    def wait(self, timeout_s: float, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it and wait.

        Raises:
            TimeoutError: it takes longer; it runs on.
        """
        return self.submit(call, *args, **kwargs).result(timeout_s)

    async def run(self, timeout_s: float, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """As `wait`, while the event loop serves others."""
        return await asyncio.wait_for(asyncio.wrap_future(self.submit(call, *args, **kwargs)), timeout_s)


def _serve(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        call()
        del call
