"""Rollout steps that teach nothing: told, and the end of a run that has several in a row.

A function of what earlier steps left on disk, so a resumed run agrees.
"""

import json
import logging
from collections.abc import Mapping

from doctor.training import Training
from rl.errors import TrainingError

log = logging.getLogger(__name__)


def refuse_if_stalled(run: Training, step: int, metrics: Mapping[str, float]) -> None:
    """Look at what learning from a step reported: `stalled` is 1 if no weight moved for a reward.

    Args:
        run: the training.
        step: the rollout step.
        metrics: as the session's `learn` gave them, with what dynamic sampling dropped.

    Raises:
        TrainingError: it is the last of `train_doctor.max_stalled_steps` such steps in a row, or all steps of the run
            are such.
    """
    if not metrics["stalled"]:
        return
    plan = run.params.train_doctor
    first = step
    while first > 1 and _stalled(run, first - 1):
        first -= 1
    told = f"rollout step {step} taught nothing: {_reason(run, metrics)}"
    if (row := step - first + 1) >= min(plan.max_stalled_steps, plan.steps):
        limit = (
            f"train_doctor.max_stalled_steps is {plan.max_stalled_steps}; raised, the run goes on from its last checkpoint"
            if row >= plan.max_stalled_steps
            else "which is the whole run"
        )
        raise TrainingError(
            f"{told}; nor did any since step {first} ({limit}). "
            "Let samples differ more (decoding.train.temperature, group_size in the recipe), or take another reward.preset"
        )
    log.warning("%s", told)


def _stalled(run: Training, step: int) -> bool:
    path = run.step_folder(step) / "metrics.json"
    return path.exists() and bool(json.loads(path.read_text()).get("learn/stalled"))


def _reason(run: Training, metrics: Mapping[str, float]) -> str:
    dynamic = run.algorithm.dynamic_sampling
    if metrics["gradient_steps"] and metrics["gradient_steps"] == metrics["skipped_updates"]:
        return "no gradient was finite"
    if metrics["gradient_steps"]:
        return f"in each of {metrics.get('groups', 0):.0f} groups all samples scored the same"
    if dynamic is not None and metrics["groups_dropped"] == metrics["groups_drawn"]:
        return (
            f"in each of the {metrics['groups_drawn']:.0f} groups drawn (dynamic_sampling.max_num_gen_batches is {dynamic.max_num_gen_batches}) "
            f"all samples have the same {dynamic.by}"
        )
    return "no gradient update, since no episode or pair has anything to learn from"
