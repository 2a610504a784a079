"""What past trainings may be deleted: never the champion's, never the doctor's in use, never one that runs."""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore

from commands import prune
from doctor import parameters
from rl.checkpoint import SEAL
from rl.files import folder_hash, held
from tests.stores import store_in
from tracking import registry, runs
from tracking.errors import TrackingError
from tracking.ledger import RUN_LOST
from tracking.retention import past_trainings, superfluous

PROJECT = "checkpoints/mine"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with store_in(tmp_path_factory.mktemp("project")) as root:
        yield root


@pytest.fixture
def root(store: Path) -> Path:
    """Four trainings, the first the oldest and the second the best; the first one's model is the champion, the store
    recorded it where the project lay before.
    """
    for number, accuracy in enumerate((0.5, 0.9, 0.6, 0.7)):
        folder = store / PROJECT / f"run-{number}"
        for step in (1, 2):
            (folder / f"global_step_{step}").mkdir(parents=True, exist_ok=True)
            (folder / f"global_step_{step}" / SEAL).write_text("{}")
            (folder / "validation").mkdir(exist_ok=True)
            (folder / "validation" / f"{step}.json").write_text(
                json.dumps({"validation/accuracy": accuracy * step / 2})
            )
        for file in (path for path in folder.rglob("*") if path.is_file()):
            os.utime(file, (1000.0 + number, 1000.0 + number))
    with runs.training_run("first", "first", {}, {"checkpoints": f"/elsewhere/{PROJECT}/run-0"}, store) as run_id:
        pass
    copy = store / "models" / ("a" * 64)
    copy.mkdir(parents=True, exist_ok=True)
    (copy / "weights").write_text("w")
    registry.register("doctor", copy, copy.name, run_id, "champion", {})
    return store


def going(root: Path, last: int, best: int, current: str | None = None) -> list[str]:
    return [one.folder.name for one in superfluous(past_trainings(root, current), last, best)]


def test_what_is_known_of_each(root: Path) -> None:
    newest, *_, oldest = past_trainings(root, None)
    assert (newest.folder, newest.step, newest.accuracy) == (root / PROJECT / "run-3", 2, 0.7)
    assert (newest.needed, newest.changed) == ("", 1003.0)
    assert newest.size == sum(path.stat().st_size for path in newest.folder.rglob("*") if path.is_file()) > 0
    assert oldest.needed == "champion (version 1)"


@pytest.mark.parametrize(
    ("last", "best", "gone"),
    [(0, 0, ["run-3", "run-2", "run-1"]), (1, 0, ["run-2", "run-1"]), (1, 1, ["run-2"]), (9, 0, [])],
)
def test_the_newest_and_the_best_stay_and_always_the_champion(
    root: Path, last: int, best: int, gone: list[str]
) -> None:
    assert going(root, last, best) == gone


def test_a_champion_is_found_on_any_page_of_the_registry(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow gives a hundred models at a time, by name; a server has other people's."""
    client = runs.mlflow.MlflowClient()
    with contextlib.suppress(runs.MlflowException):
        client.create_registered_model("another, before it")
    search = SqlAlchemyStore.search_registered_models
    one = lambda store, asked, _, order, token: search(store, asked, 1, order, token)  # noqa: E731
    monkeypatch.setattr(SqlAlchemyStore, "search_registered_models", one)
    assert past_trainings(root, None)[-1].needed == "champion (version 1)"


def test_the_doctor_in_use_stays(root: Path) -> None:
    with runs.training_run("third", "third", {}, {"checkpoints": str(root / PROJECT / "run-2")}, root) as run_id:
        pass
    assert going(root, 0, 0, run_id) == ["run-3", "run-1"]


def test_nothing_goes_while_nobody_knows_where_the_champion_came_from(root: Path) -> None:
    assert going(root, 0, 0) == ["run-3", "run-2", "run-1"]
    client = runs.mlflow.MlflowClient()
    version = client.get_model_version_by_alias("doctor", "champion")
    client.set_registered_model_alias("doctor", "other", version.version)
    lost = client.create_model_version("doctor", version.source, None, {RUN_LOST: "gone"})
    client.set_registered_model_alias("doctor", "other", lost.version)
    assert going(root, 0, 0) == []
    told = f"maybe other (version {lost.version}), whose run MLflow has lost"
    assert {one.needed for one in past_trainings(root, None)} == {told, f"champion (version {version.version})"}
    client.set_model_version_tag("doctor", lost.version, "sha256", "of-the-lost")
    with runs.training_run("again", "again", {}, {"checkpoints": str(root / PROJECT / "run-2")}, root) as run_id:
        pass
    (root / "runs/doctors").mkdir(parents=True, exist_ok=True)
    (root / "runs/doctors/of-the-lost.json").write_text(json.dumps({"mlflow_run_id": run_id}))
    assert going(root, 0, 0) == ["run-3", "run-1"]  # its training was recorded again
    client.delete_registered_model_alias("doctor", "other")


def test_a_training_that_runs_stays(root: Path) -> None:
    program = f"import sys; from pathlib import Path; from rl.files import held\nwith held(Path({str(root / PROJECT / 'run-1')!r})): print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert going(root, 0, 0) == ["run-3", "run-2"]
        assert other.stdin is not None
        other.stdin.close()
    with held(root / PROJECT / "run-1"):
        pass


def test_a_training_that_deletes_meanwhile_is_listed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = os.walk

    def late(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
        for place, folders, names in walk(folder):
            yield place, folders, [*names, "deleted.partial"]

    sizes = [one.size for one in past_trainings(root, None)]
    monkeypatch.setattr(os, "walk", late)
    assert [one.size for one in past_trainings(root, None)] == sizes


def test_nothing_goes_unasked(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Then what was listed does, with what a kill left of an earlier time."""
    monkeypatch.setattr(parameters, "HOME", root)
    (root / PROJECT / ".run-7.deleted").mkdir()
    (root / PROJECT / ".run-2.deleted/validation").mkdir(parents=True)  # it was trained again since
    command = ["prune", "--keep-last", "1", "--keep-best", "1"]
    monkeypatch.setattr(sys, "argv", command)
    assert prune.main() == 0
    said = capsys.readouterr().out
    assert "0 of 0 copies of models" in said
    assert "run-2  goes" in said
    assert "run-0  stays: champion (version 1)" in said
    assert "1 of 4 trainings" in said
    assert "nothing was deleted; add --delete" in said
    assert (root / PROJECT / "run-2").exists()
    monkeypatch.setattr(sys, "argv", [*command, "--delete"])
    assert prune.main() == 0
    assert sorted(path.name for path in (root / PROJECT).iterdir() if path.is_dir()) == ["run-0", "run-1", "run-3"]


def test_nothing_goes_while_nobody_knows_where_the_doctor_in_use_came_from(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was trained here, and the store has lost its run."""
    monkeypatch.setattr(parameters, "HOME", root)
    doctor = root / "models/doctor"
    doctor.mkdir()
    (doctor / "weights").write_text("in use")
    runs.note_doctor(root, folder_hash(doctor), "0" * 32)
    monkeypatch.setattr(sys, "argv", ["prune", "--keep-last", "0", "--keep-best", "0"])
    assert prune.main() == 0
    said = capsys.readouterr().out
    assert "run-3  stays: maybe models/doctor, whose run MLflow has lost" in said
    assert "\n0 of " in said


@pytest.fixture
def copies(store: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Six versions: four promoted one after another, one that stood back, one that nobody decided about."""
    monkeypatch.setattr(registry, "COPIES", store / "models/registry")
    name = request.node.name.partition("[")[0]
    for number, gate in enumerate(["promoted"] * 3 + ["not promoted", "promoted", None], start=1):
        folder = registry.COPIES / hashlib.sha256(f"{name}{number}".encode()).hexdigest()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "weights").write_text(str(number))
        about = {"gate": gate, "retrain.commit": f"commit-{number}"} if gate else {}
        registry.register(name, folder, folder.name, None, "challenger", about)
    registry.describe(name, "5", {"replaced": "1"})  # after a way back, say
    registry.point(name, "champion", "5")
    return name


@pytest.mark.parametrize(("promoted", "gone"), [(0, "432"), (1, "432"), (2, "42"), (9, "4")])
def test_copies_stay_that_are_in_use_or_were_promoted_last(copies: str, promoted: int, gone: str) -> None:
    found = registry.copies(copies)
    needed = {one.number: one.needed for one in found if one.needed}
    assert needed == {"6": "challenger, not decided about", "5": "champion", "1": "the champion before"}
    assert "".join(one.number for one in registry.superfluous(found, promoted)) == gone


def test_a_version_whose_copy_went_says_so_and_how_to_have_it_again(copies: str) -> None:
    for one in registry.superfluous(registry.copies(copies), 0):
        registry.prune(copies, one)
        assert not one.folder.exists()
    assert not list(registry.COPIES.glob(".*"))
    assert [one.number for one in registry.copies(copies)] == ["6", "5", "1"]
    with pytest.raises(TrackingError, match=rf"^{copies} version 3 was pruned on [-\d]+; .*git checkout commit-3 "):
        registry.numbered(copies, "3")
    again = registry.COPIES / registry.tags_of(copies, "3")["sha256"]
    again.mkdir()
    (again / "weights").write_text("3")
    assert registry.register(copies, again, again.name, None, "challenger", {}) == ("3", False)
    assert "pruned" not in registry.tags_of(copies, "3")
    found = registry.numbered(copies, "3")
    assert found is not None
    assert found.path == again


def test_no_model_has_no_copies(store: Path) -> None:
    assert registry.copies("nobody") == []
