"""`algorithm.name` in params.yaml and `dvc repro`: every algorithm trains on the starter clinic, tiny.

Real server, real DVC.
"""

import csv
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file

from rl.algorithms import ALGORITHMS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
OFTEN = ("ppo",)  # the others in `make course`; grpo is the one of all other flows, dpo that of stored pairs
WATCHED = {
    "ppo": ["learn/explained_variance", "learn/value_loss", "learn/critic_grad_norm"],
    "ppo_roa": [
        "learn/explained_variance",
        "learn/value_loss",
        "learn/adaptation/mse",
        "learn/adaptation/variance",
        "student/reward",
        "student/information",
    ],
    "dapo": ["learn/groups_drawn", "learn/groups_dropped", "learn/overlong_penalty"],
    "reinforce_pp": ["learn/kl_to_reference", "learn/kl_coefficient"],
    "dpo": ["learn/pairs", "learn/preferred"],
    "online_dpo": ["learn/pairs", "learn/preferred"],
}


@pytest.fixture(scope="module")
def project(copy_project: Callable[[str], Path], environment: dict[str, str]) -> Path:
    """Everything up to the warm start is there."""
    project = copy_project("algorithms")
    repro(project, environment, "warm_start")
    return project


def repro(project: Path, environment: dict[str, str], stage: str, ok: bool = True) -> str:
    done = subprocess.run(
        ["dvc", "repro", stage],
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert (done.returncode == 0) == ok, done.stdout[-4000:]
    return done.stdout


def choose(project: Path, name: str) -> None:
    path = project / "params.yaml"
    path.write_text(re.sub(r"(?m)^algorithm:\n  name: \w+", f"algorithm:\n  name: {name}", path.read_text()))


def curve(project: Path) -> list[dict[str, str]]:
    with (project / "plots/train_doctor.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.course) for name in ALGORITHMS]
)
def test_it_trains(project: Path, environment: dict[str, str], name: str) -> None:
    choose(project, name)
    out = repro(project, environment, "train_doctor")
    assert "memory: about" in out
    rows = curve(project)
    assert [int(row["step"]) for row in rows] == [1, 2, 3, 4]
    for column in ["learn/policy_loss", "learn/gradient_steps", "reward/mean", *WATCHED.get(name, [])]:
        assert all(row[column] for row in rows), column
    before, after = (
        load_file(project / model / "model.safetensors") for model in ("models/warm_start", "models/doctor")
    )
    assert any(not bool((before[key] == after[key]).all()) for key in before)
    assert "up to date" in repro(project, environment, "train_doctor")


def test_pairs_of_stored_experience_train_another_doctor(project: Path, environment: dict[str, str]) -> None:
    """Mined from a run's experience, named in the recipe; a changed file is a changed dependency."""
    choose(project, OFTEN[0])  # nothing to do where it has just run
    repro(project, environment, "train_doctor")
    folder = max(project.glob("checkpoints/*/*/steps"), key=lambda path: path.stat().st_mtime)
    pairs = project / "data/preferences/mined.jsonl"
    command = [sys.executable, "-m", "commands.preferences", str(folder), "--margin", "0.01", "--out", str(pairs)]
    subprocess.run(command, cwd=project, env=environment, check=True)
    rows = [json.loads(line) for line in pairs.read_text().splitlines()]
    assert rows
    assert all(row["chosen_reward"] > row["rejected_reward"] + 0.01 for row in rows)
    choose(project, "dpo")
    recipe = project / "recipes/dpo.yaml"
    recipe.write_text(re.sub(r"(?m)^pairs: \S+", "pairs: data/preferences/mined.jsonl", recipe.read_text()))
    repro(project, environment, "train_doctor")
    learned = curve(project)
    assert sum(float(row["learn/pairs"]) for row in learned) == len(rows)
    assert not learned[0].get("reward/mean")  # nothing was played
    pairs.write_text("\n".join(pairs.read_text().splitlines()[:-1]) + "\n{}\n")
    out = repro(project, environment, "train_doctor", ok=False)
    assert f"line {len(rows)}: no 'prompt'" in out


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("reinforce_pp", "learn/kl_to_reference"),
        pytest.param("ppo_roa", "learn/adaptation/mse", marks=pytest.mark.course),
    ],
)
def test_an_adapter_alone_learns_by_parameter(
    project: Path, environment: dict[str, str], name: str, column: str
) -> None:
    """`train_doctor.lora`, with the adapter switched off as reference, or beside a teacher's; the doctor is a plain model
    again.
    """
    choose(project, name)
    params = project / "params.yaml"
    before = params.read_text()
    params.write_text(
        re.sub(r"(?m)^  lora: null.*", "  lora: {rank: 2, alpha: 4, target_modules: [q_proj, v_proj]}", before)
    )
    out = repro(project, environment, "train_doctor")
    params.write_text(before)
    assert "frozen" not in next(line for line in out.splitlines() if "memory: about" in line)
    assert all(row[column] for row in curve(project))
    start, doctor = (
        load_file(project / model / "model.safetensors") for model in ("models/warm_start", "models/doctor")
    )
    assert {key.split(".")[-2] for key in start if not bool((start[key] == doctor[key]).all())} == {"q_proj", "v_proj"}


@pytest.mark.course
def test_the_two_phase_profile_runs(project: Path, environment: dict[str, str]) -> None:
    """`ppo_two_phase` as it is, but for the sizes that decide how long it takes."""
    subprocess.run(
        [sys.executable, "-m", "commands.profile", "ppo_two_phase", "--write"], cwd=project, env=environment, check=True
    )
    params, recipe = project / "params.yaml", project / "recipes/ppo.yaml"
    assert re.search(r"(?m)^  response_length: 1300", params.read_text())
    assert re.search(r"(?m)^  slots: 8", params.read_text())
    assert re.search(r"(?m)^  num_epochs: 3", recipe.read_text())
    params.write_text(
        re.sub(
            r"(?m)^  steps: \d+",
            "  steps: 2",
            re.sub(r"(?m)^  max_episode_tokens: \d+", "  max_episode_tokens: 1800", params.read_text()),
        )
    )
    repro(project, environment, "train_doctor")
    # 16 trajectories / 8 x 3 epochs
    assert [float(row["learn/gradient_steps"]) for row in curve(project)] == [
        6.0,
        6.0,
    ]
