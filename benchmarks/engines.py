"""This project's session with the engine of a given name, and turns of a given length."""

import importlib
import importlib.util
import time
from pathlib import Path
from typing import Any, Protocol

from ruamel.yaml import YAML

from benchmarks.setting import SEED, device, onednn
from benchmarks.worker import finish_gpu
from doctor.parameters import ROOT, load_params
from rl.algorithms import Algorithm, make_algorithm
from rl.config import RolloutParams
from rl.engines.base import Completion, Engine, Request, Sampling
from rl.environment import Seat
from rl.handover import Handover
from rl.machine import Place
from rl.workers.local import LocalSession

ENGINES = ("transformers", "vllm")


def missing(engine: str) -> str | None:
    """Why this engine cannot be measured here; None if it can."""
    if engine == "transformers":
        return None
    return "vllm is not installed in this environment" if importlib.util.find_spec("vllm") is None else None


def trl_missing(generator: str) -> str | None:
    """Why TRL with this generator cannot be measured here; None if it can."""
    if importlib.util.find_spec("trl") is None:
        return "trl is not installed in this environment; make bench-env"
    if generator == "generate":
        return None
    if device() != "cuda":
        return "TRL runs vLLM in its own process on a GPU, and there is none"
    return missing("vllm")


def rollout_params(engine: str, *, compiled: bool = False, **numbers: Any) -> RolloutParams:
    """Section `rollout` as committed, with the benchmark's numbers and engine; compiled, if that is transformers."""
    profile = YAML(typ="safe").load(ROOT / "recipes" / "profiles" / f"{engine}.yaml")
    block = profile["params.yaml"]["rollout"]["engine"] | ({"compile": True} if compiled else {})
    return RolloutParams.model_validate(load_params().rollout.model_dump() | numbers | {"engine": block})


def teaching(group_size: int, episodes: int, micro_batch_tokens: int) -> Algorithm:
    """The committed recipe of a teacher that reads charts; one epoch of each pass, in one gradient step."""
    recipe = YAML(typ="safe").load(ROOT / "recipes" / "ppo_roa.yaml") | {"group_size": group_size}
    recipe["feature"] |= {"chart": "facts"}
    recipe["critic"] |= {"warmup_rollout_steps": 0}
    recipe["adaptation"] |= {"num_epochs": 1, "mini_batch_size": episodes}
    recipe["optimizer"] |= {
        "num_epochs": 1,
        "mini_batch_size": episodes,
        "micro_batch_tokens": micro_batch_tokens,
        "warmup_rollout_steps": 0,
    }
    return make_algorithm(recipe)


def algorithm(
    group_size: int,
    episodes: int,
    micro_batch_tokens: int,
    *,
    gradient_checkpointing: bool = False,
    compiled: bool = False,
) -> Algorithm:
    """The committed GRPO recipe with the loss that TRL calls dapo: token-level, clip-higher, one reward an episode,
    divided by the group's deviation; one gradient step.
    """
    recipe = YAML(typ="safe").load(ROOT / "recipes" / "grpo.yaml")
    recipe |= {
        "group_size": group_size,
        "credit": "episode",
        "divide_by_std": "group",
        "clip_low": 0.2,
        "clip_high": 0.28,
        "aggregation": "token",
    }
    recipe["optimizer"] |= {
        "num_epochs": 1,
        "mini_batch_size": episodes,
        "learning_rate": 1e-6,
        "warmup_rollout_steps": 0,
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "micro_batch_tokens": micro_batch_tokens,
        "gradient_checkpointing": gradient_checkpointing,
        "compile": compiled,
    }
    return make_algorithm(recipe)


def choose_products() -> None:
    """Let this process load models with the matrix products that `setting.onednn` says."""
    chosen = onednn()
    vars(importlib.import_module("rl.models"))["worthwhile"] = lambda: chosen


def open_session(
    engine: str,
    model: Path,
    dtype: str,
    params: RolloutParams,
    rule: Algorithm,
    temperature: float,
    seat: Seat | None = None,
) -> LocalSession:
    """The project's own session."""
    if missing(engine):
        raise ValueError(f"engine {engine!r}: {missing(engine)}")
    choose_products()
    return LocalSession(str(model), Place(device(), dtype), params, rule, SEED, temperature=temperature, seat=seat)


class Lengths(Protocol):
    """How many tokens a turn has."""

    def __call__(self, session: str, turn: int) -> int:
        """Of the episode's turn (from 0)."""
        ...


class ForcedEngine:
    """An engine whose turns all have a given length: no token ends one.

    Everything else is the engine's, weight syncs are timed.
    """

    def __init__(self, engine: Engine, lengths: Lengths) -> None:
        """Args: the engine, lengths of turns."""
        self.engine, self.lengths = engine, lengths
        self.turns: dict[str, int] = {}
        self.take_s = 0.0

    @property
    def policy_version(self) -> int:
        """The engine's."""
        return self.engine.policy_version

    async def generate(self, request: Request) -> Completion:
        """One turn of the length that is due."""
        turn = self.turns.get(request.session, 0)
        self.turns[request.session] = turn + 1
        sampling = Sampling(request.sampling.temperature, self.lengths(request.session, turn), None)
        return await self.engine.generate(
            Request(request.session, request.token_ids, request.noise_key, sampling, request.input_embeddings)
        )

    def release(self, session: str) -> None:
        """Forget the episode."""
        self.turns.pop(session, None)
        self.engine.release(session)

    async def close(self) -> None:
        """The engine's."""
        await self.engine.close()

    def sleep(self) -> None:
        """The engine's."""
        self.engine.sleep()

    def take(self, handover: Handover) -> None:
        """The engine's, timed."""
        began = time.perf_counter()
        try:
            self.engine.take(handover)
        finally:
            finish_gpu()
            self.take_s += time.perf_counter() - began
