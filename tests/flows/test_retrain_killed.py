"""`retrain` killed inside its writes, one after another: registry, branch, inbox and pages come out as if nobody had."""

import itertools
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import mlflow
import pytest

from tests.flows import killed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
NAME = "anamnesis-doctor"
EVERY = int(os.environ.get("KILL_EVERY", "7"))  # so manieth moment is one to die at: before and after each write
SEEN = ("gate", "gate.reason", "gate.against", "gate.decided", "inbox", "sha256")


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for name in ("MLFLOW_TRACKING_URI", "ANAMNESIS_HOME", "DVC_ROOT"):
        monkeypatch.delenv(name, raising=False)
    made = tmp_path / "start"
    for name, text in {
        "ready/weights": "strong",
        "inbox/new.md": "It hurts.",
        "inbox/scan.pdf": "%PDF",
        ".gitignore": "/inbox/\n/runs/\n/models/\n/mlruns/\n",
    }.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    (made / "runs").mkdir()
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
        subprocess.run(["git", *words], cwd=made, check=True)
    return made


def run(project: Path, at: int, after: bool) -> int | None:
    """In a process forked from one that has everything imported; how it ended."""
    process = multiprocessing.get_context("forkserver").Process(
        target=killed.retrain, args=(project, at), kwargs={"after": after}
    )
    process.start()
    process.join(120)
    return process.exitcode


def state(project: Path, environment: dict[str, str]) -> dict[str, Any]:
    """What a run leaves, without the hash of its commit and without the time."""
    client = mlflow.MlflowClient(f"sqlite:///{project / 'mlruns/mlflow.db'}")
    versions = client.search_model_versions(f"name = '{NAME}'")
    words = ["git", "-C", str(project), "rev-parse"]
    tip, tree = (
        subprocess.run([*words, name], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("retrained", "retrained^{tree}")
    )
    inbox = project / "inbox"
    names = [path.relative_to(inbox).as_posix() for path in inbox.rglob("*") if path.is_file()]
    wanted = {"artifacts": {"key": {"any_": ["gate"]}}, "limit": 200}
    request = urllib.request.Request(
        environment["PREFECT_API_URL"] + "/artifacts/filter",
        json.dumps(wanted).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        pages = [one["data"] for one in json.load(answer) if tip in one["data"]]
    return {
        "versions": [{key: one.tags.get(key) for key in SEEN} for one in versions],
        "commits": [one.tags["retrain.commit"] == tip for one in versions],
        "aliases": {alias: str(of) for alias, of in client.get_registered_model(NAME).aliases.items()},
        "copies": [path.name for path in (project / "models/registry").iterdir() if path.is_dir()],
        "tree": tree,
        "inbox": sorted(
            re.sub(r"rejected/[^/]*", "rejected/<time>", name).replace(tip[:12], "<tip>") for name in names
        ),
        "pages": [page.replace(tip, "<tip>") for page in pages],
    }


def test_a_kill_inside_any_write_changes_nothing_in_the_end(start: Path, environment: dict[str, str]) -> None:
    multiprocessing.get_context("forkserver").set_forkserver_preload(["tests.flows.killed"])
    project = start.with_name("project")
    shutil.copytree(start, project)
    assert run(project, 0, False) == 0
    expected, writes = state(project, environment), (project / "runs/writes").read_text().splitlines()
    assert expected["aliases"] == {"challenger": "1", "champion": "1"}
    assert expected["commits"] == [True]
    assert len(expected["pages"]) == 1
    assert "- admitted new.md" in expected["pages"][0]
    assert expected["inbox"] == [
        "admitted/<tip>/new.md",
        "rejected/<time>/scan.pdf",
        "rejected/<time>/scan.pdf.reason.txt",
    ]
    kinds = {"create_model_version", "set_registered_model_alias", "git update-ref", "create artifact", "into registry"}
    assert kinds <= set(writes)
    for number, after in list(itertools.product(range(1, len(writes) + 1), (False, True)))[EVERY - 1 :: EVERY]:
        project = start.with_name(f"project-{number}-{after}")
        shutil.copytree(start, project)
        where = f"{'after' if after else 'before'} write {number} ({writes[number - 1]})"
        assert run(project, number, after) == -signal.SIGKILL, where
        assert run(project, 0, False) == 0, where
        assert state(project, environment) == expected, where
        print("killed", where, "and came out the same", flush=True)
    assert os.environ.get("FAULT_COUNT") is None
