"""Learners in processes of their own, for tests that compare two ranks with one."""

import copy
import dataclasses
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rl.adapters import add_adapter
from rl.algorithms import Algorithm, make_algorithm
from rl.chat import ChatFormat
from rl.config import LoraParams
from rl.learner import Learner, Sampler
from rl.machine import Place
from rl.models import new_tokenizer
from rl.parts import ACTOR
from rl.policies import policy_for
from rl.privileged import PrivilegedPolicy
from rl.ranks import ALONE, Ranks, join, meeting_place, whole
from rl.workers.roles import Opening
from rl.workers.trainer import TrainerWorker
from tests.handing import watched
from tests.recipes import recipe
from tests.unit.rl.test_rl_checkpoint import ROLLOUT

TEMPERATURE, SEED, HOST, TIMEOUT_S = 0.8, 0, "127.0.0.1", 120
LORA = LoraParams(rank=4, alpha=8.0, target_modules=("q_proj", "v_proj", "down_proj"))
OPTIMIZER = {
    "num_epochs": 1, "mini_batch_size": 16, "learning_rate": 3e-4, "warmup_rollout_steps": 0, "weight_decay": 0.01, "max_grad_norm": 1.0, "micro_batch_tokens": 130, "gradient_checkpointing": False, "compile": False,
}  # fmt: skip
KL = {"kl": {"place": "loss", "estimator": "k3", "coefficient": 0.3}}
OWN = {"critic": {"trunk": "own", "warmup_rollout_steps": 0}}
SHARED = {"critic": {"trunk": "shared", "warmup_rollout_steps": 0}}
SOFT_TOKENS, OPENING = 2, (11, 23, 35, 47)
ROA = {
    "critic": {"warmup_rollout_steps": 0},
    "feature": {"tokens": SOFT_TOKENS, "chart": "facts", "learning_rate": 1e-3},
    "adaptation": {"layers": 1, "mini_batch_size": 16, "num_epochs": 1, "learning_rate": 1e-3},
    "regularisation": {"coefficient": 0.1, "ramp_steps": 0},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "grpo": {"entropy_coefficient": 0.01},
    "grpo, reference": KL,
    "grpo, checkpointing": {"optimizer": {"gradient_checkpointing": True}},
    "grpo, one micro-batch": {"optimizer": {"micro_batch_tokens": 10**6}},
    "grpo, two mini-batches of two epochs": {"optimizer": {"mini_batch_size": 12, "num_epochs": 2}},
    "grpo, lora, reference": KL,
    "grpo, lora, replicate": {},
    "grpo, replicate": {},
    "dr_grpo": {},
    "rloo": {"kl": {"place": "reward", "estimator": "k1", "coefficient": 0.3}},
    "reinforce_pp": {},
    "dapo": {},
    "gspo": {"clip_low": 0.2, "clip_high": 0.3},
    "cispo": {},
    "ppo, own trunk": OWN,
    "ppo, own trunk, checkpointing": OWN | {"optimizer": {"gradient_checkpointing": True}},
    "ppo, shared trunk, reference": SHARED | KL,
    "ppo_roa, teacher, replicate": ROA | {"train_steps": 1},
    "ppo_roa, student, replicate": ROA | {"train_steps": 0},
    "ppo_roa, teacher, lora, replicate": ROA | {"train_steps": 1},
    "privileged_distillation": {"distillation": {"turns": "all"}},
    "privileged_distillation, lora, replicate": {"distillation": {"divergence": "reverse"}},
    "dpo": {"pairs_per_group": 2},
    "online_dpo": {"pairs_per_group": 2},
}
Found = dict[str, Any]
CHAT = ChatFormat(new_tokenizer(["a"], 280))  # of the model that they learn with


def algorithm_of(variant: str) -> Algorithm:
    changes = VARIANTS[variant]
    numbers = recipe(variant.split(",")[0], group_size=4, **{k: v for k, v in changes.items() if k != "optimizer"})
    return make_algorithm(numbers | {"optimizer": OPTIMIZER | changes.get("optimizer", {})})


def make_learner(base: Any, variant: str, ranks: Ranks = ALONE, compute: str = "float32", seed: int = SEED) -> Learner:
    algorithm, model = algorithm_of(variant), copy.deepcopy(base)
    if "lora" in variant:
        add_adapter(model, LORA, SEED)
    frozen = {role: copy.deepcopy(base) for role in algorithm.frozen_roles if "lora" not in variant}
    policy = policy_for(model, algorithm, compute, ranks, CHAT, seed)
    if isinstance(policy, PrivilegedPolicy):
        grown_apart(policy, seed)
    sampler = Sampler(exact=False, staleness=0)
    return Learner(policy, algorithm, 4, TEMPERATURE, SEED, frozen, sampler, ranks)


@torch.no_grad()
def grown_apart(policy: PrivilegedPolicy, seed: int = SEED) -> None:
    """A teacher as it is later on: at first it is its student, whose gradients are rounding, which Adam makes large."""
    generator = torch.Generator().manual_seed(seed)
    policy.encoder_priv.head.linear.weight *= 100
    for parameter in policy.parts[ACTOR].parameters():
        parameter += 0.05 * torch.randn(parameter.shape, generator=generator)


def make_trainer(folder: Path, variant: str, ranks: Ranks = ALONE) -> TrainerWorker:
    """The same as a role, with a model that was saved."""
    opening = Opening(
        model=str(folder),
        place=Place(),
        rollout=ROLLOUT,
        algorithm=algorithm_of(variant),
        seed=SEED,
        lora=LORA if "lora" in variant else None,
        temperature=TEMPERATURE,
    )
    trainer = TrainerWorker(opening, ranks)
    trainer.teach(exact=False)
    if isinstance(trainer.policy, PrivilegedPolicy):
        grown_apart(trainer.policy)
    return trainer


def experience_of(variant: str, experience: Any) -> Any:
    """With an opening of more than a token, and placeholders where soft tokens are read, for who reads them."""
    if not variant.startswith("ppo_roa"):
        return experience
    trajectories, scores = experience
    told = len(OPENING) + SOFT_TOKENS
    none = (0,) * told
    moved = [
        dataclasses.replace(
            one,
            token_ids=(0,) * SOFT_TOKENS + OPENING + one.token_ids,
            loss_mask=none + one.loss_mask,
            logprobs=(0.0,) * told + one.logprobs,
            turns=tuple((start + told, end + told) for start, end in one.turns),
        )
        for one in trajectories
    ]
    return moved, scores


def learned(trainer: TrainerWorker, experience: Any, step: int) -> Found:
    """Metrics of one update, and the weights after it."""
    trainer.learner.policy_version = 0
    metrics = trainer.learn(*experience, step)
    weights = {name: whole(value.detach()).clone() for name, value in trainer.policy.named_parameters()}
    return {"metrics": metrics, "weights": weights}


def updated(learner: Learner, experience: Any, times: int = 1) -> Found:
    """Metrics of so many updates with the same experience, the last gradient, and the weights after them."""
    gradient, metrics = watched(learner), []
    for step in range(1, times + 1):
        learner.policy_version = 0
        metrics.append(learner.update(*experience, step=step))
    weights = {name: whole(value.detach()).clone() for name, value in learner.policy.named_parameters()}
    return {"metrics": metrics, "gradient": {n: whole(g) for n, g in gradient.items()}, "weights": weights}


def in_ranks(task: Callable[..., Any], folder: Path, size: int, *arguments: Any, device: str = "cpu") -> list[Any]:
    """What `task(ranks of "shard", ranks of "replicate", *arguments)` gives in each of so many processes; on GPUs each
    has one of its own.
    """
    place = meeting_place(HOST)
    spawn = multiprocessing.get_context("spawn")
    processes = [
        spawn.Process(target=_child, args=(task, folder, rank, size, place[1], device, arguments), daemon=True)
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(240)
        assert process.exitcode == 0
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(size)]


def _child(
    task: Callable[..., Any],
    folder: Path,
    rank: int,
    size: int,
    port: int,
    device: str,
    arguments: tuple[Any, ...],
) -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(device == "cpu")
    os.environ["CUDA_VISIBLE_DEVICES"] = str(rank) if device == "cuda" else ""
    shards = join(HOST, port, rank, size, device, TIMEOUT_S, "shard")
    torch.save(task(shards, Ranks(rank, size, "replicate"), *arguments), folder / f"{rank}.pt")
