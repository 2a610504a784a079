"""MLflow's store is made whole or not at all, and a damaged one is named."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from doctor.parameters import ROOT
from tracking import store
from tracking.errors import TrackingError
from tracking.store import mlflow

VARIABLES = ["MLFLOW_TRACKING_URI", "ANAMNESIS_HOME", "DVC_ROOT"]


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    before = mlflow.get_tracking_uri()
    yield tmp_path
    mlflow.set_tracking_uri(before)


def killed_while_it_is_made(uri, _registry):
    path = uri.removeprefix("sqlite:///")
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE experiments (experiment_id INTEGER)")
    raise KeyboardInterrupt


def test_who_may_not_describe_the_experiment_can_use_it(project, monkeypatch):
    def refuse(*_):
        raise mlflow.exceptions.MlflowException("Permission denied")

    monkeypatch.setattr(mlflow.MlflowClient, "set_experiment_tag", refuse)
    experiment = store.setup(project)
    monkeypatch.undo()
    assert store.setup(project) == experiment
    assert f"mlflow.sharedViewState.{store.VIEW}" in mlflow.MlflowClient().get_experiment(experiment).tags


@pytest.mark.parametrize(("status", "mend"), [(401, "MLFLOW_TRACKING_USERNAME"), (403, "--allowed-hosts")])
def test_a_server_that_refuses_is_told_in_a_line(project, monkeypatch, status, mend):
    class Refuses(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(status)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:secret@127.0.0.1:{server.server_port}")
        for name in ("USERNAME", "PASSWORD"):
            monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", "")  # put back at the end
        with pytest.raises(TrackingError, match=rf"refuses this with HTTP {status}; .*{mend}") as told:
            store.setup(project)
        server.shutdown()
    assert "\n" not in str(told.value)
    assert "secret" not in str(told.value)


def test_what_people_chose_to_see_stays(project):
    experiment = store.setup(project)
    view, client = f"mlflow.sharedViewState.{store.VIEW}", mlflow.MlflowClient()
    client.set_experiment_tag(experiment, view, "{}")
    client.set_experiment_tag(experiment, "mlflow.note.content", "ours")
    store.setup(project)
    tags = client.get_experiment(experiment).tags
    assert (tags[view], tags["mlflow.note.content"]) == ("{}", "ours")


def test_a_store_that_was_not_finished_is_begun_again(project, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(store.mlflow, "MlflowClient", killed_while_it_is_made)
        with pytest.raises(KeyboardInterrupt):
            store.setup(project)
    assert list((project / "mlruns").glob("mlflow.*.partial"))
    assert not (project / "mlruns" / "mlflow.db").exists()
    experiment = store.setup(project)
    assert mlflow.MlflowClient().get_experiment(experiment).name == "anamnesis"
    assert not list((project / "mlruns").glob("mlflow.*partial*"))


def test_a_journal_that_a_lost_database_left_is_not_played_into_the_new_one(project):
    database = project / "mlruns" / "mlflow.db"
    database.parent.mkdir()
    killed = "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA journal_mode=WAL');"
    killed += "c.execute('CREATE TABLE of_before (x)'); c.commit(); os._exit(0)"
    subprocess.run([sys.executable, "-c", killed, str(database)], check=True)
    database.unlink()  # or moved away, as is told of a damaged one
    assert database.with_name("mlflow.db-wal").stat().st_size
    store.setup(project)
    with closing(sqlite3.connect(database)) as made:
        tables = {name for (name,) in made.execute("SELECT name FROM sqlite_master")}
    assert "experiments" in tables
    assert "of_before" not in tables


def half_made(path):
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE experiments (experiment_id INTEGER)")


@pytest.mark.parametrize("damage", [half_made, lambda path: path.write_bytes(b"?" * 5000)], ids=["half", "no database"])
def test_a_store_that_cannot_be_used_is_named_and_left_alone(project, damage):
    database = project / "mlruns" / "mlflow.db"
    database.parent.mkdir()
    damage(database)
    with pytest.raises(TrackingError, match=r"mlruns/mlflow\.db cannot be used as MLflow's store") as caught:
        store.setup(project)
    assert "\n" not in str(caught.value)
    assert database.exists()


FORKED = """
import os, sys
from pathlib import Path
from tracking import store
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            store.setup(Path(line.strip()))
            os._exit(0)
        except Exception as error:
            print(error, flush=True)
            os._exit(1)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [6, pytest.param(20, marks=pytest.mark.course)])
def test_kills_while_the_store_is_made(tmp_path, base_seed, wanted):
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    rng = random.Random(base_seed)
    with subprocess.Popen(
        [sys.executable, "-c", FORKED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment,
    ) as maker:

        def make(name, kill_after_s=None):
            (tmp_path / name).mkdir(exist_ok=True)
            maker.stdin.write(f"{tmp_path / name}\n")
            maker.stdin.flush()
            pid, began = int(maker.stdout.readline()), time.monotonic()
            if kill_after_s is not None:
                time.sleep(kill_after_s)
                with suppress(ProcessLookupError):  # it was faster this time
                    os.kill(pid, signal.SIGKILL)
            return maker.stdout.readline().strip(), time.monotonic() - began

        code, whole_s = make("whole")
        assert code == "0"
        killed = tries = 0
        while killed < wanted and tries < 3 * wanted:
            tries += 1
            after_s = rng.uniform(0, whole_s)
            died = make(f"store {tries}", after_s)[0] == "-9"
            killed += died
            code, took_s = make(f"store {tries}")
            assert code == "0", f"killed after {after_s:.3f} s, and not made again"
            whole_s = took_s if died else whole_s / 2  # it was made before the kill: other work has let go
        maker.stdin.close()
    assert killed == wanted


@pytest.mark.parametrize("uri", ["localhost:5000", "/no/database", "sqlite://mlflow.db"])
def test_an_address_that_is_no_store_is_one_line(project, monkeypatch, uri):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(
        TrackingError, match=rf"^MLFLOW_TRACKING_URI {uri} cannot be used as MLflow's store \(.*; name an"
    ):
        store.setup(project)
