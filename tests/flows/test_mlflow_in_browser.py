"""MLflow's own pages over a store of ours, in a real browser."""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest

from tasks.server import free_port
from tests import chromium
from tests.stores import store_in
from tracking import store

CHROMIUM = chromium.find()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")]
HEADERS = "[...document.querySelectorAll('.ag-header-cell')].map(cell => cell.innerText.trim())"


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[str]:
    """`mlflow ui` over a store with two trainings and an evaluation; where it shows them."""
    with store_in(tmp_path), (tmp_path / "log").open("wb") as log:
        experiment = store.setup(tmp_path)
        client = mlflow.MlflowClient()
        for seed, accuracy, stage in (
            (0, 0.587, "train_doctor"),
            (1, 0.601, "train_doctor"),
            (2, 0.431, "evaluate_doctor"),
        ):
            run = client.create_run(experiment, tags={"stage": stage}, run_name=f"grpo-s{seed}-starter").info.run_id
            client.log_param(run, "algorithm.name", "grpo")
            client.log_param(run, "seed", seed)
            client.log_metric(run, "test/accuracy", accuracy)
            client.log_metric(run, "learn/entropy", 0.4)
            client.set_terminated(run)
        port = free_port()
        words = ["ui", "--backend-store-uri", mlflow.get_tracking_uri(), "--workers", "1", "--port", str(port)]
        server = subprocess.Popen([sys.executable, "-m", "mlflow", *words], stdout=log, stderr=log)
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_for(address, tmp_path / "log")
            yield f"{address}/#/{store.runs_place(experiment)}"
        finally:
            server.terminate()
            server.wait(30)


def _wait_for(address: str, log: Path) -> None:
    end = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
        except OSError:
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.3)
        else:
            return


def test_the_runs_come_with_what_tells_them_apart(pages: str, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    with chromium.opened(CHROMIUM, tmp_path / "profile") as tab:
        tab.width(1800)
        tab.go(pages)
        tab.until(f"{HEADERS}.includes('test/accuracy')")
        shown = tab.js(HEADERS)
        assert {"algorithm.name", "seed", "test/accuracy"} <= set(shown)
        assert "learn/entropy" not in shown
        tab.until("document.body.innerText.includes('0.587') && document.body.innerText.includes('0.601')")
        assert not tab.js("document.body.innerText.includes('0.431')")  # an evaluation
