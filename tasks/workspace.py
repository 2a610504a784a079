"""A checkout of its own for `retrain`, beside the user's: git's second working tree on the project's DVC cache.

What is edited but not committed stays where it is, and nothing that `retrain` writes appears among the user's files; what it
made is a commit on a branch.
"""

import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath

from filelock import FileLock, Timeout

from tasks.repository import WorkspaceError, blob_of, dvc, git, is_ancestor, reached, tip_of
from tracking.runs import MADE

log = logging.getLogger(__name__)
PLACE = Path("runs") / "retrain" / "workspace"
OPENED = "refs/worktree/opened"  # the commit that a workspace began at; of this working tree alone
BRANCH_S = 600.0  # of a try to send the branch
DATA_S = 3600.0  # of a try to fetch or send data; the next one goes on with the files that lack


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
            _lay_out(project, place, branch if is_ancestor(project, "HEAD", branch) else "HEAD")
            git(place, "update-ref", OPENED, "HEAD")
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
        git(project, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    except WorkspaceError:
        raise WorkspaceError(f"the project has no commit {commit}; git fetch brings what others pushed") from None
    place.parent.mkdir(parents=True, exist_ok=True)
    _lay_out(project, place, commit)
    _bring_data(project, place)


def _lay_out(project: Path, place: Path, commit: str) -> None:
    if place.exists():
        shutil.rmtree(place)
    git(project, "worktree", "prune")
    # twice forced: what was killed while git made it stays locked
    git(project, "worktree", "add", "--force", "--force", "--quiet", "--detach", str(place), commit)


def _check(project: Path, branch: str) -> None:
    try:
        top = Path(git(project, "rev-parse", "--show-toplevel"))
        git(project, "rev-parse", "--verify", "HEAD^{commit}")
    except WorkspaceError:
        raise WorkspaceError(f"{project} has no commit to retrain from; commit it, or leave the branch out") from None
    if top.resolve() != project.resolve():
        raise WorkspaceError(
            f"{project} is a folder of the repository {top}; retrain in a repository of its own, or leave the branch out"
        )
    try:
        git(project, "check-ref-format", "--branch", branch)
    except WorkspaceError:
        raise WorkspaceError(f"branch {branch!r} is no name that git takes; use letters, digits and -") from None
    if (used := _checked_out(project).get(f"refs/heads/{branch}")) is not None:
        raise WorkspaceError(
            f"branch {branch!r} is checked out in {used}, whose files would not follow; name another, or check out another there"
        )


def _checked_out(project: Path) -> dict[str, str]:
    """Folders of working trees, by the branch that each has."""
    found, folder = {}, ""
    for line in git(project, "worktree", "list", "--porcelain").splitlines():
        word, _, rest = line.partition(" ")
        if word == "worktree":
            folder = rest
        elif word == "branch":
            found[rest] = folder
    return found


def _unlock(project: Path, branch: str) -> None:
    """Take away a lock on the branch that a killed git left: nobody else moves it while the workspace is held."""
    lock = project / git(project, "rev-parse", "--git-path", f"refs/heads/{branch}.lock")
    if lock.exists():
        log.warning("%s was left by a git that was killed, and is taken away", lock)
        lock.unlink()


def _follow(project: Path, branch: str) -> None:
    """Move the branch to where `origin` has it, if that holds what it is here.

    Raises:
        WorkspaceError: neither holds the other.
    """
    if "origin" not in git(project, "remote").splitlines():
        return  # as `push` will say
    asked = partial(git, project, within_s=BRANCH_S)
    try:
        if not reached(lambda: asked("ls-remote", "origin", f"refs/heads/{branch}")):
            return
        reached(lambda: asked("fetch", "--quiet", "origin", f"+refs/heads/{branch}:refs/remotes/origin/{branch}"))
    except WorkspaceError as error:
        log.warning("origin could not be read, branch %s goes on from what is here: %s", branch, error)
        return
    here, there = tip_of(project, branch), git(project, "rev-parse", f"refs/remotes/origin/{branch}")
    if here is None or is_ancestor(project, here, there):
        git(project, "update-ref", "-m", "retrain", f"refs/heads/{branch}", there, here or "")
    elif not is_ancestor(project, there, here):
        raise WorkspaceError(
            f"branch {branch} is {here[:12]} here and {there[:12]} at origin, and neither holds the other; merge them "
            f"(git switch {branch}; git merge origin/{branch}), switch back, and run this again"
        )


def _warn_of_edits(project: Path) -> None:
    edited = git(project, "diff", "--name-only", "HEAD").splitlines()
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
    dvc(place, "config", "--local", "cache.dir", dvc(project, "cache", "dir"))
    if dvc(place, "remote", "list"):
        _mean_the_same_places(project, place)
        try:
            reached(partial(dvc, place, "pull", "--quiet", "--allow-missing", within_s=DATA_S))
            return
        except WorkspaceError as error:
            log.warning("the DVC remote could not be read, only what is cached here is used: %s", error)
    dvc(place, "checkout", "--quiet", "--allow-missing")


def _mean_the_same_places(project: Path, place: Path) -> None:
    """What DVC's settings name by a relative path, such as a remote beside the project, is meant from the project."""
    there = _settings(place)
    for name, value in _settings(project).items():
        here = there.get(name, value)
        if value != here and os.path.relpath(value, project) == os.path.relpath(here, place):
            dvc(place, "config", "--local", name, value)


def _settings(folder: Path) -> dict[str, str]:
    """DVC's, by name; paths are absolute there."""
    lines = dvc(folder, "config", "--list").splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def _take_over(place: Path, branch: str) -> None:
    """What the branch alone has beside what a training makes, such as files of an inbox, into a workspace that begins at
    the project's commit.

    Raises:
        WorkspaceError: the project changed one of those files too.
    """
    if (tip := tip_of(place, branch)) is None or is_ancestor(place, tip, "HEAD"):
        return
    base = git(place, "merge-base", "HEAD", tip)
    made = [f":(exclude){name}" for name in MADE]
    changed = git(place, "diff", "--name-only", "--no-renames", "-z", base, tip, "--", ".", *made).split("\0")
    differing = [name for name in filter(None, changed) if blob_of(place, "HEAD", name) != blob_of(place, tip, name)]
    for name in differing:
        if blob_of(place, "HEAD", name) != blob_of(place, base, name):
            raise WorkspaceError(
                f"{name} is another on branch {branch} than in the last commit; run: git merge {branch}"
            )
    for name in differing:
        if blob_of(place, tip, name):
            git(place, "checkout", "--quiet", tip, "--", f":(literal){name}")
        else:
            git(place, "rm", "--quiet", "--", f":(literal){name}")
    if differing:
        _commit(place, f"[retrain] What branch {branch} has", tip)


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
    return tracked_by_dvc(root, inside) is not None or bool(git(root, "ls-files", "--", str(folder)))


def is_ignored(place: Path, name: str) -> bool:
    """Whether git would not be given a file of this name."""
    try:
        git(place, "check-ignore", "--quiet", "--no-index", "--", name)
    except WorkspaceError:
        return False
    return True


def record(place: Path, names: Sequence[str], message: str) -> None:
    """Commit files that came into a workspace, without moving any branch; what a folder of DVC's got goes into its cache."""
    for folder in dict.fromkeys(filter(None, (tracked_by_dvc(place, name) for name in names))):
        dvc(place, "add", "--quiet", str(folder))
    _commit(place, message)


def keep(place: Path, branch: str, message: str) -> str | None:
    """Commit what changed in a workspace and let the branch point there, with what it pointed to as a parent.

    Returns:
        The commit; None if nothing changed since the one that the workspace was opened at.
    """
    tip = tip_of(place, branch)
    made = _commit(place, message, tip, even_if_empty=head(place) != git(place, "rev-parse", OPENED))
    if made is not None:
        git(place, "update-ref", "-m", "retrain", f"refs/heads/{branch}", made, tip or "")
    return made


def head(place: Path) -> str:
    """The commit that a workspace is at."""
    return git(place, "rev-parse", "HEAD")


def _commit(place: Path, message: str, other: str | None = None, *, even_if_empty: bool = False) -> str | None:
    """Commit everything in a workspace, with a second parent unless the first holds it; None if nothing changed."""
    git(place, "add", "--all")
    tree, at = git(place, "write-tree"), head(place)
    if tree == git(place, "rev-parse", "HEAD^{tree}") and not even_if_empty:
        return None
    parents = ["-p", at]
    if other is not None and not is_ancestor(place, other, at):
        parents += ["-p", other]
    made = git(place, "commit-tree", tree, *parents, "-m", message, identified=True)
    git(place, "update-ref", "--no-deref", "HEAD", made)
    return made


def push(place: Path, branch: str) -> str | None:
    """Send data to DVC's remote, if it has one, and the branch to git's `origin`; returns what went wrong, in a line."""
    try:
        if dvc(place, "remote", "list"):
            reached(partial(dvc, place, "push", "--quiet", within_s=DATA_S))
        git(place, "remote", "get-url", "origin")  # there is one, or it is said at once
        reached(partial(git, place, "push", "--quiet", "origin", f"refs/heads/{branch}", within_s=BRANCH_S))
    except WorkspaceError as error:
        return f"branch {branch} was not pushed: {error}"
    return None


def committed(place: Path, name: str) -> str:
    """A file as the commit has it that a checkout is at; empty if it has none."""
    return git(place, "show", f"HEAD:{name}") if blob_of(place, "HEAD", name) else ""
