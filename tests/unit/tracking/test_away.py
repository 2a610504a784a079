"""A real MLflow server that dies in the middle of a training, and one that is not there."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import mlflow
import pytest
from mlflow.utils.credentials import get_default_host_creds

from doctor.parameters import ROOT
from rl.files import folder_hash
from tasks.registry import immutable_copy
from tasks.server import free_port
from tracking import recorder as module
from tracking import registry, runs, store
from tracking.errors import AwayError, TrackingError, without_password

STEPS = 6


class Server:
    """`mlflow server` on a database of its own; may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        database, artifacts = f"sqlite:///{self.folder}/server.db", str(self.folder / "artifacts")
        words = ["server", "--port", str(self.port), "--workers", "1", "--backend-store-uri", database]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *words, "--artifacts-destination", artifacts],
            stdout=(self.folder / "server.log").open("a"),
            stderr=subprocess.STDOUT,
            env={name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"},
            process_group=0,
        )
        deadline = time.monotonic() + 180
        while True:
            try:
                urllib.request.urlopen(f"{self.uri}/health", timeout=2).close()
                return
            except OSError:
                assert time.monotonic() < deadline, (self.folder / "server.log").read_text()
                time.sleep(0.3)

    def kill(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    before = mlflow.get_tracking_uri()
    running = Server(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", running.uri)
    running.start()
    yield running
    running.kill()
    mlflow.set_tracking_uri(before)


def finish(folder: Path, step: int) -> dict[str, float]:
    """What a training leaves of a step in its folder."""
    metrics = {"reward/mean": step / 10, "rollout/turns": float(step)}
    path = folder / "steps" / f"{step:05d}" / "metrics.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(metrics))
    return metrics


@pytest.mark.slow
def test_a_training_neither_waits_for_a_dead_server_nor_loses_a_point(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(module, "HOME", tmp_path)
    plan = SimpleNamespace(steps=STEPS, traces_per_step=0, keep_every=100)
    training = SimpleNamespace(
        params=SimpleNamespace(train_doctor=plan), train=(), folder=tmp_path, experience=None, pairs=None
    )

    def step(number: int) -> float:
        began = time.monotonic()
        recorder.written()
        recorder.step(number, finish(tmp_path, number))
        return time.monotonic() - began

    with runs.training_run("grpo-s0-x", "key", {}, {}, ROOT) as run_id:
        recorder = module.Recorder(training, run_id)
        recorder.step(0, {"validation/accuracy": 0.3})
        step(1)
        server.kill()
        waits = [step(number) for number in (2, 3, 4)]
        time.sleep(1)
        waits.append(step(5))
        server.start()
        waits.append(step(6))
        recorder.finish({"chosen_steps": [6], "chosen_accuracy": 0.5, "sha256": "sha"})
        recorder.close()
    assert max(waits) < 5
    client = mlflow.MlflowClient()
    points = client.get_metric_history(run_id, "reward/mean")
    assert [(point.step, point.value) for point in points] == [(n, n / 10) for n in range(1, STEPS + 1)]
    assert client.get_run(run_id).info.status == "FINISHED"
    assert sum("does not answer" in line for line in caplog.messages) == 1
    assert sum("MLflow answers again" in line for line in caplog.messages) == 1

    server.kill()
    with (
        pytest.raises(AwayError),
        runs.training_run("x", "other", {}, {}, ROOT),
    ):
        pytest.fail("there is no server")


@pytest.mark.slow
def test_a_server_is_given_the_model_and_gives_it_to_who_lacks_it(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine by its hash; and to MLflow's own `models:/`, with not a byte more or less."""
    here, there = tmp_path / "here/models/registry", tmp_path / "there/models/registry"
    model = tmp_path / "doctor"
    (model / "more").mkdir(parents=True)
    (model / "model.safetensors").write_bytes(bytes(range(256)) * 4000)
    (model / "more/config.json").write_text("{}")
    copy, sha256 = immutable_copy(model, here)
    monkeypatch.setattr(registry, "COPIES", here)
    with runs.training_run("grpo-s0-x", "key", {}, {}, ROOT) as run_id:
        pass
    client = mlflow.MlflowClient()
    half = client.create_logged_model("1", "killed", tags={"sha256": sha256, "registered": "copy"})
    first = registry.register("doctor", copy, sha256, run_id, "champion", {"gate": "promoted"})
    assert first == ("1", True)
    assert registry.register("doctor", copy, sha256, run_id, "challenger", {}) == ("1", False)
    assert [one.model_id for one in client.search_logged_models(["1"]) if one.model_id == half.model_id] == []
    version = registry.version_at("doctor", "champion", folder_hash)
    assert version is not None
    assert (version.path, version.run_id) == (copy, run_id)

    shutil.rmtree(here)
    monkeypatch.setattr(registry, "COPIES", there)
    version = registry.version_at("doctor", "champion", folder_hash)
    assert version is not None
    assert version.path == there / sha256
    assert all(not path.stat().st_mode & 0o222 for path in version.path.rglob("*") if path.is_file())
    assert registry.register("doctor", version.path, sha256, run_id, "champion", {}) == ("1", False)
    downloaded = mlflow.artifacts.download_artifacts("models:/doctor@champion", dst_path=str(tmp_path / "vllm"))
    assert folder_hash(Path(downloaded)) == sha256
    (one,) = registry.copies("doctor")
    registry.prune("doctor", one)
    fetched = registry.numbered("doctor", "1", folder_hash)
    assert fetched is not None
    assert fetched.path.is_dir()

    (fetched.path / "more/config.json").chmod(0o644)
    (fetched.path / "more/config.json").write_text("damaged")
    again = registry.numbered("doctor", "1", folder_hash)  # which the server has whole
    assert again is not None
    assert (again.path / "more/config.json").read_text() == "{}"

    shutil.rmtree(there)
    stored = next((tmp_path / "artifacts").rglob("model.safetensors"))
    stored.write_bytes(b"other")
    with pytest.raises(TrackingError, match=r"^doctor version 1 came from http://.* with other bytes"):
        registry.version_at("doctor", "champion")
    assert not (there / sha256).exists()


def test_a_server_that_is_not_there_is_named_at_once_and_without_its_password(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:secret%40@127.0.0.1:{free_port()}")
    for variable in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(variable, "of another server")
    before, began = mlflow.get_tracking_uri(), time.monotonic()
    try:
        with pytest.raises(AwayError, match=r"^the MLflow server http://127\.0\.0\.1:\d+ .* does not answer; start it"):
            store.setup(tmp_path)
        assert "@" not in mlflow.get_tracking_uri() + os.environ["MLFLOW_TRACKING_URI"]
        login = get_default_host_creds(mlflow.get_tracking_uri())
        assert (login.username, login.password) == ("me", "secret@")
    finally:
        mlflow.set_tracking_uri(before)
    assert time.monotonic() - began < 10


def test_a_copy_with_other_bytes_is_told_without_the_password_of_where_it_came_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(registry, "COPIES", tmp_path)
    monkeypatch.setattr(mlflow, "get_registry_uri", lambda: "http://me:secret@mlflow.lab:5000")
    monkeypatch.setattr(mlflow.artifacts, "download_artifacts", lambda *_, **__: None)
    with pytest.raises(TrackingError, match=r"^doctor version 1 came from http://mlflow\.lab:5000 with other bytes"):
        registry._fetch("doctor", "1", "0" * 64)


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("http://me:sec@ret@host:5000/a", "http://host:5000/a"),
        ("https://host/a@b", "https://host/a@b"),
        ("no https://me:secret@one nor //two/ for me@home", "no https://one nor //two/ for me@home"),
    ],
)
def test_an_address_is_shown_without_its_password(told: str, shown: str) -> None:
    assert without_password(told) == shown
