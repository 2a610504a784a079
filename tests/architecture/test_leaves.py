"""What the first stages load and depend on: parameters without torch, and none of the code that trains."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commands.stage_code import ROOT

HEAVY = ("torch", "transformers", "peft", "sentence_transformers", "faiss", "vllm", "openai", "ray")


def loaded(module: str) -> set[str]:
    """Which heavy libraries come with a module."""
    code = f"import sys, json, {module}; print(json.dumps(sorted(set({HEAVY!r}) & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "module",
    ["doctor.parameters", "flows.patient_cases", "commands.run", "flows.retrain, flows.rollback, tasks.reproduction"],
)
def test_parameters_cases_and_the_registry_need_no_model_library(module):
    assert loaded(module) == set()


@pytest.mark.slow
def test_a_training_in_one_process_loads_no_ray_and_a_heavy_library_would_be_seen():
    found = loaded("doctor.training")
    assert "torch" in found
    assert "ray" not in found


@pytest.mark.slow
def test_an_edit_of_the_learner_leaves_the_first_stages_up_to_date(tmp_path):
    """In a copy of what git tracks, where every stage has just run as far as DVC knows."""
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    for name in filter(None, tracked):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    for place in ("data/kb_index", "data/cases", "models/warm_start", "models/doctor", "metrics/consultations"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "made").write_text("by a stage")
    (tmp_path / "metrics" / "report.html").write_text("by a stage")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    dvc(tmp_path, "commit", "--force", "--quiet")
    assert json.loads(dvc(tmp_path, "status", "--json")) == {}
    with (tmp_path / "rl" / "learner.py").open("a") as file:
        file.write("# edited\n")
    assert set(json.loads(dvc(tmp_path, "status", "--json"))) == {"train_doctor", "evaluate_doctor"}


def dvc(project: Path, *words: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "dvc", *words], cwd=project, capture_output=True, text=True, check=True
    ).stdout
