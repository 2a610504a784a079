"""How far long work is: bars where someone has a terminal, a log line now and then where nobody has.

Nothing here changes a result.

Below `dvc repro` within `retrain` a stage's output is a pipe. Then the process with the terminal listens at a local
socket whose address it leaves in the environment, and the stage sends it what it would draw. What cannot be sent is
dropped: the next report says more.
"""

import errno
import json
import logging
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tracking.console import Bar, Screen, screen

if TYPE_CHECKING:  # torch comes with it, and not every stage needs that
    from rl.sft import SFTPoint

log = logging.getLogger(__name__)
ADDRESS = "ANAMNESIS_PROGRESS"  # of the socket of the process that draws
DRAWN_EVERY_S, LOGGED_EVERY_S = 0.25, 10.0
# units of which many are under way together; the first ones done say nothing of the rest
AT_ONCE = frozenset({"episodes"})
EARLY = 0.05  # of these: the share that has to be done before they do


class Phase:
    """A piece of long work. Call it with (done, total) as often as you like."""

    def __init__(self, name: str, unit: str, done: int = 0, *, logged: bool = True) -> None:
        """Begin to count.

        Args:
            name: of the phase.
            unit: what it counts.
            done: what was done before it began, in an earlier run; no part of the rate.
            logged: whether to log where nobody draws.
        """
        self.name, self.unit = name, unit
        self.before, self._began = done, time.monotonic()
        self._draw = viewer()
        self._due = 0.0 if self._draw else self._began + LOGGED_EVERY_S
        self._logs = logged

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Report, if the last report is old enough or this is the end."""
        now = time.monotonic()
        if now < self._due and done < total:
            return
        bar = self.bar(done, total, note)
        if self._draw is not None and self._draw(bar):
            self._due = now + DRAWN_EVERY_S
            return
        self._draw = None
        if self._logs and (now >= self._due or note):
            log.info("%s", bar)
        self._due = now + LOGGED_EVERY_S

    def bar(self, done: int, total: int, note: str = "") -> Bar:
        """Where it is, with the rate since it began."""
        some = done - self.before
        known = self.unit not in AT_ONCE or some >= EARLY * (total - self.before)
        return Bar(
            name=self.name,
            unit=self.unit,
            done=done,
            total=total,
            rate=some / max(time.monotonic() - self._began, 1e-9) if known else 0.0,
            note=note,
        )


def supervised(what: str) -> "Callable[[SFTPoint], None]":
    """A reporter for supervised training, to be told of every step."""
    phase = Phase(what, "gradient steps")
    begun = False

    def report(point: "SFTPoint") -> None:
        nonlocal begun
        if not begun:
            phase.before, begun = point.step - 1, True  # what an earlier run did
        phase(point.step, point.steps, f"loss {point.loss:.3f}, {point.tokens_per_second:.0f} tokens/s")

    return report


@cache
def viewer() -> Callable[[Bar], bool] | None:
    """Who draws the bars of this process: itself, the one that listens at $ANAMNESIS_PROGRESS, or nobody."""
    if screen().live:
        return screen().show
    with suppress(KeyError, OSError):
        return Sender(os.environ[ADDRESS])
    return None


class Sender:
    """The stage's end of the channel."""

    def __init__(self, address: str) -> None:
        """Connect.

        Args:
            address: path of the socket.

        Raises:
            OSError: nobody listens.
        """
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.connect(address)

    def __call__(self, bar: Bar) -> bool:
        """Send without waiting; returns whether somebody still listens."""
        try:
            self._socket.send(json.dumps(asdict(bar)).encode())
        except OSError as error:
            return error.errno in (errno.EAGAIN, errno.ENOBUFS)  # slow, not gone
        return True


@contextmanager
def listening(to: Screen) -> Iterator[dict[str, str]]:
    """Draw what processes below this one report, while the block runs; gives the environment that they need, empty
    where no terminal is, or no place for a socket.
    """
    with ExitStack() as opened:
        ear = _ear(opened) if to.live else None
        if ear is None:
            yield {}
            return
        ended = threading.Event()
        thread = threading.Thread(target=_listen, args=(ear, to, ended), daemon=True)
        thread.start()
        try:
            yield {ADDRESS: ear.getsockname()}
        finally:
            ended.set()
            thread.join()
            to.close()


def _ear(opened: ExitStack) -> socket.socket | None:
    """A socket to listen at until `opened` is closed; None where there can be none, as its path may have 107 bytes."""
    try:
        folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="anamnesis-"))
        ear = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        ear.bind(str(Path(folder) / "progress"))
    except OSError as error:
        log.info("no bars of what runs below this: %s (TMPDIR)", error)
        return None
    ear.settimeout(0.1)
    return ear


def _listen(ear: socket.socket, to: Screen, ended: threading.Event) -> None:
    while True:
        try:
            to.show(Bar(**json.loads(ear.recv(65536))))
        except TimeoutError:
            if ended.is_set():
                return
        except Exception:  # what cannot be drawn is not drawn: no run ends or waits for it
            log.debug("a report was not drawn", exc_info=True)
