"""A registry whose database was lost, made again."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tracking import ledger, registry, runs


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project's own store, with three versions of which the second had been deleted."""
    for name in ("MLFLOW_TRACKING_URI", "ANAMNESIS_HOME", "DVC_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(registry, "COPIES", tmp_path / "models/registry")
    runs.setup(tmp_path)
    with runs.training_run("first", "first", {}, {}, tmp_path) as run_id:
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
    yield tmp_path
    runs.mlflow.set_tracking_uri(None)


def lose(store: Path) -> None:
    """All that the registry's tables hold, as where a new database takes the place of a lost one."""
    tables = ("registered_model_aliases", "registered_model_tags", "model_version_tags", "model_versions")
    with closing(sqlite3.connect(store / "mlruns/mlflow.db")) as connection, connection:
        for table in (*tables, "registered_models"):
            connection.execute(f"DELETE FROM {table}")


def test_versions_aliases_and_what_was_said_of_them_come_back(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = registry.version_at("doctor", "champion")
    assert before is not None
    lose(store)
    with caplog.at_level(logging.WARNING):
        champion = registry.version_at("doctor", "champion")
    assert champion is not None
    assert (champion.number, champion.sha256, champion.path) == ("3", "3" * 64, before.path)
    lost = {ledger.RUN_LOST: before.run_id}
    assert dict(champion.tags) == dict(before.tags) | lost
    challenger = registry.version_at("doctor", "challenger")
    assert challenger is not None
    assert challenger.number == "4"
    assert registry.numbered("doctor", "2") is None
    assert runs.mlflow.MlflowClient().get_model_version("doctor", "1").description == "the 1."
    assert "3 versions and the aliases challenger, champion were made again from" in caplog.text
    caplog.clear()
    assert registry.copies("doctor")
    assert not caplog.text  # once
    new = registry.COPIES / ("5" * 64)
    new.mkdir()
    (new / "weights").write_text("5")
    assert registry.register("doctor", new, new.name, None, "challenger", {}) == ("5", True)


def test_one_killed_while_it_was_made_again_is_made_anew(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lose(store)
    real, made = ledger._make, []

    def killed_at_the_third(*about: object) -> None:
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(about)
        real(*about)  # type: ignore[arg-type]

    monkeypatch.setattr(ledger, "_make", killed_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        registry.version_at("doctor", "champion")
    monkeypatch.setattr(ledger, "_make", real)
    champion = registry.version_at("doctor", "champion")
    assert champion is not None
    assert (champion.number, champion.sha256) == ("3", "3" * 64)


def test_another_database_is_left_alone(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}/other.db")
    runs.setup(store)
    assert registry.version_at("doctor", "champion") is None


def test_files_of_runs_without_their_database_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("MLFLOW_TRACKING_URI", "ANAMNESIS_HOME", "DVC_ROOT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "mlruns/artifacts/abc").mkdir(parents=True)
    with caplog.at_level(logging.WARNING):
        runs.setup(tmp_path)
    runs.mlflow.set_tracking_uri(None)
    assert f"{tmp_path / 'mlruns/mlflow.db'} is not there, but files of its runs are" in caplog.text
