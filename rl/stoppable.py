"""Coroutines that end when the process is told to.

A handler of a signal that raises, as Prefect's does, raises in whatever Python code is running. Within an event loop that
is some task, which keeps the exception to itself while the others wait for it for ever; or a callback, after which the
loop goes on as if nothing had been.
"""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
STOPS = (signal.SIGINT, signal.SIGTERM)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`; at SIGINT or SIGTERM the coroutine is cancelled, and the signal is given again to the handler that
    was there before, outside the event loop.
    """
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(coroutine)
    handlers = {number: signal.getsignal(number) for number in STOPS}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    listener = signal.set_wakeup_fd(-1)  # an event loop takes it away
    told: list[int] = []

    async def stoppable() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # noqa: S101  this is one

        def stop(number: int) -> None:
            told.append(number)
            task.cancel()

        for number in handlers:
            loop.add_signal_handler(number, stop, number)
        try:
            return await coroutine
        finally:
            for number, handler in handlers.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    try:
        return asyncio.run(stoppable())
    finally:
        signal.set_wakeup_fd(listener)
        if told:
            signal.raise_signal(told[0])
