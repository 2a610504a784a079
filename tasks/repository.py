"""What git and DVC are asked for, each in a command of its own that nothing waits for at a terminal."""

import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tasks.interrupts import signals_put_off
from tracking.errors import without_password

log = logging.getLogger(__name__)
PAUSES_S = (10, 60)  # before a remote is asked again
ENDS_S = 3.0  # of a command that was told to end, then it is killed
_NOBODY = {"GIT_AUTHOR_NAME": "anamnesis", "GIT_AUTHOR_EMAIL": "anamnesis@localhost"}
_NOBODY |= {name.replace("AUTHOR", "COMMITTER"): value for name, value in _NOBODY.items()}


class WorkspaceError(RuntimeError):
    """There can be no workspace, its commit has no place, or git or DVC failed; one line with what to do."""


def git(folder: Path, *words: str, identified: bool = False, within_s: float | None = None) -> str:
    """What git says in a folder, whatever repository the environment names; none of its hooks is run.

    Args:
        folder: where.
        words: its arguments.
        identified: as somebody, if git does not know who commits.
        within_s: seconds that a command which goes over a network may take; None: it does not.

    Raises:
        WorkspaceError: it failed, or took longer.
    """
    environment = {
        name: value for name, value in os.environ.items() if name not in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
    }
    if identified:
        try:
            git(folder, "var", "GIT_COMMITTER_IDENT")
        except WorkspaceError:
            environment |= _NOBODY
    return _told(["git", "-c", "core.hooksPath=/dev/null", *words], environment, folder, within_s)


def dvc(folder: Path, *words: str, within_s: float | None = None) -> str:
    """As `git`, of DVC."""
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1"}
    return _told([sys.executable, "-m", "dvc", *words], environment, folder, within_s)


def reached(call: Callable[[], str]) -> str:
    """What goes over a network, which may be away for a moment: again after each pause."""
    for pause_s in PAUSES_S:
        try:
            return call()
        except WorkspaceError as error:
            log.warning("%s; again in %d s", error, pause_s)
            time.sleep(pause_s)
    return call()


def blob_of(folder: Path, commit: str, name: str) -> str:
    """The id of a file's content in a commit; empty if it has none."""
    try:
        return git(folder, "rev-parse", "--verify", "--quiet", f"{commit}:{name}")
    except WorkspaceError:
        return ""


def tip_of(folder: Path, branch: str) -> str | None:
    """The commit that a branch points to; None if there is no such branch."""
    try:
        return git(folder, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}")
    except WorkspaceError:
        return None


def is_ancestor(folder: Path, older: str, newer: str) -> bool:
    """Whether a commit holds another, or is it."""
    try:
        git(folder, "merge-base", "--is-ancestor", older, newer)
    except WorkspaceError:
        return False
    return True


def _told(command: list[str], environment: dict[str, str], folder: Path, within_s: float | None = None) -> str:
    """What a command says; with a limit it is one that goes over a network."""
    shown = " ".join([Path(command[0]).name, *(word for word in command[1:] if not word.startswith(str(folder)))])
    if within_s is not None:
        environment = environment | _unattended(folder)
    try:
        status, said, complaint = _ended(command, environment, folder, within_s)
    except subprocess.TimeoutExpired:
        raise WorkspaceError(
            f"`{shown}` did not end within {within_s:g} s and was stopped; see in {folder} whether the remote answers it"
        ) from None
    if status:
        lines = [line for line in (complaint + said).splitlines() if line.strip()]
        raise WorkspaceError(f"`{shown}` failed: {without_password(lines[-1]) if lines else f'status {status}'}")
    return said.strip()


def _unattended(folder: Path) -> dict[str, str]:
    """Variables under which nothing asks for a password, which nobody would type; a way of ssh that was chosen stays."""
    chosen = not os.environ.keys().isdisjoint(("GIT_SSH_COMMAND", "GIT_SSH"))
    with suppress(WorkspaceError):
        chosen = chosen or bool(git(folder, "config", "core.sshCommand"))
    return {"GIT_TERMINAL_PROMPT": "0"} | ({} if chosen else {"GIT_SSH_COMMAND": "ssh -o BatchMode=yes"})


def _ended(
    command: list[str], environment: dict[str, str], folder: Path, within_s: float | None
) -> tuple[int, str, str]:
    """Status, output and errors of a command, which is ended with all that it started if it is not waited for.

    It has no terminal to ask at, being in a session of its own, and writes into files: what it leaves behind may hold a
    pipe open.
    """
    process: subprocess.Popen[bytes] | None = None
    with (
        tempfile.TemporaryFile("w+", errors="replace") as said,
        tempfile.TemporaryFile("w+", errors="replace") as wrong,
    ):
        try:
            with signals_put_off():
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=wrong,
                    start_new_session=True,
                )
            status = process.wait(within_s)
        except BaseException:
            if process is not None:
                _end(process)
            raise
        said.seek(0)
        wrong.seek(0)
        return status, said.read(), wrong.read()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a command's whole session; git takes its locks away meanwhile."""
    with suppress(ProcessLookupError):
        try:
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDS_S)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
