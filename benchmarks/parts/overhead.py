"""Part `overhead`: how much of a training step is neither playing nor learning.

The real flow, a real Prefect server and MLflow on sqlite, in a temporary copy.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.machine import ROOT
from benchmarks.parts.base import Part, Run
from benchmarks.worker import BenchmarkError, Figures, row
from tasks.server import free_port, wait_until_healthy

EPISODES = (16, 128, 1024)
GROUP = 16
GOAL, GOAL_AT = 0.03, 128  # share of a step, at most, with that many episodes
OUTSIDE = ("tests/", "docs/", "metrics/", "plots/", "benchmarks/results/")
SETTINGS = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DVC_NO_ANALYTICS": "1",
    "GIT_AUTHOR_NAME": "bench",
    "GIT_AUTHOR_EMAIL": "bench@example.org",
    "GIT_COMMITTER_NAME": "bench",
    "GIT_COMMITTER_EMAIL": "bench@example.org",
}


def measure(run: Run) -> Part:
    """One training run per number of episodes; between its first and last step, every step is a repeat."""
    part = Part()
    project = copy_project(run.folder / "project")
    with prefect_server(run.folder) as environment:
        prepare(project, environment)
        for episodes in (16, 32) if run.quick else EPISODES:
            raw = train(project, environment, episodes, run.repeats)
            line = row([shares(figures) for figures in raw], model="models/base", episodes=episodes)
            part.rows.append(line)
            if episodes == GOAL_AT:
                part.goal(
                    f"share of a step outside rollout and update, {episodes} episodes",
                    line["median"]["outside_share"],
                    GOAL,
                    at_least=False,
                )
    part.notes.append(
        f"The bundled base model, {GROUP} episodes a case, the committed GRPO recipe and parameters, a checkpoint after every step, no validation in between. Outside: scoring, "
        "experience on disk, checkpoint, Prefect, MLflow. Patients (rules, no model) answer within the rollout; their share of it is shown."
    )
    return part


def shares(figures: Figures) -> Figures:
    """With what is outside the model's phases, and how much of the rollout the patients took."""
    outside = figures["wall_s"] - figures["rollout_s"] - figures["update_s"]
    scoring, saving = figures["score_task_s"], figures["save_task_s"]
    recording = figures["record_step_task_s"] + figures.get("record_wait_task_s", 0.0)
    return figures | {
        "outside_s": outside,
        "outside_share": outside / figures["wall_s"],
        "patients_share_of_rollout": figures.get("patients_s", 0.0) / figures["rollout_s"],
        "scoring_s": scoring,
        "saving_s": saving,
        "recording_s": recording,
        "rest_s": outside - scoring - saving - recording,
    }


def copy_project(project: Path) -> Path:
    """The checkout as it stands, without results, as a git repository of its own."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and not name.startswith(OUTSIDE) and name != "dvc.lock" and (ROOT / name).is_file():
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, project / name)
    shutil.copytree(project / "models/base", project / "models/warm_start")
    change(project / "params.yaml", {"patient_cases": {"starter": {"cases": 400}}})
    for step in (["git", "init", "-q"], ["git", "add", "-A"], ["git", "commit", "-qm", "start"]):
        subprocess.run(step, cwd=project, env=os.environ | SETTINGS, check=True)
    return project


def change(path: Path, numbers: Mapping[str, Any]) -> None:
    """Set values in a YAML file, sections within sections."""
    yaml = YAML(typ="safe")
    content = yaml.load(path)

    def into(section: Any, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, dict):
                into(section[name], value)
            else:
                section[name] = value

    into(content, numbers)
    yaml.dump(content, path)


@contextmanager
def prefect_server(folder: Path) -> Iterator[dict[str, str]]:
    """A private server on a free port; the environment to run flows under it."""
    home, port = folder / "prefect", free_port()
    home.mkdir(parents=True)
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PREFECT_", "MLFLOW_", "DVC_", "ANAMNESIS_", "PYTHONPATH"))
    }
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **inherited,
        **SETTINGS,
        "PATH": path,
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
    }
    with (folder / "server.log").open("w") as log:
        command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=folder)
    try:
        wait_until_healthy(environment["PREFECT_API_URL"], server)
        yield environment
    finally:
        server.terminate()
        server.wait(30)


def prepare(project: Path, environment: Mapping[str, str]) -> None:
    """The stages before the training."""
    call(project, environment, "flows.knowledge_base", "--out", "data/kb_index")
    call(project, environment, "flows.patient_cases", "--out", "data/cases")


def train(project: Path, environment: Mapping[str, str], episodes: int, repeats: int) -> list[Figures]:
    """A training run of that many episodes a step; the seconds of its inner steps."""
    steps = repeats + 2
    plan = {
        "experiment": f"bench-{episodes}",
        "steps": steps,
        "test_freq": steps,
        "validation_cases": 1,
        "export": "last",
    }
    change(project / "params.yaml", {"rollout": {"prompts": episodes // GROUP}, "train_doctor": plan})
    change(project / "recipes/grpo.yaml", {"group_size": GROUP, "optimizer": {"mini_batch_size": min(64, episodes)}})
    out = project.parent / f"steps-{episodes}.json"
    call(project, environment, "benchmarks.parts.flow_child", str(out), str(repeats))
    return [dict(step) for step in json.loads(out.read_text())]


def call(project: Path, environment: Mapping[str, str], module: str, *arguments: str) -> None:
    """Run a module of the copy.

    Raises:
        BenchmarkError: it failed; with the end of what it said.
    """
    command, path = [sys.executable, "-m", module, *arguments], {"PYTHONPATH": str(project)}
    done = subprocess.run(
        command,
        cwd=project,
        env={**environment, **path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BenchmarkError(f"python -m {module} failed in the copy:\n{done.stdout[-3000:]}")
