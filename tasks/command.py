"""Runs a flow from the command line: `python -m flows.<stage> [--out PLACE]`. A user's mistake is one line and exit status 2."""

import argparse
import inspect
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clinic.errors import ClinicError
from kb.errors import KnowledgeBaseError
from rl import machine
from rl.errors import TrainingError
from tasks.parameters import ParameterError, load_params

USER_ERRORS = (ClinicError, KnowledgeBaseError, TrainingError, ParameterError)


def run(flow: Callable[..., Any], canonical: Path) -> None:
    """Run one stage's flow and exit.

    Args:
        flow: a Prefect flow whose parameters are paths, each an option; `out` is where it writes.
        canonical: where DVC keeps the stage's output; DVC passes it as --out. Without --out the flow writes under runs/<id>/, so that
            trying something never touches a versioned output.
    """
    parser = argparse.ArgumentParser(description=flow.__doc__)
    for name, parameter in inspect.signature(flow).parameters.items():
        shown = f"`dvc repro` passes {canonical}; default runs/<time>/{canonical.name}" if name == "out" else f"default {parameter.default}"
        parser.add_argument("--" + name.replace("_", "-"), type=lambda text: Path(text).absolute(), default=parameter.default, help=shown)
    start_logging()
    given = vars(parser.parse_args())
    try:
        machine.use(load_params(given.get("params_file")).machines)
        flow(**given)
    except USER_ERRORS as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)


def start_logging() -> None:
    """Say what goes on, one line each, without the libraries' chatter."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
    for room in ("flows", "tasks", "rl", "clinic", "kb"):
        logger = logging.getLogger(room)
        logger.setLevel(logging.INFO)
        if room not in os.environ.get("PREFECT_LOGGING_EXTRA_LOGGERS", "").split(","):  # else Prefect prints them
            logger.addHandler(handler)
    for noisy in ("httpx", "httpcore", "faiss", "alembic", "sentence_transformers", "mlflow", "prefect", "asyncio", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
