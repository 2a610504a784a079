"""A checkout of its own for retraining, with real git and real DVC."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from doctor.parameters import ROOT
from tasks import repository
from tasks import workspace as module
from tasks.repository import WorkspaceError
from tasks.workspace import PLACE, keep, push, record, workspace


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def dvc(folder: Path, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "dvc", *words], cwd=folder, capture_output=True, check=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """With a parameter in git, data in DVC, and an edit that nobody committed."""
    made = tmp_path / "project"
    made.mkdir()
    git(made, "init", "-q", "-b", "main")
    dvc(made, "init", "-q")
    (made / ".gitignore").write_text("/runs/\n")
    (made / "params.yaml").write_text("seed: 0\n")
    (made / "cases.csv").write_text("a,b\n")
    dvc(made, "add", "-q", "cases.csv")
    git(made, "add", "-A")
    git(made, "commit", "-qm", "start")
    (made / "params.yaml").write_text("seed: 9\n")
    return made


@pytest.fixture
def without_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same without DVC, whose every command takes a second."""
    made = tmp_path / "project"
    made.mkdir()
    git(made, "init", "-q", "-b", "main")
    (made / ".gitignore").write_text("/runs/\n")
    (made / "params.yaml").write_text("seed: 0\n")
    git(made, "add", "-A")
    git(made, "commit", "-qm", "start")
    (made / "params.yaml").write_text("seed: 9\n")
    monkeypatch.setattr(module, "_bring_data", lambda *_: None)
    return made


def state(project: Path) -> tuple[str, ...]:
    """Of the user's checkout."""
    return (
        git(project, "symbolic-ref", "HEAD"),
        git(project, "rev-parse", "HEAD"),
        git(project, "status", "--porcelain"),
        (project / "params.yaml").read_text(),
    )


def test_work_is_done_on_the_commit_and_kept_on_a_branch_and_the_users_files_stay(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = state(project)
    with workspace(project, "retrained") as place:
        assert (place / "params.yaml").read_text() == "seed: 0\n"
        assert (place / "cases.csv").read_text() == "a,b\n"
        (place / "dvc.lock").write_text("lock: 1\n")
        made = keep(place, "retrained", "[retrain] one")
    assert "not committed and therefore not used: params.yaml" in caplog.text
    assert made == git(project, "rev-parse", "retrained")
    assert git(project, "show", "retrained:dvc.lock") == "lock: 1"
    assert git(project, "diff", "--name-only", "main", "retrained") == "dvc.lock"
    assert state(project) == before


@pytest.mark.slow
def test_the_next_goes_on_from_the_branch_unless_the_project_has(project: Path) -> None:
    with workspace(project, "retrained") as place:
        (place / "dvc.lock").write_text("lock: 1\n")
        first = keep(place, "retrained", "one")
    with workspace(project, "retrained") as place:
        assert (place / "dvc.lock").read_text() == "lock: 1\n"
        assert keep(place, "retrained", "nothing new") is None
    git(project, "commit", "-qam", "seed 9")
    with workspace(project, "retrained") as place:
        assert not (place / "dvc.lock").exists()
        assert (place / "params.yaml").read_text() == "seed: 9\n"
        (place / "dvc.lock").write_text("lock: 2\n")
        second = keep(place, "retrained", "two")
    assert second is not None
    assert git(project, "rev-list", "--parents", "-1", "retrained").split()[1:] == [
        git(project, "rev-parse", "main"),
        first,
    ]


@pytest.mark.slow
def test_one_at_a_time_and_what_was_killed_leaves_nothing_in_the_way(project: Path) -> None:
    with (
        workspace(project, "retrained"),
        pytest.raises(WorkspaceError, match="another retraining is at work"),
        workspace(project, "retrained"),
    ):
        pass
    (project / PLACE / "left").write_text("over")
    with workspace(project, "retrained") as place:
        assert not (place / "left").exists()


@pytest.mark.parametrize(
    ("branch", "told"), [("main", "branch 'main' is checked out in"), ("a b", "branch 'a b' is no name that git takes")]
)
def test_a_branch_that_cannot_be_moved_is_refused_in_a_line(project: Path, branch: str, told: str) -> None:
    with pytest.raises(WorkspaceError, match=told), workspace(project, branch):
        pass
    assert not (project / PLACE).exists()


def test_what_is_no_repository_is_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="has no commit to retrain from"), workspace(tmp_path, "retrained"):
        pass


@pytest.mark.slow
def test_a_remote_gives_the_data_and_gets_the_branch(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(repository, "PAUSES_S", (0, 0))
    dvc(project, "remote", "add", "-q", "-d", "shared", "../shared")  # kept as it is seen from the project
    git(project, "add", ".dvc/config")
    git(project, "commit", "-qm", "remote")
    dvc(project, "push", "-q")
    subprocess.run(["rm", "-rf", str(project / ".dvc/cache")], check=True)
    git(tmp_path, "init", "-q", "--bare", "origin.git")
    with workspace(project, "retrained") as place:
        assert (place / "cases.csv").read_text() == "a,b\n"
        (place / "dvc.lock").write_text("schema: '2.0'\nstages: {}\n")
        keep(place, "retrained", "one")
        assert "branch retrained was not pushed" in str(push(place, "retrained"))
        assert "again in" not in caplog.text  # there is no origin, and waiting makes none
        git(project, "remote", "add", "origin", str(tmp_path / "away.git"))
        assert "branch retrained was not pushed" in str(push(place, "retrained"))
        assert sum("; again in 0 s" in line for line in caplog.messages) == 2
        git(project, "remote", "remove", "origin")
        git(project, "remote", "add", "origin", str(tmp_path / "origin.git"))
        assert push(place, "retrained") is None
        assert not (place.parent / "shared").exists()
    assert git(tmp_path / "origin.git", "rev-parse", "retrained") == git(project, "rev-parse", "retrained")


@pytest.fixture
def elsewhere(without_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another machine's clone of the project; both have one `origin`."""
    monkeypatch.setattr(repository, "PAUSES_S", (0, 0))
    monkeypatch.setattr(module, "dvc", lambda *_, **__: "")
    git(tmp_path, "clone", "-q", "--bare", str(without_data), "origin.git")
    git(without_data, "remote", "add", "origin", str(tmp_path / "origin.git"))
    git(tmp_path, "clone", "-q", str(tmp_path / "origin.git"), "elsewhere")
    return tmp_path / "elsewhere"


def a_night(project: Path, name: str) -> str:
    """What one run commits and sends."""
    with workspace(project, "retrained", shared=True) as place:
        (place / name).write_text("new")
        made = keep(place, "retrained", name)
        assert push(place, "retrained") is None
    assert made is not None
    return made


def test_a_branch_that_is_sent_begins_where_another_machine_left_it(without_data: Path, elsewhere: Path) -> None:
    a_night(without_data, "monday")
    a_night(elsewhere, "tuesday")
    last = a_night(without_data, "wednesday")
    assert git(without_data, "diff", "--name-only", "main", last).split() == ["monday", "tuesday", "wednesday"]
    assert git(elsewhere, "ls-remote", "origin", "refs/heads/retrained").split()[0] == last


def test_an_unsent_night_is_sent_with_the_next(without_data: Path, elsewhere: Path) -> None:
    a_night(without_data, "monday")
    with workspace(without_data, "retrained", shared=True) as place:
        (place / "tuesday").write_text("new")
        keep(place, "retrained", "not sent")
    a_night(without_data, "wednesday")
    assert git(elsewhere, "ls-remote", "origin", "refs/heads/retrained").split()[0] == git(
        without_data, "rev-parse", "retrained"
    )


def test_two_branches_of_one_name_are_refused_before_anything_is_made(without_data: Path, elsewhere: Path) -> None:
    a_night(without_data, "monday")
    git(elsewhere, "branch", "-q", "retrained", git(elsewhere, "commit-tree", "HEAD^{tree}", "-m", "another"))
    told = r"branch retrained is \w{12} here and \w{12} at origin.* git merge origin/retrained\)"
    with pytest.raises(WorkspaceError, match=told), workspace(elsewhere, "retrained", shared=True):
        pass
    assert not (elsewhere / PLACE).exists()


def test_an_origin_that_is_away_stops_no_night(
    without_data: Path, elsewhere: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    a_night(without_data, "monday")
    (tmp_path / "origin.git").rename(tmp_path / "away.git")
    with workspace(without_data, "retrained", shared=True) as place:
        assert (place / "monday").exists()
    assert "origin could not be read, branch retrained goes on from what is here" in caplog.text


def test_a_commit_needs_no_name(project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "user.useConfigOnly")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "true")
    with workspace(project, "retrained") as place:
        (place / "new").write_text("x")
        made = keep(place, "retrained", "one")
    assert made is not None
    assert git(project, "log", "-1", "--format=%an", "retrained") == "anamnesis"


def test_what_came_in_is_a_commit_of_its_own_and_the_branch_moves_with_the_rest(without_data: Path) -> None:
    with workspace(without_data, "retrained") as place:
        (place / "new.csv").write_text("a\n")
        record(place, ["new.csv"], "[data] one")
        assert git(place, "status", "--porcelain") == ""
        assert not git(without_data, "branch", "--list", "retrained")  # a kill here leaves the branch as it was
        made = keep(place, "retrained", "[retrain] nothing else changed")
    assert made == git(without_data, "rev-parse", "retrained")
    assert git(without_data, "diff", "--name-only", "main", "retrained") == "new.csv"


@pytest.mark.slow
def test_a_folder_of_dvcs_keeps_what_came_in(project: Path) -> None:
    (project / "own").mkdir()
    (project / "own" / "old.csv").write_text("old\n")
    dvc(project, "add", "-q", "own")
    git(project, "add", ".gitignore", "own.dvc")
    git(project, "commit", "-qm", "own")
    with workspace(project, "retrained") as place:
        (place / "own" / "new.csv").write_text("new\n")
        record(place, ["own/new.csv"], "[data] one")
        keep(place, "retrained", "[retrain] one")
    with workspace(project, "retrained") as place:
        assert (place / "own" / "new.csv").read_text() == "new\n"
    assert git(project, "diff", "--name-only", "main", "retrained") == "own.dvc"


def test_what_came_in_stays_when_the_project_goes_on_without_the_branch(without_data: Path) -> None:
    with workspace(without_data, "retrained") as place:
        (place / "new.csv").write_text("a\n")
        (place / "dvc.lock").write_text("lock: 1\n")
        record(place, ["new.csv"], "[data] one")
        first = keep(place, "retrained", "[retrain] one")
    git(without_data, "commit", "-qam", "seed 9")
    with workspace(without_data, "retrained") as place:
        assert (place / "new.csv").read_text() == "a\n"
        assert (place / "params.yaml").read_text() == "seed: 9\n"
        assert not (place / "dvc.lock").exists()  # the project's own, or none
        keep(place, "retrained", "[retrain] two")
    assert git(without_data, "merge-base", "retrained", str(first)) == first
    git(without_data, "merge", "-q", "retrained")
    git(without_data, "rm", "-q", "new.csv")
    git(without_data, "commit", "-qm", "not that one")
    with workspace(without_data, "retrained") as place:
        assert not (place / "new.csv").exists()


def test_a_file_that_both_changed_is_for_the_user_to_mend(without_data: Path) -> None:
    with workspace(without_data, "retrained") as place:
        (place / "new.csv").write_text("a\n")
        record(place, ["new.csv"], "[data] one")
        keep(place, "retrained", "[retrain] one")
    (without_data / "new.csv").write_text("mine\n")
    git(without_data, "add", "new.csv")
    git(without_data, "commit", "-qm", "mine")
    with (
        pytest.raises(WorkspaceError, match=r"new\.csv is another on branch retrained .* run: git merge retrained"),
        workspace(without_data, "retrained"),
    ):
        pass


def test_a_workspace_that_was_killed_while_git_made_it_is_made_anew(without_data: Path) -> None:
    with workspace(without_data, "retrained"):
        pass
    (without_data / ".git/worktrees/workspace/locked").write_text("initializing")
    (without_data / ".git/refs/heads/retrained.lock").touch()
    with workspace(without_data, "retrained") as place:
        (place / "new.csv").write_text("a\n")
        assert keep(place, "retrained", "one") is not None


HANGS = """#!/bin/sh
case " $* " in *" {word} "*)
    env > {folder}/environment
    sleep 60 &
    echo $! >> {folder}/started
    wait;;
esac
exec {real} "$@"
"""


def hanging(folder: Path, word: str, real: str) -> Path:
    """A program that hangs, with another that it started, where it is told a word."""
    made = folder / "bin" / Path(real).name
    made.parent.mkdir()
    made.write_text(HANGS.format(word=word, folder=folder, real=real))
    made.chmod(0o755)
    return made


def started(folder: Path) -> list[int]:
    return [int(pid) for pid in (folder / "started").read_text().split()]


def gone(folder: Path) -> bool:
    """Whether all that was started ends, though nobody may wait for it."""
    deadline = time.monotonic() + 10
    while any(map(runs, started(folder))) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(runs, started(folder)))


def runs(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


@pytest.mark.parametrize(
    ("chosen", "asked_by"), [({}, "ssh -o BatchMode=yes"), ({"GIT_SSH_COMMAND": "ssh -i mine"}, "ssh -i mine")]
)
def test_a_remote_of_gits_that_hangs_is_not_waited_for(
    without_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: dict[str, str], asked_by: str
) -> None:
    for name in ("GIT_SSH_COMMAND", "GIT_SSH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(repository, "PAUSES_S", (0, 0))
    monkeypatch.setattr(module, "BRANCH_S", 0.5)
    monkeypatch.setattr(module, "dvc", lambda *_: "")
    git(without_data, "remote", "add", "origin", str(tmp_path / "origin.git"))
    monkeypatch.setenv("PATH", f"{hanging(tmp_path, 'push', str(shutil.which('git'))).parent}:{os.environ['PATH']}")
    told = str(push(without_data, "main"))
    assert re.search(
        r"branch main was not pushed: `git .*push --quiet origin refs/heads/main` did not end within 0\.5 s", told
    )
    assert "\n" not in told
    assert len(started(tmp_path)) == 3
    assert gone(tmp_path)
    environment = (tmp_path / "environment").read_text().splitlines()
    assert {"GIT_TERMINAL_PROMPT=0", f"GIT_SSH_COMMAND={asked_by}"} <= set(environment)


def test_a_way_of_ssh_in_gits_configuration_stays(without_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GIT_SSH_COMMAND", raising=False)
    git(without_data, "config", "core.sshCommand", "ssh -i mine")
    assert repository._unattended(without_data) == {"GIT_TERMINAL_PROMPT": "0"}


@pytest.mark.slow
def test_a_remote_of_dvcs_that_hangs_is_not_waited_for(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dvc(project, "remote", "add", "-q", "-d", "shared", str(tmp_path / "shared"))
    git(project, "add", ".dvc/config")
    git(project, "commit", "-qm", "remote")
    monkeypatch.setattr(repository, "PAUSES_S", ())
    monkeypatch.setattr(module, "DATA_S", 0.5)
    monkeypatch.setattr(sys, "executable", str(hanging(tmp_path, "pull", sys.executable)))
    with workspace(project, "retrained") as place:
        assert (place / "cases.csv").read_text() == "a,b\n"
    assert (
        f"only what is cached here is used: `{Path(sys.executable).name} -m dvc pull --quiet --allow-missing` did not end within 0.5 s"
        in caplog.text
    )
    assert gone(tmp_path)


def test_an_interrupt_ends_what_is_waited_for(tmp_path: Path) -> None:
    waits = (
        "import os, sys; from pathlib import Path; from tasks.repository import _told; print('ready', flush=True)\n"
        f"_told(['sh', '-c', 'sleep 60 & echo $! > started; wait'], dict(os.environ), Path({str(tmp_path)!r}))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", waits],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    while not (tmp_path / "started").exists() or not started(tmp_path):
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    child.wait(10)
    assert gone(tmp_path)


def test_what_went_wrong_is_told_without_a_password(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match=r"`sh .*` failed: no way to https://host/data$"):
        repository._told(["sh", "-c", "echo no way to https://me:secret@host/data; exit 1"], dict(os.environ), tmp_path)
