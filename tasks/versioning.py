"""The only use of DVC: reproduce what is stale, and say which hash a stage's output has."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE
from ruamel.yaml import YAML

from tasks.parameters import ROOT

log = logging.getLogger(__name__)


class VersioningError(RuntimeError):
    """`dvc` could not do its work; the message says which command failed."""


@task(cache_policy=NO_CACHE)
def reproduce(targets: Sequence[str]) -> None:
    """`dvc repro` the stages (all if none are named), passing its output on; cancelling this task stops DVC and its stage first.

    Raises:
        VersioningError: DVC ended with an error.
    """
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", *targets]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}", "DVC_NO_ANALYTICS": "1"}
    process: subprocess.Popen[str] = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1, start_new_session=True
    )
    try:
        for line in process.stdout or ():
            log.info("%s", line.rstrip())
    except BaseException:  # cancelled: an interrupt lets the stage's own flow run end as crashed, not hang as running
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        raise
    if process.wait():
        raise VersioningError(f"`dvc repro` ended with status {process.returncode}; the lines above say which stage failed and why")


def output_digest(path: str) -> str | None:
    """The hash that dvc.lock records for an output, or None if it has none yet."""
    lock = ROOT / "dvc.lock"
    if not lock.exists():
        return None
    stages = (YAML(typ="safe").load(lock) or {}).get("stages", {})
    for stage in stages.values():
        for out in stage.get("outs", []):
            if out["path"] == path:
                return str(out["md5"])
    return None


def code_state(root: Path) -> str:
    """The commit that is checked out, and whether tracked files differ from it; "unknown" outside git."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "--no-optional-locks", "-C", str(root), *words], capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD")[:12] + (" with changes" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
