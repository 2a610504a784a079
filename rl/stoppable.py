"""Coroutines that end when the process is told to.

A handler of SIGTERM that raises, as Prefect's does, raises in whatever Python code is running. Within an event loop that
is some task, which keeps the exception to itself while the others wait for it for ever; or a callback, after which the
loop goes on as if nothing had been.
"""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`; at SIGTERM the coroutine is cancelled, and the signal is given again to the handler that was
    there before, outside the event loop.
    """
    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or before in (None, signal.SIG_DFL, signal.SIG_IGN):
        return asyncio.run(coroutine)
    told = False

    async def stoppable() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # noqa: S101  this is one

        def stop() -> None:
            nonlocal told
            told = True
            task.cancel()

        loop.add_signal_handler(signal.SIGTERM, stop)
        try:
            return await coroutine
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTERM, before)

    try:
        return asyncio.run(stoppable())
    finally:
        if told:
            signal.raise_signal(signal.SIGTERM)
