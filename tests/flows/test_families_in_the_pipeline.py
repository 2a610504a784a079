"""Tiny random models of other families, with their own chat templates, from base to exported doctor by parameter.

Three by `dvc repro`, one of them with the 151,936 rows of Qwen's vocabulary; the others by the same two flows, one
after the other in one process. Real server, real DVC.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rl.experience import read_trajectories
from tests.numerics.families import CONTROL, FAMILIES, SHAPE, config_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
QWENS = 151_936  # rows of its embedding
FIRST = [("gemma2", None), ("cohere", None), ("qwen3-moe", 16_384)]  # rows; None: as many as the tokenizer has
OTHERS = [family for family in FAMILIES if family not in dict(FIRST)]
UNUSED = 293  # rows beyond the tokenizer, as Qwen has them
AS_IT_IS = {"qwen2", "qwen2-window", "phi3", "olmo2", "granite", "cohere"}  # their templates keep all that was said
IN_TURN = """
import sys
from pathlib import Path
from flows.train_doctor import train_doctor
from flows.warm_start import warm_start
for family in sys.argv[1:]:
    params, out = Path(f"params-{family}.yaml").absolute(), Path("out").absolute() / family
    print("family", family, flush=True)
    warm_start(out=out / "warm_start", params_file=params)
    train_doctor(out=out / "doctor", params_file=params, warm_start=out / "warm_start")
"""


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


def write_base(family: str, source: Path, folder: Path, rows: int | None = None) -> None:
    """A random model that reads with the bundled tokenizer, filled up to the rows wanted, and its family's template."""
    tokenizer = AutoTokenizer.from_pretrained(source)
    template = FAMILIES[family][2]
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


def choose_base(project: Path, family: str, name: str = "params.yaml") -> None:
    """Parameters that begin with a family's model and name their experiment after it."""
    text = re.sub(r"(?m)^  base: \S+", f"  base: bases/{family}", (project / "params.yaml").read_text())
    (project / name).write_text(re.sub(r"(?m)^  experiment: \S+", f"  experiment: {family}", text))


def refuse_unlearned(family: str, project: Path, start: Path, doctor: Path) -> None:
    """The doctor is another model than its warm start, and was trained on what its own export reads and says."""
    before, after = (load_file(model / "model.safetensors") for model in (start, doctor))
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    served = AutoTokenizer.from_pretrained(doctor)
    config = AutoModelForCausalLM.from_pretrained(doctor).config
    assert config.vocab_size == json.loads((project / "bases" / family / "config.json").read_text())["vocab_size"]
    (steps,) = project.glob(f"checkpoints/*/{family}-????????????/steps")
    played = [t for step in (1, 2) for t in read_trajectories(steps / f"{step:05d}/rollout.parquet")]
    assert max(token for t in played for token in t.token_ids) < len(served)
    for trajectory in played:
        said = [place for place, message in enumerate(trajectory.texts) if message["role"] == "assistant"]
        opening = [dict(message) for message in trajectory.texts[: said[-len(trajectory.turns)]]]
        searched = ["assistant", "user"] * (len(said) - len(trajectory.turns))  # some begin behind a search
        assert [message["role"] for message in opening] == ["system", "user", *searched]
        ids = served.apply_chat_template(opening, tokenize=True, add_generation_prompt=True, return_dict=False)
        assert list(trajectory.token_ids[: len(ids)]) == ids
        assert trajectory.loss_mask.index(1) == len(ids)


def replaced(out: str) -> bool:
    """Whether the terminal says that the family's template was exchanged for one that keeps what was said."""
    return "one that keeps them takes its place" in out


@pytest.mark.parametrize(
    ("family", "rows"),
    [
        *FIRST,
        pytest.param("qwen3-moe", QWENS, id="qwen3-moe-whole"),
    ],
)
@pytest.mark.course
def test_it_is_trained_and_exported(project: Path, environment: dict[str, str], family: str, rows: int | None) -> None:
    for old in (project / "bases" / family, *project.glob(f"checkpoints/*/{family}-*")):  # of other rows
        shutil.rmtree(old, ignore_errors=True)
    write_base(family, project / "models/base", project / "bases" / family, rows)
    choose_base(project, family)
    out = repro(project, environment, "train_doctor")
    assert replaced(out) == (family not in AS_IT_IS)
    refuse_unlearned(family, project, project / "models/warm_start", project / "models/doctor")


@pytest.fixture(scope="module")
def told(project: Path, environment: dict[str, str]) -> dict[str, str]:
    """The other families, trained one after the other: what each said on the terminal."""
    repro(project, environment, "knowledge_base")
    for family in OTHERS:
        write_base(family, project / "models/base", project / "bases" / family)
        choose_base(project, family, f"params-{family}.yaml")
    done = subprocess.run(
        [sys.executable, "-c", IN_TURN, *OTHERS],
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return dict(part.split("\n", 1) for part in done.stdout.split("family ")[1:])


@pytest.mark.course
@pytest.mark.parametrize("family", OTHERS)
def test_it_is_trained_and_exported_by_the_flows(project: Path, told: dict[str, str], family: str) -> None:
    assert replaced(told[family]) == (family not in AS_IT_IS)
    refuse_unlearned(family, project, *(project / "out" / family / model for model in ("warm_start", "doctor")))


def test_a_kind_that_cannot_be_trained_stops_before_the_warm_start(project: Path, environment: dict[str, str]) -> None:
    folder = project / "bases/gpt2"
    folder.mkdir(parents=True)
    numbers = {"model_type": "gpt2", "vocab_size": 300, "n_embd": SHAPE["hidden_size"], "n_layer": 2, "n_head": 4}
    (folder / "config.json").write_text(json.dumps(numbers | {"architectures": ["GPT2LMHeadModel"]}))
    choose_base(project, "gpt2")
    out = repro(project, environment, "warm_start", ok=False)
    assert "(gpt2) cannot be trained here: its positions are learned" in out
    assert "Traceback" not in out
    assert "tokens/s" not in out
