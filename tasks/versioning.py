"""The pipeline by DVC: reproduce what is stale, here or in a workspace."""

import atexit
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from filelock import Timeout
from httpx import HTTPError
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run

from doctor.parameters import HOME, ROOT
from tasks.alone import alone
from tasks.interrupts import let_children_be_interrupted, signals_put_off
from tracking.console import LINE, PARENT, screen
from tracking.progress import listening

log = logging.getLogger(__name__)
DVC_CHATTER = re.compile(
    r"$|> |(Updating|Generating) lock file|Use `dvc push`|To track the changes|To enable auto staging|\s+(git add|dvc config) "
)
STOP_S = (5, 4, 3)  # seconds after each interrupt; then whatever is left is killed


class VersioningError(RuntimeError):
    """`dvc` could not do its work; the message says which command failed."""


@contextmanager
def undisturbed(max_hours: float | None = None) -> Iterator[tuple[dict[str, str], float | None]]:
    """A block in which no other run is at work in this project, nor begins to; gives what has to be in the environment of
    what it starts, and the hours that waiting left.

    Raises:
        VersioningError: another one was at work for longer than `max_hours`.
    """
    began, limit_s = time.monotonic(), None if max_hours is None else max_hours * 3600
    with ExitStack() as stack:
        try:
            held = stack.enter_context(alone(ROOT, limit_s))
        except Timeout:
            raise VersioningError(f"another run is still at work here after {max_hours:g} hours (max_hours)") from None
        yield held, None if max_hours is None else max(0.0, max_hours - (time.monotonic() - began) / 3600)


@task(cache_policy=NO_CACHE)
def reproduce(targets: Sequence[str], max_hours: float | None = None) -> None:
    """`dvc repro` the stages (all if none are named), passing its output on; cancelling this task stops DVC and its
    stage first. It waits until no other run is at work in this project.

    Raises:
        VersioningError: DVC ended with an error, or was stopped after `max_hours`.
    """
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", *targets]
    with undisturbed(max_hours) as (held, left), listening(screen()) as channel:
        _take_half_a_lock_away(ROOT / ".dvc" / "tmp" / "rwlock")
        status = _pass_on(command, _environment() | held | channel, ROOT, left)
    if status:
        raise VersioningError(f"`dvc repro` ended with status {status}; the lines above say which stage failed and why")


def _take_half_a_lock_away(lock: Path) -> None:
    """DVC cannot go on with a list of who reads and writes what that a kill or a full disk cut off."""
    try:
        if lock.exists():
            json.loads(lock.read_text(encoding="utf-8"))
    except ValueError:
        log.warning("%s was left half-written by a DVC that was killed, and is taken away", lock)
        lock.unlink(missing_ok=True)


@task(cache_policy=NO_CACHE)
def in_workspace(command: Sequence[str], place: Path, max_hours: float | None = None) -> None:
    """Run a module of another checkout there, for this project: checkpoints, runs and MLflow's store are this one's.

    Raises:
        VersioningError: it ended with an error, or was stopped after `max_hours`.
    """
    with listening(screen()) as channel:
        environment = _environment() | channel | {"ANAMNESIS_HOME": str(HOME)}
        status = _pass_on([sys.executable, "-m", *command], environment, place, max_hours)
    if status:
        raise VersioningError(f"retraining in {place} ended with status {status}; the lines above say why")


def reproduce_alone(place: Path) -> None:
    """`dvc repro` every stage of another checkout from nothing: no checkpoint, cache or record of this project is used.

    Raises:
        VersioningError: DVC ended with an error.
    """
    alone = {name: value for name, value in _environment().items() if name != "MLFLOW_TRACKING_URI"}
    with listening(screen()) as channel:
        command = [sys.executable, "-m", "dvc", "repro", "--force"]
        status = _pass_on(command, alone | channel | {"ANAMNESIS_HOME": str(place)}, place)
    if status:
        raise VersioningError(f"`dvc repro` in {place} ended with status {status}; the lines above say why")


def _environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    parent = os.environ.get(PARENT) or _outermost()
    told = {PARENT: str(parent)} if parent else {}
    return {**os.environ, **told, "PATH": path, "DVC_NO_ANALYTICS": "1"}


def _outermost() -> str | None:
    """The id of the flow run that this is a part of; the innermost's where Prefect's server does not say."""
    try:
        found: str | None = flow_run.root_flow_run_id
    except HTTPError:
        found = flow_run.id
    return found


def _pass_on(
    command: Sequence[str], environment: Mapping[str, str], folder: Path = ROOT, max_hours: float | None = None
) -> int:
    """Run a command and log what it writes; returns its status.

    Raises:
        VersioningError: it was stopped after `max_hours`.
    """
    with _running(command, environment, folder) as process, _at_most(process, max_hours):
        for line in process.stdout or ():
            _log(line.rstrip())
        return process.wait()


@contextmanager
def _running(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A command, stopped with all that it started if the block is left by an exception."""
    let_children_be_interrupted()
    stop: partial[None] | None = None
    try:
        with signals_put_off():
            process: subprocess.Popen[str] = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                bufsize=1,
                start_new_session=True,
            )
            stop = partial(_stop, process)
            atexit.register(stop)  # a second signal may fall between the first one and what it leads to below
        yield process
    except BaseException:  # cancelled
        if stop is not None:
            stop()
            atexit.unregister(stop)
        raise
    atexit.unregister(stop)


@contextmanager
def _at_most(process: "subprocess.Popen[str]", hours: float | None) -> Iterator[None]:
    """Stop a command that is not done in time."""
    if hours is None:
        yield
        return
    late = threading.Event()

    def stop() -> None:
        late.set()
        _stop(process)

    timer = threading.Timer(hours * 3600, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if late.is_set():
        raise VersioningError(
            f"not done after {hours:g} hours (max_hours), and stopped; the next run goes on from the last complete step"
        )


def _stop(process: "subprocess.Popen[str]") -> None:
    """End a command and all that it started in its session.

    An interrupt lets the stage's own flow run end as crashed, not hang as running. It is repeated: one that arrives while
    a library is imported or calls back may be swallowed there.
    """
    with suppress(ProcessLookupError):  # none is left
        try:
            for wait_s in STOP_S:
                os.killpg(process.pid, signal.SIGINT)
                deadline = time.monotonic() + wait_s
                while time.monotonic() < deadline:
                    process.poll()
                    os.killpg(process.pid, 0)
                    time.sleep(0.05)
        finally:  # also after an interrupt of this very wait
            os.killpg(process.pid, signal.SIGKILL)


def _log(line: str) -> None:
    """Once, as the stage's if it is a line of its log, else as DVC's; what DVC says to people at a terminal is left
    out.
    """
    if stage := LINE.fullmatch(line):
        log.info("%s", stage[1], extra={"relayed": True})
    elif not DVC_CHATTER.match(line):
        log.info("dvc | %s", line, extra={"relayed": True})
