"""What stops a run is passed on as an interrupt, so whatever it starts must be able to take one; and ends it in time."""

import atexit
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType

import psutil

from rl.stoppable import STOPS
from tasks.disk import of_the_disk
from tasks.startup import is_program

AGAIN_S = 6.0  # after a signal that did not end it; who started a stage gives it another one sooner
END_S = 14.0  # after the first
LISTENER = "end in time"
NOTED_S = 0.05  # until a signal that came is noted by the thread that listens to them
_heard: list[int] = []  # signals to stop, as they came


def let_children_be_interrupted() -> None:
    """Undo for later children that this process ignores interrupts, as what a script puts into the background does; it
    goes on ignoring them itself.

    A handler is not inherited, unlike being ignored. Nothing is done outside the main thread.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: None)


def tell_of_interrupts() -> None:
    """An interrupt that nobody handles, as while libraries are imported, is one word and no traceback, and ends the process
    as one: Python's own way out says 1 or the signal, by where it fell. One that a library loses while it is imported by
    `python -m flows.<name>` is given again, as `end_in_time` says. A disk that refuses is one line, and who reads no
    further (`| head`) is told nothing.
    """
    if is_program():
        end_in_time()
    told = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.stderr.write("stopped\n")
            atexit._run_exitfuncs()
            sys.stderr.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        elif issubclass(kind, BrokenPipeError) and _unread():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        elif issubclass(kind, OSError) and (line := of_the_disk(error)) is not None:
            sys.stderr.write(f"error: {line}\n")
        else:
            told(kind, error, traceback)

    sys.excepthook = tell


def _unread() -> bool:
    """Whether nobody reads what is printed any more."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(what & select.POLLERR for _, what in output.poll(0))


@contextmanager
def left_when_told() -> Iterator[None]:
    """A block that a signal to end is a way out of, so that what it started is ended, too; a signal that is ignored, as
    under `nohup`, stays so, and one that somebody handles is theirs. Nothing is done outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    mine = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in mine:
        signal.signal(number, lambda told, _: sys.exit(128 + told))
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def signals_put_off() -> Iterator[None]:
    """A block that no signal to stop leaves half done: one that arrives in it is given again at its end. So whoever starts
    a process knows it by the time that it has to be ended. Nothing is done outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    before = {number: signal.getsignal(number) for number in (*STOPS, signal.SIGHUP)}
    with ExitStack() as afterwards:
        afterwards.callback(_given_again, heard)
        for number, handler in before.items():
            if handler not in (None, signal.SIG_IGN):
                signal.signal(number, lambda told, _: heard.append(told))
                afterwards.callback(signal.signal, number, handler)
        yield


def _given_again(heard: list[int]) -> None:
    for number in heard:
        signal.raise_signal(number)


def end_in_time(again_s: float = AGAIN_S, end_s: float = END_S) -> None:
    """From now on a signal to stop ends this process, whatever becomes of the exception that its handler raises.

    That may be lost in a library's callback, wait for a server that does not answer, or for a long product. So the signal
    is given again, and at last the process is ended with all that it started: what it writes is complete or absent.
    Whatever handler is set, the interpreter tells of the signal first. Nothing is done outside the main thread, or a
    second time.

    Args:
        again_s: seconds after a signal until it is given again.
        end_s: seconds after the first one until the process is ended.
    """
    listens = any(thread.name == LISTENER for thread in threading.enumerate())
    if listens or threading.current_thread() is not threading.main_thread():
        return
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    threading.Thread(target=_insist, args=(heard, again_s, end_s), name=LISTENER, daemon=True).start()


def stop_heard() -> int | None:
    """The signal to stop that this process was given since `end_in_time`; None: none. What fails afterwards fails for it,
    whatever a library made of it on the way.
    """
    time.sleep(NOTED_S)
    return _heard[0] if _heard else None


def _insist(heard: int, again_s: float, end_s: float) -> None:
    number = 0
    while number not in STOPS:
        number = os.read(heard, 1)[0]
    _heard.append(number)
    deadline = time.monotonic() + end_s
    while (left := deadline - time.monotonic()) > 0:
        if select.select([heard], [], [], min(again_s, left))[0]:
            os.read(heard, 1)  # one more, from whoever
        elif deadline > time.monotonic():
            os.kill(os.getpid(), number)
    for process in psutil.Process().children(recursive=True):
        process.kill()
    sys.stderr.write(f"stopped, {end_s:g} s after the signal and in the middle of its work; the next run goes on\n")
    sys.stderr.flush()
    os._exit(128 + number)
