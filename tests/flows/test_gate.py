"""`retrain` as it is left alone: who becomes champion, who does not, the way back, and a person's word in between."""

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from rl.files import folder_hash
from tests.flows.conftest import asked
from tracking import runs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
NAME = "anamnesis-doctor"


class Project:
    """A tiny project and its registry."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment

    def run(self, *command: str, ok: bool = True) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert not ok or done.returncode == 0, done.stdout[-4000:]
        return done.stdout

    def retrain(self, *options: str) -> str:
        return self.run(sys.executable, "-m", "flows.retrain", *options)

    def git(self, *words: str) -> str:
        return self.run("git", *words).strip()

    def change(self, file: str, key: str, value: str) -> None:
        text = (self.folder / file).read_text()
        changed = re.sub(rf"(?m)^(\s*|.*[{{ ]){key}: [^,}}\s]+", rf"\g<1>{key}: {value}", text, count=1)
        assert changed != text
        (self.folder / file).write_text(changed)

    @property
    def registry(self) -> Any:
        return runs.mlflow.MlflowClient(f"sqlite:///{self.folder / 'mlruns/mlflow.db'}")

    def champion(self) -> Any:
        """The version in use; its folder is what was registered."""
        found = self.registry.get_model_version_by_alias(NAME, "champion")
        assert folder_hash(Path(found.tags["path"])) == found.tags["sha256"]
        return found

    def decisions(self) -> int:
        return len(list(self.folder.glob("runs/gates/*.json")))


@pytest.fixture(scope="module")
def project(copy_project: Callable[[str], Path], environment: dict[str, str]) -> Project:
    """A project whose first doctor became champion."""
    made = Project(copy_project("gated"), environment)
    text = (made.folder / "params.yaml").read_text()
    head, retrain = text.split("\nretrain:")
    retrain = retrain.replace("  cases: 24", "  cases: 60").replace("min_cases: 200", "min_cases: 50")
    (made.folder / "params.yaml").write_text(f"{head}\nretrain:{retrain}")
    made.change("params.yaml", "turns_margin", "8")  # a sabotaged doctor ends early
    made.change("params.yaml", "max_stalled_steps", "9")  # or the sabotaged training would stop itself
    told = made.retrain()
    assert "promoted: version 1 is the champion (better: accuracy" in told, told[-2000:]
    return made


@pytest.fixture(scope="module")
def sabotaged(project: Project) -> Iterator[Project]:
    """The same, after a challenger who learned at a rate that leaves nothing of it."""
    project.change("recipes/grpo.yaml", "learning_rate", "1.0")
    told = project.retrain()
    assert "not promoted: version 1 stays (right more often: accuracy" in told, told[-2000:]
    return project


def test_nothing_new_compares_nothing(project: Project) -> None:
    before = project.decisions()
    assert "unchanged: version 1 is the champion already, nothing was compared" in project.retrain()
    assert project.decisions() == before


def test_a_version_says_where_it_comes_from(project: Project) -> None:
    champion = project.champion()
    assert re.search(r"\| trained \| \d\.\d{3} \|", champion.description)
    for name in ("algorithm", "git.sha", "dvc.md5 data/cases", "dvc.md5 models/doctor", "gate", "gate.reason"):
        assert champion.tags[name], name
    ids = (Path(champion.tags["path"]) / "learned_from.txt").read_text().split()
    assert len(ids) > 200
    assert not set(ids) & set(_test_ids(project.folder))


def _test_ids(folder: Path) -> list[str]:
    cases = pd.read_parquet(folder / "data/cases/cases.parquet")
    return list(cases[cases["split"] == "test"]["case_id"])


def test_a_worse_challenger_leaves_the_champion_and_is_kept_with_the_reason(sabotaged: Project) -> None:
    assert str(sabotaged.champion().version) == "1"
    worse = sabotaged.registry.get_model_version_by_alias(NAME, "challenger")
    assert str(worse.version) == "2"
    assert worse.tags["gate"] == "not promoted"
    assert worse.tags["gate.against"] == "version 1"
    before = sabotaged.decisions()
    assert "unchanged: version 2 was not promoted before, nothing was compared (right more often" in sabotaged.retrain()
    assert sabotaged.decisions() == before


def test_a_better_challenger_takes_the_place_and_the_way_back_is_one_command(sabotaged: Project) -> None:
    sabotaged.registry.set_registered_model_alias(NAME, "champion", "2")  # as somebody might, in MLflow's pages
    sabotaged.run("git", "checkout", "-q", "recipes/grpo.yaml")
    told = sabotaged.retrain()
    assert "promoted: version 1 is the champion" in told, told[-2000:]
    assert sabotaged.champion().tags["replaced"] == "2"
    back = sabotaged.run(sys.executable, "-m", "flows.rollback", "--reason", "it felt worse")
    assert "rolled back: version 2 is the champion again" in back
    assert str(sabotaged.champion().version) == "2"
    told = sabotaged.retrain()
    assert "not promoted: version 2 stays (rolled back to version 2 on" in told, told[-2000:]
    assert "it felt worse" in told
    back = sabotaged.run(sys.executable, "-m", "flows.rollback", "--version", "1")
    assert "version 1 is the champion again" in back
    assert "error: anamnesis-doctor has no version 9" in sabotaged.run(
        sys.executable, "-m", "flows.rollback", "--version", "9", ok=False
    )


@pytest.mark.course
def test_an_equal_challenger_leaves_the_champion(sabotaged: Project) -> None:
    sabotaged.run("git", "checkout", "-q", "recipes/grpo.yaml")
    sabotaged.retrain()  # the champion's own, made before
    card = sabotaged.folder / "models/doctor/README.md"
    text = card.read_text()
    card.unlink()  # it may be a link into DVC's cache
    card.write_text(text + "\nThe same doctor in another folder.\n")
    sabotaged.run(sys.executable, "-m", "dvc", "commit", "-q", "--force", "train_doctor")
    told = sabotaged.retrain()
    equal = sabotaged.registry.get_model_version_by_alias(NAME, "challenger")
    assert equal.tags["sha256"] != sabotaged.champion().tags["sha256"]
    stays = f"not promoted: version {sabotaged.champion().version} stays (right more often: accuracy "
    assert re.search(re.escape(stays) + r"(\S+) against \1, \+0\.000 ", told), told[-2000:]
    card.unlink()
    card.write_text(text)
    sabotaged.run(sys.executable, "-m", "dvc", "commit", "-q", "--force", "train_doctor")


def until(environment: dict[str, str], flow_run: str, wanted: str, seconds: float = 300) -> None:
    """Wait for a state of a flow run."""
    deadline = time.monotonic() + seconds
    while (state := asked(environment, f"/flow_runs/{flow_run}")["state"])["name"] != wanted:
        assert state["type"] not in ("FAILED", "CRASHED", "COMPLETED"), state
        assert time.monotonic() < deadline, state
        time.sleep(1)


def at_rest(worker: int, seconds: float = 60) -> None:
    """Wait until a worker has let go of what it ran: resumed at once, the run would end it (Prefect 3.7.7)."""
    deadline = time.monotonic() + seconds
    while psutil.Process(worker).children(recursive=True):
        assert time.monotonic() < deadline
        time.sleep(1)
    time.sleep(5)


@pytest.fixture(scope="module")
def worker(sabotaged: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    """Of the project as it is deployed, with a person's word asked for."""
    sabotaged.change("params.yaml", "approval", "true")
    sabotaged.run("prefect", "work-pool", "create", "gated", "--type", "process")
    deployed = (sabotaged.folder / "prefect.yaml").read_text().replace("name: local, job", "name: gated, job")
    (sabotaged.folder / "prefect.yaml").write_text(deployed)
    sabotaged.git("checkout", "-q", "recipes/grpo.yaml")  # what sabotaged the challenger is not deployed
    sabotaged.git("add", "-A")  # a deployed run works on what is committed
    sabotaged.git("commit", "-qm", "as deployed")
    sabotaged.run("prefect", "--no-prompt", "deploy", "--name", "retrain/weekly")
    started = subprocess.Popen(
        ["prefect", "worker", "start", "--pool", "gated", "--limit", "1"],
        cwd=sabotaged.folder,
        env={**sabotaged.environment, "PREFECT_WORKER_QUERY_SECONDS": "2"},
        stdout=(tmp_path_factory.mktemp("worker") / "log").open("w"),
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    yield started
    started.send_signal(signal.SIGINT)
    started.wait(30)


def deployed_run(project: Project, *parameters: str) -> str:
    """Ask for a run of the deployment; its id."""
    words = [word for parameter in parameters for word in ("--param", parameter)]
    shown = project.run("prefect", "deployment", "run", "retrain/weekly", *words)
    return re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", shown)[0]


def test_a_person_is_asked_and_the_worker_is_free_meanwhile(
    sabotaged: Project, worker: subprocess.Popen[bytes]
) -> None:
    sabotaged.registry.set_registered_model_alias(NAME, "champion", "2")
    environment = sabotaged.environment
    flow_run = deployed_run(sabotaged)
    until(environment, flow_run, "Suspended")
    assert asked(environment, f"/flow_runs/{flow_run}")["name"] == "retrain grpo-s0-starter"
    assert str(sabotaged.champion().version) == "2"
    at_rest(worker.pid)
    given = {"run_input": {"promote": True, "why": "read ten consultations"}}
    assert asked(environment, f"/flow_runs/{flow_run}/resume", given)["status"] == "ACCEPT"
    until(environment, flow_run, "Completed")
    champion = sabotaged.champion()
    assert str(champion.version) == "1"
    assert champion.tags["gate.reason"].endswith("; read ten consultations")
    pages = asked(environment, "/artifacts/filter", {"artifacts": {"key": {"any_": ["gate"]}}, "sort": "CREATED_DESC"})
    assert pages[0]["data"].startswith("# Promoted")
    assert "- a person said: read ten consultations" in pages[0]["data"]


class Listener(ThreadingHTTPServer):
    """Keeps what is posted to it."""

    def __init__(self) -> None:
        self.told: list[str] = []
        super().__init__(("127.0.0.1", 0), Posted)


class Posted(BaseHTTPRequestHandler):
    server: Listener

    def do_POST(self) -> None:
        self.server.told.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def alerts(sabotaged: Project) -> Iterator[list[str]]:
    """What a webhook is told that stands in Prefect under the name for alerts."""
    with Listener() as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        make = (
            "from prefect.blocks.notifications import CustomWebhookNotificationBlock as Block; import sys; "
            "Block(name='ops', url=sys.argv[1], method='POST', json_data={'text': '{{subject}}: {{body}}'})"
            ".save('anamnesis-alerts', overwrite=True)"
        )
        sabotaged.run(sys.executable, "-c", make, f"http://127.0.0.1:{listener.server_port}/")
        yield listener.told
        listener.shutdown()


@pytest.mark.course
def test_who_is_to_know_is_told_of_a_deployed_run_that_fails_or_is_killed(
    sabotaged: Project, worker: subprocess.Popen[bytes], alerts: list[str]
) -> None:
    ended(sabotaged.environment, deployed_run(sabotaged, "branch=a b"), "FAILED")
    told = next_of(alerts)
    assert "retrain grpo-s0-starter has failed" in told
    assert "branch 'a b' is no name that git takes" in told
    ended(sabotaged.environment, deployed_run(sabotaged, "max_hours=0.0005"), "FAILED")
    assert "not done after 0.0005 hours" in next_of(alerts)
    at_rest(worker.pid)
    killed = deployed_run(sabotaged)
    until(sabotaged.environment, killed, "Running")
    time.sleep(3)
    for process in psutil.Process(worker.pid).children(recursive=True):
        process.kill()
    ended(sabotaged.environment, killed, "CRASHED")
    assert "retrain grpo-s0-starter has crashed" in next_of(alerts)
    assert not alerts


def next_of(alerts: list[str], seconds: float = 60) -> str:
    """The next message; it is sent after the state is told."""
    deadline = time.monotonic() + seconds
    while not alerts:
        assert time.monotonic() < deadline, "nobody was told"
        time.sleep(0.5)
    return alerts.pop(0)


def ended(environment: dict[str, str], flow_run: str, wanted: str, seconds: float = 300) -> None:
    """Wait for the type of the state that a flow run ends in."""
    deadline = time.monotonic() + seconds
    while (state := asked(environment, f"/flow_runs/{flow_run}")["state"])["type"] != wanted:
        assert state["type"] not in ("FAILED", "CRASHED", "COMPLETED", "CANCELLED"), state
        assert time.monotonic() < deadline, state
        time.sleep(1)


@pytest.mark.course
def test_on_a_branch_nothing_of_the_users_changes_and_the_commit_gives_the_same_doctor(
    sabotaged: Project, worker: subprocess.Popen[bytes]
) -> None:
    project = sabotaged
    project.run("git", "reset", "-q", "--hard", "HEAD")
    project.change("params.yaml", "approval", "false")
    project.retrain()
    project.git("add", "-A")
    project.git("commit", "-qm", "tiny, with its lock")
    project.change("params.yaml", "seed", "77")  # an edit that nobody committed
    before = (project.git("status", "--porcelain"), folder_hash(project.folder / "models/doctor"))
    told = project.retrain("--branch", "by-hand")
    assert "not committed and therefore not used: params.yaml" in told
    assert "unchanged: version 1 is the champion already, nothing was compared" in told
    assert (project.git("status", "--porcelain"), folder_hash(project.folder / "models/doctor")) == before
    assert not project.git("branch", "--list", "by-hand")  # nothing new, no commit
    project.git("checkout", "-q", "params.yaml")
    project.change("recipes/grpo.yaml", "learning_rate", "0.02")
    project.git("commit", "-qam", "faster")
    head = project.git("rev-parse", "HEAD")
    told = project.retrain("--branch", "by-hand")
    challenger = project.registry.get_model_version_by_alias(NAME, "challenger")
    assert int(challenger.version) > 2, told[-2000:]
    assert "promoted: version" in told.splitlines()[-1]
    commit = project.git("rev-parse", "by-hand")
    assert challenger.tags["retrain.commit"] == commit
    assert challenger.tags["git.sha"] == head
    assert challenger.tags["git.dirty"] == "false"
    changed = set(project.git("diff", "--name-only", head, commit).split())
    assert "dvc.lock" in changed
    assert all(name == "dvc.lock" or name.startswith(("metrics/", "plots/")) for name in changed)
    assert project.git("status", "--porcelain") == ""
    assert folder_hash(project.folder / "models/doctor") == before[1]
    project.git("merge", "-q", "by-hand")  # as the user takes it over
    project.run(sys.executable, "-m", "dvc", "checkout", "-q")
    assert folder_hash(project.folder / "models/doctor") == challenger.tags["sha256"]
    told = project.run(sys.executable, "-m", "commands.reproduce", "challenger")
    assert told.endswith(
        f"checked out: the weights of version {challenger.version}, sha256 {challenger.tags['sha256']}\n"
    )
    told = project.run(sys.executable, "-m", "commands.reproduce", str(challenger.version), "--again")
    assert told.endswith(
        f"trained again: the weights of version {challenger.version}, sha256 {challenger.tags['sha256']}\n"
    )
    place = project.folder / "runs/reproduced" / str(challenger.version)
    assert list(place.glob("checkpoints/*/*/steps/00004"))  # trained there, from nothing
    told = project.run(sys.executable, "-m", "commands.reproduce", "1", ok=False)
    assert "error: version 1 was made from files that differ from commit" in told
