"""Runs a flow from the command line: `python -m flows.<stage> [--out PLACE]`.

A user's mistake is one line and exit status 2.
"""

import argparse
import inspect
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from clinic.errors import ClinicError
from doctor.parameters import ParameterError, load_params
from kb.errors import KnowledgeBaseError
from rl import machine
from rl.errors import TrainingError
from tracking.console import screen, start_logging

TERMINATED = 128 + signal.SIGTERM  # exit status, as a shell tells it
USER_ERRORS = (ClinicError, KnowledgeBaseError, TrainingError, ParameterError)


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
    with told(flow.__name__, *USER_ERRORS):
        machine.use(load_params(given.get("params_file")).machines)
        flow(**given)


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
        sys.exit(130)
    except SystemExit as ended:
        if ended.code == TERMINATED:
            sys.stderr.write("stopped\n")
        raise
