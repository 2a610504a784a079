"""Tasks of `train_doctor`: go on where it stopped, learn from one step, save."""

import json
import logging
import time
from itertools import count
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from doctor.stalled import refuse_if_stalled
from doctor.training import Training, with_policy
from rl.checkpoint import prune, steps_saved
from rl.files import write_json
from tracking.progress import Phase

log = logging.getLogger(__name__)


@task(cache_policy=NO_CACHE)
def restore(run: Training) -> tuple[int, dict[str, float]]:
    """Go on from the last complete checkpoint before which no step's folder is missing (one with damaged experience is
    deleted, and its step played again); returns the last rollout step that is done and its metrics (step 0: the warm
    start, none).
    """
    recorded = next(step for step in count(1) if not _metrics_file(run, step).exists()) - 1
    step = max((step for step in steps_saved(run.folder) if step <= recorded), default=0)
    if step == 0:
        return 0, {}
    run.session.restore(run.folder / f"global_step_{step}")
    log.info("resuming after rollout step %d from %s", step, run.folder)
    return step, json.loads(_metrics_file(run, step).read_text())


def _metrics_file(run: Training, step: int) -> Path:
    return run.step_folder(step) / "metrics.json"


def accumulate_metrics(metrics: dict[str, float], later: dict[str, float]) -> dict[str, float]:
    """Metrics of a step after one more draw: seconds add up, the rest is of all draws so far."""
    return metrics | {
        name: value + metrics.get(name, 0.0) if name.endswith("_s") and not name.endswith("per_s") else value
        for name, value in later.items()
    }


@task(cache_policy=NO_CACHE, task_run_name="learn {step}")
def learn(run: Training, step: int) -> dict[str, float]:
    """The training phase of one step. A retry first returns to the policy that the step started from.

    Raises:
        TrainingError: it taught nothing, as too many steps before it.
    """
    trajectories, scores, dropped = run.lesson(step)
    progress = Phase(f"learn {step}", "gradient steps")
    began = time.monotonic()
    metrics = with_policy(run, step - 1, lambda: run.session.learn(trajectories, scores, step, progress)) | dropped
    refuse_if_stalled(run, step, metrics)
    return {f"learn/{name}": value for name, value in metrics.items()} | {"time/learn_s": time.monotonic() - began}


@task(cache_policy=NO_CACHE, task_run_name="save {step}")
def save(run: Training, step: int, metrics: dict[str, float], *, last: bool) -> Path | None:
    """Write the step's metrics, and its checkpoint if it is due (the last one's always is); returns the checkpoint if
    it is one that stays.
    """
    plan = run.params.train_doctor
    write_json(_metrics_file(run, step), metrics)
    if step % plan.save_freq and not last:
        return None
    directory = with_policy(run, step, lambda: run.session.save(run.folder, step))
    prune(run.folder, plan.keep_every)
    return directory if step % plan.keep_every == 0 or last else None
