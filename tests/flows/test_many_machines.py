"""The starter clinic, tiny, trained by workers: as one process trains it."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file

from rl.experience import Trajectory, read_trajectories

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Four processors, by its own account."""
    os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"})
    context = ray.init(num_cpus=4, include_dashboard=False, object_store_memory=150 * 2**20, log_to_driver=False)
    yield context.address_info["gcs_address"]
    ray.shutdown()


@pytest.fixture(scope="module")
def project(copy_project: Callable[[str], Path], environment: dict[str, str]) -> Path:
    """Trained in one process, two steps, the last checkpoint chosen."""
    project = copy_project("machines")
    write(project, ("  steps: 4", "  steps: 2"), ("  export: average", "  export: last"))
    repro(project, environment)
    return project


def write(project: Path, *changes: tuple[str, str]) -> None:
    path = project / "params.yaml"
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def repro(project: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["dvc", "repro", "train_doctor"],
        cwd=project,
        env=environment | {"RAY_AUTH_MODE": "token"},  # as the cluster has it
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def doctor(project: Path) -> tuple[bytes, list[Trajectory], list[dict[str, float]]]:
    """Weights, what the first step played, and the curve without the clock, of the last run."""
    folder = max(project.glob("checkpoints/*/*"), key=lambda path: path.stat().st_mtime)
    curve = [json.loads(path.read_text()) for path in sorted(folder.glob("steps/*/metrics.json"))]
    return (
        (project / "models/doctor/model.safetensors").read_bytes(),
        read_trajectories(folder / "steps" / "00001" / "rollout.parquet"),
        [{name: value for name, value in row.items() if not name.startswith("time/")} for row in curve],
    )


def test_workers_make_the_doctor_that_one_process_makes(project, environment, cluster):
    weights, _, curve = doctor(project)
    one_and_one = f"ray: {{address: '{cluster}', trainers: 1, rollout_workers: 1"
    write(
        project,
        ("backend: local", "backend: ray  "),
        ("ray: {address: null, trainers: 1, rollout_workers: 1", one_and_one),
    )
    repro(project, environment)
    assert doctor(project)[0] == weights
    assert doctor(project)[2] == curve
    assert "up to date" in repro(project, environment)


@pytest.mark.course
def test_two_trainers_and_two_workers_make_the_same_to_rounding(project, environment, cluster):
    text = (project / "params.yaml").read_text()
    (project / "params.yaml").write_text(re.sub(r"backend: \w+ +", "backend: local ", text))
    repro(project, environment)
    _, played, curve = doctor(project)
    (project / "params.yaml").write_text(
        re.sub(
            r"address: [^,]+, trainers: \d, rollout_workers: \d",
            f"address: '{cluster}', trainers: 2, rollout_workers: 2",
            text.replace("backend: local", "backend: ray  "),
        )
    )
    repro(project, environment)
    _, others, curve_of_two = doctor(project)
    assert [(t.episode_id, t.token_ids) for t in others] == [(t.episode_id, t.token_ids) for t in played]
    assert curve_of_two[0]["learn/policy_loss"] == pytest.approx(curve[0]["learn/policy_loss"], rel=1e-3, abs=1e-6)
    weights_of_two = load_file(project / "models/doctor/model.safetensors")
    assert weights_of_two.keys() == load_file(project / "models/warm_start/model.safetensors").keys()


@pytest.mark.course
def test_workers_train_a_student_with_a_teacher_that_has_read_the_chart(project, environment, cluster):
    """Two and two, to the figures of one process, and folded."""
    path = project / "params.yaml"
    text = re.sub(r"backend: \w+ +", "backend: local ", path.read_text())
    path.write_text(re.sub(r"(?m)^algorithm:\n  name: \w+", "algorithm:\n  name: ppo_roa", text))
    repro(project, environment)
    _, played, curve = doctor(project)
    text = text.replace("backend: local", "backend: ray").replace("sharding: shard", "sharding: replicate")
    text = re.sub(
        r"address: [^,]+, trainers: \d, rollout_workers: \d",
        f"address: '{cluster}', trainers: 2, rollout_workers: 2",
        text,
    )
    path.write_text(re.sub(r"(?m)^algorithm:\n  name: \w+", "algorithm:\n  name: ppo_roa", text))
    repro(project, environment)
    _, others, curve_of_two = doctor(project)
    assert [(t.episode_id, t.token_ids) for t in others] == [(t.episode_id, t.token_ids) for t in played]
    for name in ("learn/policy_loss", "learn/adaptation/mse"):
        assert curve_of_two[0][name] == pytest.approx(curve[0][name], rel=1e-3, abs=1e-6)
    assert not (project / "models/doctor/adaptation").exists()
