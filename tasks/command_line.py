"""Runs a flow from the command line: `python -m flows.<stage> [--out PLACE]`.

A user's mistake is one line and exit status 2.
"""

import argparse
import atexit
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, get_args

from prefect.exceptions import TerminationSignal

from clinic.errors import ClinicError
from doctor.parameters import ParameterError, load_params
from kb.errors import KnowledgeBaseError
from rl import machine
from rl.errors import TrainingError
from tracking.console import screen, start_logging
from tracking.errors import TrackingError

TERMINATED = 128 + signal.SIGTERM  # exit status, as a shell tells it
INTERRUPTED = 128 + signal.SIGINT
USER_ERRORS = (ClinicError, KnowledgeBaseError, TrainingError, ParameterError, TrackingError)


def run(flow: Callable[..., Any], canonical: Path) -> None:
    """Run one stage's flow and exit.

    Args:
        flow: a Prefect flow whose parameters are options: paths, and what is annotated as a number or text; `out` is
            where it writes.
        canonical: where DVC keeps the stage's output; DVC passes it as --out. Without --out the flow writes under
            runs/<id>/, so that trying something never touches a versioned output.
    """
    parser = argparse.ArgumentParser(description=(flow.__doc__ or "").split("\n\n")[0])
    for name, parameter in inspect.signature(flow).parameters.items():
        shown = (
            f"`dvc repro` passes {canonical}; default runs/<time>/{canonical.name}"
            if name == "out"
            else f"default {'as in params.yaml' if parameter.default is None else parameter.default}"
        )
        parser.add_argument(
            "--" + name.replace("_", "-"),
            type=next((kind for kind in (int, str) if kind in get_args(parameter.annotation)), _absolute),
            default=parameter.default,
            help=shown,
        )
    given = vars(parser.parse_args())
    # after Prefect has told its server; the default would leave behind what was started, its private server for one
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    with process(flow.__name__, *USER_ERRORS):
        machine.use(load_params(given.get("params_file")).machines)
        flow(**given)


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
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _absolute(text: str) -> Path:
    return Path(text).absolute()


@contextmanager
def told(stage: str, *mistakes: type[Exception]) -> Iterator[None]:
    """Log what the block does; end the process after a user's mistake or an interrupt, each told in one line below no
    bar.
    """
    start_logging(stage, attended=True)
    try:
        try:
            yield
        finally:
            screen().close()
    except mistakes as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(INTERRUPTED)
    except SystemExit as ended:
        if ended.code == TERMINATED:
            sys.stderr.write("stopped\n")
        raise
    except Exception as error:
        status = _status_of_stop(error)
        if status is None:
            raise
        sys.stderr.write("stopped\n")
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
