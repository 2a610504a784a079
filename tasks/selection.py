"""Tasks of `train_doctor` that look at validation cases: how good a step's policy is, whether going on is worth it, and
what becomes the doctor.
"""

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from doctor import learned_from
from doctor.model_card import FILE as MODEL_CARD
from doctor.model_card import model_card
from doctor.scoring import accuracy_by_source, weighted_accuracy
from doctor.training import Training, with_policy
from rl.algorithms.adaptation import FoldParams
from rl.checkpoint import check_checkpoint, steps_saved
from rl.files import folder_hash, replace_folder, write_json
from rl.models import average_folders
from rl.rollout import refuse_if_many_unplayed
from tracking.progress import Phase

log = logging.getLogger(__name__)


@task(cache_policy=NO_CACHE, task_run_name="validate {step}")
def validate(run: Training, step: int) -> dict[str, float]:
    """Accuracy on validation cases, sources by their weights; what the checkpoint choice goes by."""
    metrics = with_policy(run, step, lambda: _accuracy(run))
    write_json(run.folder / "validation" / f"{step:05d}.json", metrics)
    return metrics


def _accuracy(run: Training) -> dict[str, float]:
    specs = run.factory.episodes(run.validation, 1, run.params.seed, -1)
    trajectories = run.session.rollout(specs, run.params.decoding.evaluate.temperature, Phase("validate", "episodes"))
    refuse_if_many_unplayed(trajectories, run.params.rollout)
    found = accuracy_by_source(run.validation, trajectories)
    apart = {f"validation/{name}/accuracy": value for name, value in found.items()} if len(found) > 1 else {}
    return {
        "validation/accuracy": weighted_accuracy(run.validation, trajectories, run.weights),
        **apart,
        "validation/turns": sum(len(t.turns) for t in trajectories) / len(trajectories),
    }


def _scores(run: Training) -> dict[int, float]:
    """Validation accuracy by rollout step, as far as it was looked at."""
    return {
        int(p.stem): json.loads(p.read_text())["validation/accuracy"]
        for p in sorted((run.folder / "validation").glob("*.json"))
    }


def ends(run: Training, step: int) -> bool:
    """Whether training ends with this step: it is the last one, or `train_doctor.patience` is used up.

    A function of what is on disk up to the step, so a resumed run agrees.
    """
    plan = run.params.train_doctor
    if step >= plan.steps:
        return True
    stale = validations_since_best({at: score for at, score in _scores(run).items() if at <= step})
    if plan.patience is None or stale < plan.patience:
        return False
    log.info(
        "step %d/%d  ends here: no better validation accuracy in %d looks (train_doctor.patience)",
        step,
        plan.steps,
        stale,
    )
    return True


def validations_since_best(scores: Mapping[int, float]) -> int:
    """How many looks at validation cases came after the first of the best ones; 0 of none.

    Args:
        scores: accuracy by rollout step, 0 to 1.
    """
    looked = sorted(scores)
    best = max(looked, key=lambda step: (scores[step], -step), default=None)
    return len(looked) - 1 - looked.index(best) if best is not None else 0


@task(cache_policy=NO_CACHE)
def export(run: Training, out: Path) -> dict[str, Any]:
    """Write the chosen model to `out`: a checkpoint, or the mean of the warm start and the checkpoints that stay
    (`train_doctor.export`), folded where the recipe says so, with a model card and the ids of the cases that it was trained and chosen on.

    Raises:
        TrainingError: a checkpoint that it is made of is missing or damaged.
    """
    plan, scores = run.params.train_doctor, _scores(run)
    last = steps_saved(run.folder)[-1]
    saved = [*range(plan.keep_every, last, plan.keep_every), last]
    if plan.export == "average":
        average_folders([run.warm_start, *(_checked(run, step) for step in saved)], out)
        run.session.load(out)
        chosen, reached = [0, *saved], _accuracy(run)["validation/accuracy"]
    else:
        available = {step: scores[step] for step in saved if step in scores}
        step = max(available, key=lambda step: (available[step], step)) if plan.export == "best" else last
        temporary = out.with_name(f".{out.name}.partial")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(_checked(run, step), temporary, ignore=shutil.ignore_patterns("learner.pt", "complete.json"))
        replace_folder(temporary, out)
        chosen, reached = [step], scores[step]
    told: dict[str, Any] = {}
    if run.algorithm.fold is not None:
        told["adapted_accuracy"] = reached
        told |= fold(run, run.algorithm.fold, out)
        reached = _accuracy(run)["validation/accuracy"]
    before = learned_from.read(run.warm_start) or frozenset()  # by a doctor that the training went on from
    learned_from.write(out, before.union(case.case_id for case in (*run.train, *run.validation)))
    card = model_card(run.params, run.reward, run.train, run.validation, reached, last, chosen)
    (out / MODEL_CARD).write_text(card, encoding="utf-8")
    return {
        "chosen_steps": chosen,
        "chosen_accuracy": reached,
        "validation_accuracy": {str(k): v for k, v in scores.items()},
        "sha256": folder_hash(out),
        **told,
    }


def fold(run: Training, params: FoldParams, out: Path) -> dict[str, float]:
    """Put an ordinary model in the place of an exported student of soft tokens, taught by rollouts of it on training
    cases; the session plays with it from then on.
    """
    run.session.load(out)
    temperature, size = run.params.decoding.train.temperature, run.algorithm.group_size
    plan, seed = run.params.train_doctor, run.params.seed
    after = range(plan.steps + 1, plan.steps + 1 + params.rollouts)
    specs = [
        spec
        for step in after
        for spec in run.factory.episodes(run.cases(step, 0), size, seed, step, searches_every=plan.searches_every)
    ]
    trajectories = run.session.rollout(specs, temperature, Phase("fold", "episodes"))
    refuse_if_many_unplayed(trajectories, run.params.rollout)
    metrics = run.session.fold(trajectories, params, temperature, out)
    run.session.load(out)
    log.info("folded: KL to the student %.4f -> %.4f nats a token", metrics["fold/kl_before"], metrics["fold/kl_after"])
    return metrics


def _checked(run: Training, step: int) -> Path:
    folder = run.folder / f"global_step_{step}"
    check_checkpoint(folder)
    return folder
