"""The estimate of memory before a run, against what a run really took."""

import ctypes
import gc
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from rl.algorithms import make_algorithm
from rl.config import LoraParams, RolloutParams
from rl.errors import TrainingError
from rl.machine import Place
from rl.memory import GIB, estimate, model_shape, refuse_what_cannot_fit
from rl.models import new_model, new_tokenizer, save_model
from tests.recipes import recipe

ROOT = Path(__file__).resolve().parents[2]
ROLLOUT = RolloutParams(
    prompts=4,
    response_length=8,
    max_episode_tokens=256,
    slots=64,
    max_failed_share=0.5,
    ahead=0,
    engine={"kind": "transformers", "compile": False},
)
LORA = LoraParams(rank=8, alpha=16.0, target_modules=("q_proj", "k_proj", "v_proj", "o_proj"))
CHOICES = {
    "grpo": recipe("grpo", group_size=8, optimizer={"micro_batch_tokens": 2048}),
    "ppo with a reference": recipe(
        "ppo",
        group_size=8,
        kl={"place": "loss", "coefficient": 0.1},
        critic={"warmup_rollout_steps": 0},
        optimizer={"micro_batch_tokens": 1024},
    ),
}
CHOICES["ppo_roa with its teacher"] = recipe(
    "ppo_roa",
    group_size=8,
    critic={"warmup_rollout_steps": 0},
    feature={"chart": "facts"},
    adaptation={"mini_batch_size": 64},
    optimizer={"micro_batch_tokens": 1024},
)
CHOICES["ppo_roa with an adapter each"] = CHOICES["ppo_roa with its teacher"]
CHOICES["privileged_distillation"] = recipe(
    "privileged_distillation", group_size=8, optimizer={"micro_batch_tokens": 1024}
)
CHOICES["grpo with gradient checkpointing"] = CHOICES["grpo"] | {
    "optimizer": CHOICES["grpo"]["optimizer"] | {"gradient_checkpointing": True}
}
CHOICES["grpo with an adapter as reference"] = CHOICES["grpo"] | {"kl": CHOICES["ppo with a reference"]["kl"]}
OFTEN = ("ppo with a reference", "grpo with gradient checkpointing", "ppo_roa with an adapter each")


def adapter(name: str) -> LoraParams | None:
    return LORA if "adapter" in name else None


def run(base: str, name: str) -> None:
    """In a process of its own, since what an earlier session left behind would be counted: open a session and make two
    updates; print the peak above the start, bytes.
    """
    import psutil
    import torch

    small = new_model(new_tokenizer(["a"], 300), 32, 1, 2, 64, 0)
    small(torch.tensor([[1, 2]])).logits.sum().backward()  # what torch itself loads
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = psutil.Process().memory_info().rss
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here: man 5 proc
    two_updates(base, name)
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    sys.stdout.write(str(int(peak.split()[1]) * 1024 - before))


def two_updates(base: str, name: str) -> None:
    """Of 16 episodes each; no two begin alike, so that nothing is shared.

    Optimizer moments are there from the second on.
    """
    from rl.experience import Scores, Trajectory
    from rl.workers.local import LocalSession

    session = LocalSession(base, Place(), ROLLOUT, make_algorithm(CHOICES[name]), 0, adapter(name), temperature=1.0)
    for step in (0, 1):
        trajectories = [
            Trajectory(
                episode_id=f"{i // 8}/{i % 8}",
                case_id="c",
                group_id=str(i // 8),
                sample=i % 8,
                policy_version=step,
                turn_budget=1,
                token_ids=(5 + i, *range(6, 261)),
                logprobs=(-5.0,) * 256,
                loss_mask=(0,) * 64 + (1,) * 192,
                turns=((64, 256),),
                texts=({"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}),
                events=({},),
                stop_reason="ended",
                privileged={"chart": {"facts": "a"}},
                started_s=0.0,
                ended_s=1.0,
            )
            for i in range(16)
        ]
        session.learn(trajectories, [Scores(t.episode_id, ({"a": float(t.sample)},)) for t in trajectories], step)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """10 million parameters: large beside what Python and torch take."""
    folder = tmp_path_factory.mktemp("base") / "model"
    tokenizer = new_tokenizer(["a"], 300)
    model = new_model(tokenizer, width=384, layers=5, heads=6, context=256, seed=0)
    model.resize_token_embeddings(8192)
    save_model(model, tokenizer, folder)
    return folder


def taken(base: Path, name: str, *, spare: bool) -> int:
    """Bytes that a choice took at its peak."""
    environment = os.environ | ({"MALLOC_MMAP_THRESHOLD_": str(2**20)} if spare else {})
    code = "import sys; from tests.numerics.test_memory import run; run(*sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(base), name],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


def estimated(base: Path, name: str, *, spare: bool) -> int:
    """Of learning, without the cache, which `run` never writes to."""
    shape = model_shape(str(base), "float32", adapter(name))
    memory = estimate(shape, ROLLOUT, make_algorithm(CHOICES[name]), Place(), holes=not spare)
    return memory.total - memory.parts["kv_cache"]


glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc",
    reason="measured as Linux and glibc have it: peaks that start again, a heap that holds no freed block",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.course) for name in CHOICES]
)
@glibc
def test_the_estimate_is_near_what_is_in_use(base, name):
    """Freed blocks go back at once, so that the peak is of what was in use: the same in every run."""
    expected, peak = estimated(base, name, spare=True), taken(base, name, spare=True)
    assert 0.8 < expected / peak < 1.25, f"{expected / GIB:.2f}; taken {peak / GIB:.2f} GiB"


@pytest.mark.slow
@glibc
def test_what_the_heap_holds_beside_it_is_of_the_size_estimated(base):
    """How many holes it has differs between machines and runs."""
    expected, peak = estimated(base, "grpo", spare=False), taken(base, "grpo", spare=False)
    assert 0.7 < expected / peak < 1.6, f"{expected / GIB:.2f}; taken {peak / GIB:.2f} GiB"


def test_what_cannot_fit_is_refused_with_the_knob_to_turn(base):
    shape = model_shape(str(base), "float32")
    memory = estimate(shape, ROLLOUT.model_copy(update={"slots": 4096}), make_algorithm(CHOICES["grpo"]), Place())
    refuse_what_cannot_fit(memory, memory.total)
    with pytest.raises(
        TrainingError,
        match=r"1\.00 GiB are free; the largest part is kv_cache: lower it with rollout.slots or rollout.max_episode_tokens",
    ):
        refuse_what_cannot_fit(memory, GIB)
    with pytest.raises(TrainingError, match=r"nothing.: no such folder"):
        model_shape(str(base.parent / "nothing"), "float32")


def test_vllm_brings_a_copy_of_the_weights_and_its_own_cache(base):
    shape = model_shape(str(base), "float32")
    numbers = {
        "gpu_memory_utilization": 0.5,
        "kv_cache_gib": 1.5,
        "block_size": 32,
        "max_sequences": 8,
        "enforce_eager": True,
        "probe_tolerance": 1.0,
        "timeout_s": 1,
    }
    rollout = RolloutParams.model_validate(
        ROLLOUT.model_dump() | {"engine": numbers | {"kind": "vllm", "dtype": "bfloat16"}}
    )
    parts = estimate(shape, rollout, make_algorithm(CHOICES["grpo"]), Place()).parts
    assert (parts["kv_cache"], parts["engine"]) == (1.5 * 2**30, 2 * shape.parameters)
    assert "step" not in estimate(shape, rollout, make_algorithm(CHOICES["grpo"]), Place("cuda", "bfloat16")).parts
    assert "engine" not in estimate(shape, ROLLOUT, make_algorithm(CHOICES["grpo"]), Place()).parts


def test_parts_by_hand(base):
    """10 million weights of 4 bytes; cache: 64 slots x 256 tokens x 5 layers x 2 x 3 heads x 64 wide x 4 bytes."""
    shape = model_shape(str(base), "float32")
    assert (shape.layers, shape.width, shape.key_value_heads, shape.head_width, shape.vocabulary) == (
        5,
        384,
        3,
        64,
        8192,
    )
    parts = estimate(shape, ROLLOUT, make_algorithm(CHOICES["grpo"]), Place()).parts
    assert parts["weights"] == parts["gradients"] == 4 * shape.parameters == parts["optimizer"] // 2
    assert parts["kv_cache"] == 64 * 256 * 5 * 2 * 3 * 64 * 4
    assert parts["heap"] == int(0.5 * (sum(parts.values()) - parts["heap"] - parts["kv_cache"]))
    assert "heap" not in estimate(shape, ROLLOUT, make_algorithm(CHOICES["grpo"]), Place(), holes=False).parts
    assert "critic" not in parts
    assert "frozen" not in parts
    more = estimate(shape, ROLLOUT, make_algorithm(CHOICES["ppo with a reference"]), Place()).parts
    assert more["frozen"] == parts["weights"]
    assert more["critic"] == 16 * shape.trunk_parameters
    small = model_shape(str(base), "float32", LORA)
    less = estimate(small, ROLLOUT, make_algorithm(CHOICES["grpo with an adapter as reference"]), Place()).parts
    assert small.trainable == small.trainable_trunk == 5 * 8 * (2 * (384 + 384) + 2 * (384 + 192))  # q, o; k, v
    assert less["weights"] == parts["weights"] + 4 * small.trainable
    assert less["optimizer"] == 8 * small.trainable
    assert "frozen" not in less


def test_on_a_gpu_the_phases_take_turns_and_weights_stay_float32(base):
    """Qwen2.5 1.5B has 1.54 billion weights; here 10 million stand for them."""
    shape, algorithm = model_shape(str(base), "bfloat16"), make_algorithm(CHOICES["grpo"])
    gpu = estimate(shape, ROLLOUT, algorithm, Place("cuda", "bfloat16"))
    parts = gpu.parts
    assert (shape.weight_bytes, shape.bytes) == (4, 2)
    assert parts["weights"] == parts["gradients"] == 4 * shape.parameters == 2 * parts["engine"]
    assert "heap" not in parts
    fed = 2**14 * (6 * 384 + 3 * shape.intermediate) * 2
    assert parts["step"] == fed + 64 * 8192 * 24
    playing = sum(parts[part] for part in ("weights", "optimizer", "engine", "kv_cache", "step"))
    learning = sum(parts[part] for part in ("weights", "optimizer", "gradients", "activations", "gathered", "logits"))
    assert gpu.total == max(playing, learning) < sum(parts.values())
    ahead = estimate(shape, ROLLOUT.model_copy(update={"ahead": 1}), algorithm, Place("cuda", "bfloat16"))
    assert ahead.total == sum(parts.values())
    large = ROLLOUT.model_copy(update={"slots": 4096})
    kept, away = (estimate(shape, large, algorithm, Place("cuda", "bfloat16", offload)) for offload in (False, True))
    assert kept.peak()[0] == away.peak()[0] == "playing"
    assert kept.parts["step"] == fed + 4096 * 8192 * 24
    assert kept.total - away.total == parts["optimizer"]
    adapted = estimate(model_shape(str(base), "bfloat16", LORA), ROLLOUT, algorithm, Place("cuda", "bfloat16")).parts
    trained = model_shape(str(base), "bfloat16", LORA).trainable
    assert adapted["weights"] == 2 * shape.parameters + 4 * trained
    assert "engine" not in adapted
    assert "gathered" not in adapted
