"""SIGTERM and SIGINT end what runs in an event loop, wherever they arrive."""

import asyncio
import os
import signal
import threading
import time

import pytest

from rl import stoppable


class StopError(BaseException):
    """What a handler raises: as Prefect's, no `Exception`."""


@pytest.fixture(params=[signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def number(request):
    return request.param


@pytest.fixture
def handler(number):
    def raises(*_):
        raise StopError

    before = signal.signal(number, raises)
    yield raises
    signal.signal(number, before)


@pytest.fixture
def in_a_moment(number):
    return lambda seconds=0.2: threading.Timer(seconds, os.kill, (os.getpid(), number)).start()


async def waits_for_a_busy_task():
    """As episodes wait for an engine: the signal arrives in the task that computes."""
    answer = asyncio.get_running_loop().create_future()

    async def pump():
        while True:
            sum(range(1_000_000))
            await asyncio.sleep(0)

    computing = asyncio.get_running_loop().create_task(pump())
    await answer
    await computing


@pytest.mark.parametrize("waits", [waits_for_a_busy_task, lambda: asyncio.sleep(30)], ids=["busy", "asleep"])
def test_a_stop_reaches_who_waits_and_the_handler_is_back(handler, number, in_a_moment, waits):
    in_a_moment()
    began = time.monotonic()
    with pytest.raises(StopError):
        stoppable.run(waits())
    assert time.monotonic() - began < 20
    assert signal.getsignal(number) is handler


def test_what_is_running_is_cleaned_up_before_the_handler_is_called(handler, number, in_a_moment):
    seen = []

    async def tidy():
        try:
            await asyncio.sleep(30)
        finally:
            seen.append(signal.getsignal(number) is handler)

    in_a_moment()
    with pytest.raises(StopError):
        stoppable.run(tidy())
    assert seen == [False]


def test_without_a_signal_it_is_asyncio_s(handler, number):
    async def value():
        return 3

    async def fails():
        raise ValueError("within")

    assert stoppable.run(value()) == 3
    with pytest.raises(ValueError, match="within"):
        stoppable.run(fails())
    assert signal.getsignal(number) is handler


def test_in_another_thread_signals_are_not_its_business(handler):
    found = []
    thread = threading.Thread(target=lambda: found.append(stoppable.run(asyncio.sleep(0, 4))))
    thread.start()
    thread.join()
    assert found == [4]


def test_who_listens_to_signals_hears_of_those_that_come_meanwhile(handler, number, in_a_moment):
    heard, told = os.pipe()
    os.set_blocking(told, False)
    before = signal.set_wakeup_fd(told)
    try:
        in_a_moment()
        with pytest.raises(StopError):
            stoppable.run(asyncio.sleep(30))
        assert signal.set_wakeup_fd(-1) == told
        assert os.read(heard, 9) == bytes([number])
    finally:
        signal.set_wakeup_fd(before)
