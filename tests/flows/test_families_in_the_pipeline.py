"""Tiny random models of other families, with their own chat templates, from base to exported doctor by parameter.

One has the 151,936 rows of Qwen's vocabulary. Real server, real DVC.
"""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rl.experience import read_trajectories
from tests.numerics.families import CONTROL, FAMILIES, SHAPE, config_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
ROWS: dict[str, int | None] = {"gemma2": None, "cohere": None, "qwen3-moe": 151_936}
UNUSED = 293  # rows beyond the tokenizer, as Qwen has them


@pytest.fixture(scope="module")
def project(copy_project: Callable[[str], Path], environment: dict[str, str]) -> Path:
    project = copy_project("families")
    params = project / "params.yaml"
    text = re.sub(r"(?m)^  steps: \d+", "  steps: 2", params.read_text())
    text = re.sub(r"(?m)^  forced_cases: \d+", "  forced_cases: 4", text)
    text = re.sub(r"(?m)^  validation_cases: \d+", "  validation_cases: 4", text)
    # enough to say a diagnosis now and then: else no group has anything to learn from
    text = text.replace("sft: {epochs: 1, batch_size: 32", "sft: {epochs: 1, batch_size: 8")
    params.write_text(text.replace("learning_rate: 5.0e-4", "learning_rate: 5.0e-3"))
    repro(project, environment, "patient_cases")
    return project


def repro(project: Path, environment: dict[str, str], stage: str, *, ok: bool = True) -> str:
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


def write_base(family: str, source: Path, folder: Path) -> None:
    """A random model that reads with the bundled tokenizer, filled up to the rows wanted, and its family's template."""
    tokenizer = AutoTokenizer.from_pretrained(source)
    template, rows = FAMILIES[family][2], ROWS[family]
    if rows is not None:
        tokenizer.save_pretrained(folder)
        content = json.loads((folder / "tokenizer.json").read_text())
        added = {token["id"] for token in content["added_tokens"]}
        size = max(added) + 1
        fill = rows - UNUSED - size - len(CONTROL[template])
        content["model"]["vocab"] |= {f"unused {i}": size + i for i in range(fill)}
        (folder / "tokenizer.json").write_text(json.dumps(content))
        tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": CONTROL[template]})
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config_of(family, rows or len(tokenizer) + 5)).save_pretrained(folder)


def choose_base(project: Path, folder: str) -> None:
    params = project / "params.yaml"
    params.write_text(re.sub(r"(?m)^  base: \S+", f"  base: {folder}", params.read_text()))


@pytest.mark.parametrize("family", ROWS)
def test_it_is_trained_and_exported(project: Path, environment: dict[str, str], family: str) -> None:
    write_base(family, project / "models/base", project / "bases" / family)
    choose_base(project, f"bases/{family}")
    out = repro(project, environment, "train_doctor")
    replaced = "one that keeps them takes its place" in out
    assert replaced == (family != "cohere")
    start, doctor = (
        load_file(project / model / "model.safetensors") for model in ("models/warm_start", "models/doctor")
    )
    assert start.keys() == doctor.keys()
    assert any(not torch.equal(start[name], doctor[name]) for name in start)
    served = AutoTokenizer.from_pretrained(project / "models/doctor")
    config = AutoModelForCausalLM.from_pretrained(project / "models/doctor").config
    assert config.vocab_size == (ROWS[family] or len(served) + 5)
    steps = max(project.glob("checkpoints/*/*/steps"), key=lambda path: path.stat().st_mtime)
    played = [t for step in (1, 2) for t in read_trajectories(steps / f"{step:05d}/rollout.parquet")]
    assert max(token for t in played for token in t.token_ids) < len(served)
    for trajectory in played:
        opening = [dict(m) for m in trajectory.texts[:2]]
        assert [m["role"] for m in opening] == ["system", "user"]
        ids = served.apply_chat_template(opening, tokenize=True, add_generation_prompt=True, return_dict=False)
        assert list(trajectory.token_ids[: len(ids)]) == ids
        assert trajectory.loss_mask.index(1) == len(ids)


def test_a_kind_that_cannot_be_trained_stops_before_the_warm_start(project: Path, environment: dict[str, str]) -> None:
    folder = project / "bases/gpt2"
    folder.mkdir(parents=True)
    numbers = {"model_type": "gpt2", "vocab_size": 300, "n_embd": SHAPE["hidden_size"], "n_layer": 2, "n_head": 4}
    (folder / "config.json").write_text(json.dumps(numbers | {"architectures": ["GPT2LMHeadModel"]}))
    choose_base(project, "bases/gpt2")
    out = repro(project, environment, "warm_start", ok=False)
    assert "(gpt2) cannot be trained here: its positions are learned" in out
    assert "Traceback" not in out
    assert "tokens/s" not in out
