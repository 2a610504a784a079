"""A checkout of its own for `retrain`, beside the user's: git's second working tree on the project's DVC cache.

What is edited but not committed stays where it is, and nothing that `retrain` writes appears among the user's files; what it
made is a commit on a branch.
"""

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath

from filelock import FileLock, Timeout

from tasks.interrupts import signals_put_off
from tracking.errors import without_password
from tracking.runs import MADE

log = logging.getLogger(__name__)
PLACE = Path("runs") / "retrain" / "workspace"
OPENED = "refs/worktree/opened"  # the commit that a workspace began at; of this working tree alone
PAUSES_S = (10, 60)  # before a remote is asked again
BRANCH_S = 600.0  # of a try to send the branch
DATA_S = 3600.0  # of a try to fetch or send data; the next one goes on with the files that lack
ENDS_S = 3.0  # of a command that was told to end, then it is killed
_NOBODY = {"GIT_AUTHOR_NAME": "anamnesis", "GIT_AUTHOR_EMAIL": "anamnesis@localhost"}
_NOBODY |= {name.replace("AUTHOR", "COMMITTER"): value for name, value in _NOBODY.items()}


class WorkspaceError(RuntimeError):
    """There can be no workspace, or its commit has no place; one line with what to do."""


@contextmanager
def workspace(project: Path, branch: str, *, shared: bool = False) -> Iterator[Path]:
    """A fresh checkout, with the data that DVC tracks: of the branch if it goes on from the project's commit, else of that
    commit. It is left behind for looking at; the next one replaces it.

    Args:
        project: the user's checkout.
        branch: which `keep` will move; it need not exist.
        shared: whether `push` will send it to `origin`; then it begins where another machine left it there.

    Raises:
        WorkspaceError: the project is no git checkout of its own, the branch is checked out somewhere or has no valid name,
            or another at `origin`, or another retraining is at work.
    """
    _check(project, branch)
    place = project / PLACE
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(place.with_name(".workspace.lock"), timeout=0):
            _warn_of_edits(project)
            _unlock(project, branch)
            if shared:
                _follow(project, branch)
            _lay_out(project, place, branch if _is_ancestor(project, "HEAD", branch) else "HEAD")
            _git(place, "update-ref", OPENED, "HEAD")
            _take_over(place, branch)
            _bring_data(project, place)
            yield place
    except Timeout:
        raise WorkspaceError(f"another retraining is at work in {place}; wait for it, or cancel its flow run") from None


def checkout(project: Path, place: Path, commit: str) -> None:
    """A commit of the project in a folder, with the data that DVC tracks there; in place of what the folder holds.

    Raises:
        WorkspaceError: the project has no such commit.
    """
    try:
        _git(project, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    except WorkspaceError:
        raise WorkspaceError(f"the project has no commit {commit}; git fetch brings what others pushed") from None
    place.parent.mkdir(parents=True, exist_ok=True)
    _lay_out(project, place, commit)
    _bring_data(project, place)


def _lay_out(project: Path, place: Path, commit: str) -> None:
    if place.exists():
        shutil.rmtree(place)
    _git(project, "worktree", "prune")
    # twice forced: what was killed while git made it stays locked
    _git(project, "worktree", "add", "--force", "--force", "--quiet", "--detach", str(place), commit)


def _check(project: Path, branch: str) -> None:
    try:
        top = Path(_git(project, "rev-parse", "--show-toplevel"))
        _git(project, "rev-parse", "--verify", "HEAD^{commit}")
    except WorkspaceError:
        raise WorkspaceError(f"{project} has no commit to retrain from; commit it, or leave the branch out") from None
    if top.resolve() != project.resolve():
        raise WorkspaceError(
            f"{project} is a folder of the repository {top}; retrain in a repository of its own, or leave the branch out"
        )
    try:
        _git(project, "check-ref-format", "--branch", branch)
    except WorkspaceError:
        raise WorkspaceError(f"branch {branch!r} is no name that git takes; use letters, digits and -") from None
    if (used := _checked_out(project).get(f"refs/heads/{branch}")) is not None:
        raise WorkspaceError(
            f"branch {branch!r} is checked out in {used}, whose files would not follow; name another, or check out another there"
        )


def _checked_out(project: Path) -> dict[str, str]:
    """Folders of working trees, by the branch that each has."""
    found, folder = {}, ""
    for line in _git(project, "worktree", "list", "--porcelain").splitlines():
        word, _, rest = line.partition(" ")
        if word == "worktree":
            folder = rest
        elif word == "branch":
            found[rest] = folder
    return found


def _unlock(project: Path, branch: str) -> None:
    """Take away a lock on the branch that a killed git left: nobody else moves it while the workspace is held."""
    lock = project / _git(project, "rev-parse", "--git-path", f"refs/heads/{branch}.lock")
    if lock.exists():
        log.warning("%s was left by a git that was killed, and is taken away", lock)
        lock.unlink()


def _follow(project: Path, branch: str) -> None:
    """Move the branch to where `origin` has it, if that holds what it is here.

    Raises:
        WorkspaceError: neither holds the other.
    """
    if "origin" not in _git(project, "remote").splitlines():
        return  # as `push` will say
    asked = partial(_git, project, within_s=BRANCH_S)
    try:
        if not _reached(lambda: asked("ls-remote", "origin", f"refs/heads/{branch}")):
            return
        _reached(lambda: asked("fetch", "--quiet", "origin", f"+refs/heads/{branch}:refs/remotes/origin/{branch}"))
    except WorkspaceError as error:
        log.warning("origin could not be read, branch %s goes on from what is here: %s", branch, error)
        return
    here, there = _tip(project, branch), _git(project, "rev-parse", f"refs/remotes/origin/{branch}")
    if here is None or _is_ancestor(project, here, there):
        _git(project, "update-ref", "-m", "retrain", f"refs/heads/{branch}", there, here or "")
    elif not _is_ancestor(project, there, here):
        raise WorkspaceError(
            f"branch {branch} is {here[:12]} here and {there[:12]} at origin, and neither holds the other; merge them "
            f"(git switch {branch}; git merge origin/{branch}), switch back, and run this again"
        )


def _warn_of_edits(project: Path) -> None:
    edited = _git(project, "diff", "--name-only", "HEAD").splitlines()
    if edited:
        more = f" and {len(edited) - 3} more" if len(edited) > 3 else ""
        log.warning(
            "not committed and therefore not used: %s%s; commit, or leave the branch out", ", ".join(edited[:3]), more
        )


def _bring_data(project: Path, place: Path) -> None:
    """What DVC tracks, from the project's cache and, where there is one, from its remote."""
    local = project / ".dvc" / "config.local"
    if local.exists():
        shutil.copy2(local, place / ".dvc" / "config.local")
    _dvc(place, "config", "--local", "cache.dir", _dvc(project, "cache", "dir"))
    if _dvc(place, "remote", "list"):
        try:
            _reached(partial(_dvc, place, "pull", "--quiet", "--allow-missing", within_s=DATA_S))
            return
        except WorkspaceError as error:
            log.warning("the DVC remote could not be read, only what is cached here is used: %s", error)
    _dvc(place, "checkout", "--quiet", "--allow-missing")


def _take_over(place: Path, branch: str) -> None:
    """What the branch alone has beside what a training makes, such as files of an inbox, into a workspace that begins at
    the project's commit.

    Raises:
        WorkspaceError: the project changed one of those files too.
    """
    if (tip := _tip(place, branch)) is None or _is_ancestor(place, tip, "HEAD"):
        return
    base = _git(place, "merge-base", "HEAD", tip)
    made = [f":(exclude){name}" for name in MADE]
    changed = _git(place, "diff", "--name-only", "--no-renames", "-z", base, tip, "--", ".", *made).split("\0")
    differing = [name for name in filter(None, changed) if _blob(place, "HEAD", name) != _blob(place, tip, name)]
    for name in differing:
        if _blob(place, "HEAD", name) != _blob(place, base, name):
            raise WorkspaceError(
                f"{name} is another on branch {branch} than in the last commit; run: git merge {branch}"
            )
    for name in differing:
        if _blob(place, tip, name):
            _git(place, "checkout", "--quiet", tip, "--", f":(literal){name}")
        else:
            _git(place, "rm", "--quiet", "--", f":(literal){name}")
    if differing:
        _commit(place, f"[retrain] What branch {branch} has", tip)


def _blob(folder: Path, commit: str, name: str) -> str:
    try:
        return _git(folder, "rev-parse", "--verify", "--quiet", f"{commit}:{name}")
    except WorkspaceError:
        return ""


def tracked_by_dvc(place: Path, name: str) -> Path | None:
    """The folder that DVC tracks and a file lies in, relative to the checkout; None if git has it."""
    folders = [Path(*parent.parts) for parent in PurePosixPath(name).parents if parent.parts]
    return next((one for one in folders if (place / one).with_name(f"{one.name}.dvc").exists()), None)


def holds_own_files(project: Path, folder: Path) -> bool:
    """Whether a folder is a project, holds it, or has files in it that git or DVC tracks."""
    root = project.resolve()
    if not folder.is_relative_to(root):
        return root.is_relative_to(folder)
    inside = (folder / "any").relative_to(root).as_posix()
    return tracked_by_dvc(root, inside) is not None or bool(_git(root, "ls-files", "--", str(folder)))


def is_ignored(place: Path, name: str) -> bool:
    """Whether git would not be given a file of this name."""
    try:
        _git(place, "check-ignore", "--quiet", "--no-index", "--", name)
    except WorkspaceError:
        return False
    return True


def record(place: Path, names: Sequence[str], message: str) -> None:
    """Commit files that came into a workspace, without moving any branch; what a folder of DVC's got goes into its cache."""
    for folder in dict.fromkeys(filter(None, (tracked_by_dvc(place, name) for name in names))):
        _dvc(place, "add", "--quiet", str(folder))
    _commit(place, message)


def keep(place: Path, branch: str, message: str) -> str | None:
    """Commit what changed in a workspace and let the branch point there, with what it pointed to as a parent.

    Returns:
        The commit; None if nothing changed since the one that the workspace was opened at.
    """
    tip = _tip(place, branch)
    made = _commit(place, message, tip, even_if_empty=head(place) != _git(place, "rev-parse", OPENED))
    if made is not None:
        _git(place, "update-ref", "-m", "retrain", f"refs/heads/{branch}", made, tip or "")
    return made


def head(place: Path) -> str:
    """The commit that a workspace is at."""
    return _git(place, "rev-parse", "HEAD")


def _commit(place: Path, message: str, other: str | None = None, *, even_if_empty: bool = False) -> str | None:
    """Commit everything in a workspace, with a second parent unless the first holds it; None if nothing changed."""
    _git(place, "add", "--all")
    tree, at = _git(place, "write-tree"), head(place)
    if tree == _git(place, "rev-parse", "HEAD^{tree}") and not even_if_empty:
        return None
    parents = ["-p", at]
    if other is not None and not _is_ancestor(place, other, at):
        parents += ["-p", other]
    made = _git(place, "commit-tree", tree, *parents, "-m", message, identified=True)
    _git(place, "update-ref", "--no-deref", "HEAD", made)
    return made


def push(place: Path, branch: str) -> str | None:
    """Send data to DVC's remote, if it has one, and the branch to git's `origin`; returns what went wrong, in a line."""
    try:
        if _dvc(place, "remote", "list"):
            _reached(partial(_dvc, place, "push", "--quiet", within_s=DATA_S))
        _git(place, "remote", "get-url", "origin")  # there is one, or it is said at once
        _reached(partial(_git, place, "push", "--quiet", "origin", f"refs/heads/{branch}", within_s=BRANCH_S))
    except WorkspaceError as error:
        return f"branch {branch} was not pushed: {error}"
    return None


def _reached(call: Callable[[], str]) -> str:
    """What goes over a network, which may be away for a moment: again after each pause."""
    for pause_s in PAUSES_S:
        try:
            return call()
        except WorkspaceError as error:
            log.warning("%s; again in %d s", error, pause_s)
            time.sleep(pause_s)
    return call()


def committed(place: Path, name: str) -> str:
    """A file as the commit has it that a checkout is at; empty if it has none."""
    return _git(place, "show", f"HEAD:{name}") if _blob(place, "HEAD", name) else ""


def _tip(folder: Path, branch: str) -> str | None:
    try:
        return _git(folder, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}")
    except WorkspaceError:
        return None


def _is_ancestor(folder: Path, older: str, newer: str) -> bool:
    try:
        _git(folder, "merge-base", "--is-ancestor", older, newer)
    except WorkspaceError:
        return False
    return True


def _git(folder: Path, *words: str, identified: bool = False, within_s: float | None = None) -> str:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
    }
    if identified:
        try:
            _git(folder, "var", "GIT_COMMITTER_IDENT")
        except WorkspaceError:
            environment |= _NOBODY
    return _told(["git", "-c", "core.hooksPath=/dev/null", *words], environment, folder, within_s)


def _dvc(folder: Path, *words: str, within_s: float | None = None) -> str:
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1"}
    return _told([sys.executable, "-m", "dvc", *words], environment, folder, within_s)


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
        chosen = chosen or bool(_git(folder, "config", "core.sshCommand"))
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
