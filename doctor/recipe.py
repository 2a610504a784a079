"""The chosen recipe: the algorithm's own numbers, and where its preference pairs are."""

import math
from pathlib import Path
from typing import Any

from clinic.consultation import CHARTS
from clinic.rewards import REWARD_COMPONENTS
from doctor.mistakes import validated
from doctor.parameters import ROOT, ParameterError, Params, read_recipe, recipe_path
from rl.algorithms import Algorithm, make_algorithm
from rl.algorithms.kl import MOST_ERROR
from rl.preferences import count_pairs


def load_algorithm(params: Params) -> Algorithm:
    """Parse `recipes/<algorithm.name>.yaml`.

    Raises:
        ParameterError: no such recipe, or a mistake in it.
    """
    name = params.algorithm.name
    return parse_algorithm(read_recipe(name), params, recipe_path(name))


def parse_algorithm(content: Any, params: Params, path: Path) -> Algorithm:
    """As `load_algorithm`, of what was read from `path` already."""
    algorithm = validated(content, path, make_algorithm)
    dynamic = algorithm.dynamic_sampling
    named = {*algorithm.reward_components, *({dynamic.by} - {"reward"} if dynamic is not None else ())}
    if unknown := sorted(named - REWARD_COMPONENTS):
        raise ParameterError(
            f"recipes/{path.name}: {', '.join(unknown)} is no reward component; known: {', '.join(sorted(REWARD_COMPONENTS))}"
        )
    for section, told in (("feature", algorithm.feature), ("distillation", algorithm.distillation)):
        if told is not None and told.chart not in CHARTS:
            raise ParameterError(
                f"recipes/{path.name}: {section}.chart is {told.chart!r}; known charts: {', '.join(CHARTS)}"
            )
    trajectories = params.rollout.prompts * algorithm.group_size
    if (source := pairs_path(algorithm)) is not None:
        algorithm.pairs_given = _pairs_given(count_pairs(source), params.train_doctor.steps, source.name)
    elif algorithm.optimizer.mini_batch_size > trajectories:
        raise ParameterError(
            f"recipes/{path.name}: optimizer.mini_batch_size is {algorithm.optimizer.mini_batch_size} but a rollout step has only rollout.prompts x group_size = "
            f"{trajectories} trajectories; lower it or raise rollout.prompts"
        )
    _refuse_a_short_horizon(algorithm, trajectories, path)
    if algorithm.feature is not None:
        _refuse_for_privileged(params, path)
    if params.rollout.ahead:
        _refuse_ahead(algorithm, path)
    return algorithm


def _refuse_a_short_horizon(algorithm: Algorithm, trajectories: int, path: Path) -> None:
    """A KL far below its target takes `MOST_ERROR` x trajectories / horizon off the coefficient, which is to stay above 0."""
    kl = getattr(algorithm.recipe, "kl", None)
    if kl is None or kl.place == "none" or not math.isfinite(kl.target):
        return
    if kl.horizon <= MOST_ERROR * trajectories:
        raise ParameterError(
            f"recipes/{path.name}: kl.horizon is {kl.horizon:g} but a rollout step has {trajectories} trajectories, so that a small KL would take all of "
            f"kl.coefficient, or more; raise it to {trajectories} or more, or set kl.target: .inf"
        )


def _refuse_ahead(algorithm: Algorithm, path: Path) -> None:
    """Experience of the policy before the last update has to be corrected for, and comes in one draw."""
    correction = getattr(algorithm.recipe, "sampler_correction", None)
    if correction is None or algorithm.dynamic_sampling is not None:
        raise ParameterError(
            f"params.yaml: rollout.ahead is 1, which {path.stem} cannot do; set it to 0, or take an algorithm with sampler_correction, without dynamic sampling"
        )
    if correction.level == "none":
        raise ParameterError(
            f"params.yaml: rollout.ahead is 1, but recipes/{path.name} does not correct for it; set sampler_correction.level to token or sequence"
        )


def _refuse_for_privileged(params: Params, path: Path) -> None:
    """A teacher and a student of soft tokens learn in float32 or as adapters, whole on every rank, and play where vectors are
    taken.
    """
    ray = params.machines.ray
    compiled = params.rollout.engine.kind == "transformers" and params.rollout.engine.compile
    refused = {
        f"rollout.engine.kind is {params.rollout.engine.kind}": (
            "transformers",
            params.rollout.engine.kind != "transformers",
        ),
        "rollout.engine.compile is true": ("false", compiled),
        "rollout.ahead is 1": ("0", params.rollout.ahead == 1),
        f"machines.compute is {params.machines.compute} and train_doctor.lora null": (
            "float32",
            params.machines.compute != "float32" and params.train_doctor.lora is None,
        ),
        f"machines.ray.sharding is {ray.sharding}": (
            "replicate",
            params.machines.backend == "ray" and ray.trainers > 1 and ray.sharding == "shard",
        ),
    }
    for told, (possible, wrong) in refused.items():
        if wrong:
            raise ParameterError(
                f"params.yaml: {told}, which {path.stem} cannot do; set it to {possible}, or take another algorithm"
            )


def pairs_path(algorithm: Algorithm) -> Path | None:
    """The file of preference pairs that an offline recipe names instead of a rollout.

    Raises:
        ParameterError: it does not exist.
    """
    name = getattr(algorithm.recipe, "pairs", "rollout")
    if name == "rollout":
        return None
    path = ROOT / str(name)
    if not path.is_file():
        raise ParameterError(
            f"recipes: pairs is {name!r}, but {path} does not exist; set pairs: rollout, or name a JSONL file of prompt, chosen, rejected"
        )
    return path


def _pairs_given(pairs: int, steps: int, file: str) -> int:
    """The largest share of a file's pairs that a rollout step learns from.

    Raises:
        ParameterError: there are fewer pairs than steps.
    """
    if pairs < steps:
        raise ParameterError(
            f"params.yaml: train_doctor.steps is {steps}, but {file} holds {pairs} preference pairs, and a step needs one; lower it, or give more pairs"
        )
    return math.ceil(pairs / steps)
