"""A registry whose database was lost, made again."""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores import store_in
from tracking import ledger, registry, runs
from tracking.errors import TrackingError
from tracking.retention import past_trainings, superfluous

TRAINING = "checkpoints/mine/first"


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project's own store, with four versions of which the second had been deleted."""
    with store_in(tmp_path_factory.mktemp("before")) as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "COPIES", root / ledger.COPIES)
        with runs.training_run("first", "first", {}, {"checkpoints": str(root / TRAINING)}, root) as run_id:
            pass
        for number in "1234":
            folder = registry.COPIES / (number * 64)
            folder.mkdir(parents=True)
            (folder / "weights").write_text(number)
            about = {"gate": "promoted", "algorithm": f"grpo {number}"}
            registry.register("doctor", folder, folder.name, run_id, "challenger", about, f"the {number}.")
        runs.mlflow.MlflowClient().delete_model_version("doctor", "2")
        registry.describe("doctor", "3", {"replaced": "1"})
        registry.point("doctor", "champion", "3")
        yield root


@pytest.fixture
def lost(before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that has all but the database; nobody has opened it yet."""
    shutil.copytree(before / ledger.COPIES, tmp_path / ledger.COPIES)
    (tmp_path / TRAINING / "global_step_1").mkdir(parents=True)
    monkeypatch.setattr(registry, "COPIES", tmp_path / ledger.COPIES)
    return tmp_path


def test_versions_aliases_and_what_was_said_of_them_come_back(lost: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), store_in(lost):
        champion = registry.version_at("doctor", "champion")
        assert champion is not None
        assert (champion.number, champion.sha256, champion.run_id) == ("3", "3" * 64, None)
        assert champion.tags["replaced"] == "1"
        assert champion.tags["algorithm"] == "grpo 3"
        assert champion.tags[ledger.RUN_LOST]
        challenger = registry.version_at("doctor", "challenger")
        assert challenger is not None
        assert challenger.number == "4"
        assert registry.numbered("doctor", "2") is None
        assert runs.mlflow.MlflowClient().get_model_version("doctor", "1").description == "the 1."
        (told,) = caplog.messages
        assert told.startswith(f"{lost}/mlruns/mlflow.db was not there")
        assert told.endswith("Made again: 3 versions of doctor, aliases challenger, champion.")
        runs.setup(lost)
        assert caplog.messages == [told]  # once
        new = registry.COPIES / ("5" * 64)
        new.mkdir()
        (new / "weights").write_text("5")
        assert registry.register("doctor", new, new.name, None, "challenger", {}) == ("5", True)


def test_who_prunes_first_after_the_loss_deletes_nothing(lost: Path) -> None:
    with store_in(lost):
        (found,) = past_trainings(lost, None)
        assert found.needed.startswith("maybe challenger (version 4), champion (version 3), whose run MLflow has lost")
        assert superfluous([found], 0, 0) == []


def test_one_killed_while_it_was_made_again_is_made_anew(lost: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, made = ledger._make, []

    def killed_at_the_third(*about: object) -> None:
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(about)
        real(*about)  # type: ignore[arg-type]

    monkeypatch.setattr(ledger, "_make", killed_at_the_third)
    with pytest.raises(KeyboardInterrupt), store_in(lost):
        pass
    assert not (lost / "mlruns/mlflow.db").exists()
    monkeypatch.setattr(ledger, "_make", real)
    with store_in(lost):
        champion = registry.version_at("doctor", "champion")
        assert champion is not None
        assert champion.number == "3"


def test_another_database_is_left_alone(lost: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with store_in(lost):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{lost}/other.db")
        runs.setup(lost)
        assert registry.version_at("doctor", "champion") is None


@pytest.mark.parametrize("text", ["", "[]", '{"versions": [{}], "aliases": {}}', '{"versions": []}'])
def test_a_damaged_ledger_is_told_in_a_line(tmp_path: Path, text: str) -> None:
    (tmp_path / ledger.COPIES).mkdir(parents=True)
    place = tmp_path / ledger.COPIES / "doctor.json"
    place.write_text(text)
    with pytest.raises(TrackingError, match=rf"^{place} is no record of a registry .*; bring back"), store_in(tmp_path):
        pass
    place.unlink()
    with store_in(tmp_path):
        assert registry.version_at("doctor", "champion") is None


def test_files_of_runs_without_their_database_are_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mlruns/artifacts/abc").mkdir(parents=True)
    with caplog.at_level(logging.WARNING), store_in(tmp_path):
        (told,) = caplog.messages
        assert told.endswith("without the runs of before.")
