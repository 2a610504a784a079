"""Runs a flow from the command line: `python -m flows.<stage> [--out PLACE]`.

A user's mistake is one line and exit status 2.
"""

import argparse
import atexit
import inspect
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any, NoReturn, get_args

from httpx import TransportError
from prefect.events.worker import EventsWorker
from prefect.exceptions import TerminationSignal
from prefect.logging.handlers import APILogWorker

from clinic.errors import ClinicError
from doctor.parameters import HOME, ROOT, ParameterError, load_params
from kb.errors import KnowledgeBaseError
from rl import machine
from rl.errors import TrainingError
from rl.stoppable import STOPS
from tasks.alone import alone
from tasks.disk import of_the_disk
from tasks.interrupts import end_in_time, stop_heard
from tasks.server import await_server
from tasks.versioning import VersioningError
from tracking.console import screen, start_logging
from tracking.errors import TrackingError, without_password

log = logging.getLogger(__name__)

TERMINATED = 128 + signal.SIGTERM  # exit status, as a shell tells it
INTERRUPTED = 128 + signal.SIGINT
DRAIN_S = 5.0  # for what a server that answers is still to be told
TRACEBACKS = 20  # files that are kept
USER_ERRORS = (ClinicError, KnowledgeBaseError, TrainingError, ParameterError, TrackingError)


def run(flow: Callable[..., Any], canonical: Path, meanwhile: Callable[[Path | None], None] | None = None) -> None:
    """Run one stage's flow and exit.

    Args:
        flow: a Prefect flow whose parameters are options: paths, and what is annotated as a number or text; `out` is
            where it writes.
        canonical: where DVC keeps the stage's output; DVC passes it as --out. Without --out the flow writes under
            runs/<id>/, so that trying something never touches a versioned output.
        meanwhile: what can be done while Prefect's server starts; is given the params file, if there is another.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m flows.{flow.__name__}", description=(flow.__doc__ or "").split("\n\n")[0]
    )
    for name, parameter in inspect.signature(flow).parameters.items():
        unnamed = {
            "out": f"`dvc repro` passes {canonical}; default runs/<time>/{canonical.name}",
            "params_file": "default params.yaml",
            "recipe_file": "default recipes/base_model.yaml",
        }.get(name, "default as in params.yaml")
        needed = parameter.default is inspect.Parameter.empty
        shown = unnamed if parameter.default is None else f"default {parameter.default}"
        parser.add_argument(
            "--" + name.replace("_", "-"),
            type=next((kind for kind in (int, str) if kind in get_args(parameter.annotation)), _absolute),
            default=None if needed else parameter.default,
            required=needed,
            help=f"needed; `make` passes {canonical}" if needed else shown,
        )
    given = vars(parser.parse_args())
    # after Prefect has told its server; the default would leave behind what was started, its private server for one
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    end_in_time()
    with process(flow.__name__, *USER_ERRORS):
        machine.use(load_params(given.get("params_file")).machines)
        product = given.get("out") == ROOT / canonical
        with alone(ROOT) if product else nullcontext():
            ahead = partial(meanwhile, given.get("params_file")) if meanwhile is not None else None
            outlive_prefect(flow, given, ahead)


def outlive_prefect(flow: Any, given: Mapping[str, Any], ahead: Callable[[], None] | None = None) -> None:
    """Run a flow, `ahead` before it while a server starts; whether it succeeds is not for a server to say that goes away
    meanwhile.
    """
    finished, work = False, flow.fn

    @wraps(work)
    def noting(*args: Any, **kwargs: Any) -> Any:
        nonlocal finished
        value = work(*args, **kwargs)
        finished = True
        return value

    flow.fn = noting
    try:
        if ahead is not None:
            ahead()
        await_server()
        flow(**given)
    except TransportError:
        if not finished:
            raise
        log.warning("the work is done, but Prefect's server does not answer: its page of this run stays unfinished")
    finally:
        flow.fn = work


@contextmanager
def process(stage: str, *mistakes: type[Exception]) -> Iterator[None]:
    """The work of a whole process, which ends with the block: as `told`, and at once."""
    try:
        with told(stage, *mistakes):
            yield
    except SystemExit as ended:
        if isinstance(ended.code, int):
            leave(ended.code)
        raise  # a message, which Python's own way out tells
    leave(0)


def leave(status: int) -> NoReturn:
    """End as `sys.exit` does, without first taking apart every module and object: that is two seconds of a processor once
    torch, transformers and Prefect are loaded, and ten where others want it too.
    """
    if _has_told_prefect():
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _has_told_prefect() -> bool:
    """Send what Prefect's server is still to be told, for a while; one that is away would be tried seven seconds for each
    event, and half an hour for those of a night.
    """
    late: list[Any] = [EventsWorker.drain_all(timeout=DRAIN_S), APILogWorker.drain_all(timeout=DRAIN_S)]
    return not any(left for _, left in late)


def _absolute(text: str) -> Path:
    return Path(text).absolute()


@contextmanager
def told(stage: str, *mistakes: type[Exception]) -> Iterator[None]:
    """Log what the block does; end the process after a user's mistake or an interrupt, each told in one line below no
    bar. The line names a file with the whole traceback, unless a process below has told its own.
    """
    start_logging(stage, attended=True)
    try:
        try:
            yield
        finally:
            screen().close()
    except mistakes as error:
        _wrong(stage, str(error), error)
    except KeyboardInterrupt:
        _stopped(INTERRUPTED)
    except SystemExit as ended:
        if ended.code == TERMINATED:
            _stopped(TERMINATED)
        raise
    except Exception as error:
        status = _status_of_stop(error)
        if status is not None:
            _stopped(status)
        if (number := stop_heard()) is not None:
            _stopped(128 + number)
        if (line := of_the_disk(error)) is not None:
            _wrong(stage, line, error)
        raise


def _wrong(stage: str, line: str, error: Exception) -> NoReturn:
    whole = None if isinstance(error, VersioningError) else _whole(stage, error)
    sys.stderr.write(f"error: {line}{f' (traceback: {whole})' if whole else ''}\n")
    sys.exit(2)


def _whole(stage: str, error: Exception) -> Path | None:
    """The file that has the traceback, among the newest; None where nothing can be written."""
    folder = HOME / "runs" / "errors"
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{stage}-{os.getpid()}.txt"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(without_password("".join(traceback.format_exception(error))), encoding="utf-8")
        for old in sorted(folder.glob("*.txt"))[:-TRACEBACKS]:
            old.unlink(missing_ok=True)
        return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return None


def _stopped(status: int) -> NoReturn:
    """Say so, and end; another signal would only disturb what is on its way out."""
    sys.stderr.write("stopped\n")
    if threading.current_thread() is threading.main_thread():
        for number in STOPS:
            signal.signal(number, signal.SIG_IGN)
    sys.exit(status)


def _status_of_stop(error: BaseException | None) -> int | None:
    """The exit status if it was raised while Prefect handled a signal, which it cannot do as a task begins."""
    while error is not None:
        if isinstance(error, TerminationSignal):
            return TERMINATED
        if isinstance(error, KeyboardInterrupt):
            return INTERRUPTED
        error = error.__cause__ or error.__context__
    return None
