"""The pipeline by DVC: reproduce what is stale, here or in a workspace."""

import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from doctor.parameters import HOME, ROOT
from tasks.interrupts import let_children_be_interrupted
from tracking.console import LINE, screen
from tracking.progress import listening

log = logging.getLogger(__name__)
DVC_CHATTER = re.compile(
    r"$|> |(Updating|Generating) lock file|Use `dvc push`|To track the changes|To enable auto staging|\s+(git add|dvc config) "
)
STOP_S = (5, 4, 3)  # seconds after each interrupt; then whatever is left is killed


class VersioningError(RuntimeError):
    """`dvc` could not do its work; the message says which command failed."""


@task(cache_policy=NO_CACHE)
def reproduce(targets: Sequence[str]) -> None:
    """`dvc repro` the stages (all if none are named), passing its output on; cancelling this task stops DVC and its
    stage first.

    Raises:
        VersioningError: DVC ended with an error.
    """
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", *targets]
    with listening(screen()) as channel:
        status = _pass_on(command, _environment() | channel, ROOT)
    if status:
        raise VersioningError(f"`dvc repro` ended with status {status}; the lines above say which stage failed and why")


@task(cache_policy=NO_CACHE)
def in_workspace(command: Sequence[str], place: Path) -> None:
    """Run a module of another checkout there, for this project: checkpoints, runs and MLflow's store are this one's.

    Raises:
        VersioningError: it ended with an error.
    """
    with listening(screen()) as channel:
        environment = _environment() | channel | {"ANAMNESIS_HOME": str(HOME)}
        status = _pass_on([sys.executable, "-m", *command], environment, place)
    if status:
        raise VersioningError(f"retraining in {place} ended with status {status}; the lines above say why")


def _environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path, "DVC_NO_ANALYTICS": "1"}


def _pass_on(command: Sequence[str], environment: Mapping[str, str], folder: Path = ROOT) -> int:
    """Run a command and log what it writes; returns its status."""
    let_children_be_interrupted()
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
    try:
        for line in process.stdout or ():
            _log(line.rstrip())
        return process.wait()
    except BaseException:  # cancelled
        _stop(process)
        raise


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
