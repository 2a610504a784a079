"""A checkout of its own for retraining, with real git and real DVC."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.workspace import PLACE, WorkspaceError, keep, push, workspace


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


def test_a_remote_gives_the_data_and_gets_the_branch(project: Path, tmp_path: Path) -> None:
    dvc(project, "remote", "add", "-q", "-d", "shared", str(tmp_path / "shared"))
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
        git(project, "remote", "add", "origin", str(tmp_path / "origin.git"))
        assert push(place, "retrained") is None
    assert git(tmp_path / "origin.git", "rev-parse", "retrained") == git(project, "rev-parse", "retrained")


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
