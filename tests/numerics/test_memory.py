"""The estimate of memory before a run, against what a run really took."""

import subprocess
import sys
from pathlib import Path

import pytest

from rl.adapters import LoraParams
from rl.algorithms import make_algorithm
from rl.errors import TrainingError
from rl.memory import GIB, estimate, memory_text, model_shape, refuse_what_cannot_fit
from rl.models import new_model, new_tokenizer, save_model
from rl.rollout import RolloutParams
from tests.recipes import recipe

ROOT = Path(__file__).resolve().parents[2]
ROLLOUT = RolloutParams(prompts=4, temperature=1.0, response_length=8, max_episode_tokens=256, slots=64, max_failed_share=0.5, ahead=0, engine="transformers", compile=False, vllm=None)
LORA = LoraParams(rank=8, alpha=16.0, target_modules=("q_proj", "k_proj", "v_proj", "o_proj"))
CHOICES = {
    "grpo": recipe("grpo", group_size=8, optimizer={"micro_batch_tokens": 4096}),
    "ppo with a reference": recipe("ppo", group_size=8, kl={"place": "loss", "coefficient": 0.1}, critic={"warmup_rollout_steps": 0}, optimizer={"micro_batch_tokens": 2048}),
}
CHOICES["grpo with gradient checkpointing"] = CHOICES["grpo"] | {"optimizer": CHOICES["grpo"]["optimizer"] | {"gradient_checkpointing": True}}
CHOICES["grpo with an adapter as reference"] = CHOICES["grpo"] | {"kl": CHOICES["ppo with a reference"]["kl"]}


def adapter(name: str) -> LoraParams | None:
    return LORA if "adapter" in name else None


def run() -> None:
    """In a process of its own: open a session, make one update, print the peak above the start, bytes."""
    import resource

    import psutil
    import torch

    from rl.experience import Scores, Trajectory
    from rl.workers.local import Session

    torch.set_num_threads(1)
    base, name = sys.argv[1:]
    new_model(new_tokenizer(["a"], 300), 32, 1, 2, 64, 0)(torch.tensor([[1, 2]])).logits.sum().backward()  # what torch itself loads
    before = psutil.Process().memory_info().rss
    session = Session(base, "float32", ROLLOUT, make_algorithm(CHOICES[name]), 0, adapter(name))
    trajectories = [
        Trajectory(f"{i // 8}/{i % 8}", "c", str(i // 8), i % 8, 0, 1, tuple(range(5, 261)), (-5.0,) * 256, (0,) * 64 + (1,) * 192, ((64, 256),), (), ({},), "ended", {}, 0.0, 1.0)
        for i in range(32)
    ]
    session.learn(trajectories, [Scores(t.episode_id, ({"a": float(t.sample)},)) for t in trajectories], 1)
    sys.stdout.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before))


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """25 million parameters: large beside what Python and torch take."""
    folder = tmp_path_factory.mktemp("base") / "model"
    tokenizer = new_tokenizer(["a"], 300)
    model = new_model(tokenizer, width=512, layers=9, heads=8, context=256, seed=0)
    model.resize_token_embeddings(8192)
    save_model(model, tokenizer, folder)
    return folder


@pytest.mark.parametrize("name", CHOICES)
def test_the_estimate_is_near_what_a_run_takes(base, name):
    parts = estimate(model_shape(str(base), "float32", adapter(name)), ROLLOUT, make_algorithm(CHOICES[name]))
    code = "from tests.numerics.test_memory import run; run()"
    taken = int(subprocess.run([sys.executable, "-c", code, str(base), name], cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert 0.85 < sum(parts.values()) / taken < 1.18, f"{memory_text(parts)}; taken {taken / GIB:.2f} GiB"


def test_what_cannot_fit_is_refused_with_the_knob_to_turn(base):
    shape = model_shape(str(base), "float32")
    parts = estimate(shape, ROLLOUT.model_copy(update={"slots": 4096}), make_algorithm(CHOICES["grpo"]))
    refuse_what_cannot_fit(parts, sum(parts.values()))
    with pytest.raises(TrainingError, match=r"1\.00 GiB are free; the largest part is kv_cache: lower it with rollout.slots or rollout.max_episode_tokens"):
        refuse_what_cannot_fit(parts, GIB)
    with pytest.raises(TrainingError, match=r"config.json"):
        model_shape(str(base.parent / "nothing"), "float32")


def test_vllm_brings_a_copy_of_the_weights_and_its_own_cache(base):
    shape = model_shape(str(base), "float32")
    numbers = {"gpu_memory_utilization": 0.5, "kv_cache_gib": 1.5, "block_size": 32, "max_sequences": 8, "enforce_eager": True, "probe_tolerance": 1.0, "timeout_s": 1}
    rollout = RolloutParams.model_validate(ROLLOUT.model_dump() | {"engine": "vllm", "vllm": numbers | {"dtype": "bfloat16"}})
    parts = estimate(shape, rollout, make_algorithm(CHOICES["grpo"]))
    assert (parts["kv_cache"], parts["engine"]) == (1.5 * 2**30, 2 * shape.parameters)
    assert "engine" not in estimate(shape, ROLLOUT, make_algorithm(CHOICES["grpo"]))


def test_parts_by_hand(base):
    """24 million weights of 4 bytes; cache: 64 slots x 256 tokens x 9 layers x 2 x 4 heads x 64 wide x 4 bytes."""
    shape = model_shape(str(base), "float32")
    assert (shape.layers, shape.width, shape.key_value_heads, shape.head_width, shape.vocabulary) == (9, 512, 4, 64, 8192)
    parts = estimate(shape, ROLLOUT, make_algorithm(CHOICES["grpo"]))
    assert parts["weights"] == parts["gradients"] == 4 * shape.parameters == parts["optimizer"] // 2
    assert parts["kv_cache"] == 64 * 256 * 9 * 2 * 4 * 64 * 4
    assert parts["heap"] == int(0.15 * (sum(parts.values()) - parts["heap"]))
    assert "heap" not in estimate(shape, ROLLOUT, make_algorithm(CHOICES["grpo"]), holes=False)
    assert "critic" not in parts
    assert "reference" not in parts
    more = estimate(shape, ROLLOUT, make_algorithm(CHOICES["ppo with a reference"]))
    assert more["reference"] == parts["weights"]
    assert more["critic"] == 16 * shape.trunk_parameters
    small = model_shape(str(base), "float32", LORA)
    less = estimate(small, ROLLOUT, make_algorithm(CHOICES["grpo with an adapter as reference"]))
    assert small.trainable == small.trainable_trunk == 9 * 8 * (2 * (512 + 512) + 2 * (512 + 256))  # q, o; k, v
    assert less["weights"] == parts["weights"] + 4 * small.trainable
    assert less["optimizer"] == 8 * small.trainable
    assert "reference" not in less
