"""The scoring task: recorded consultations to rewards, a pure function of what the rollout wrote."""

import time

from prefect import task
from prefect.cache_policies import NO_CACHE

from rl.experience import intact, read_trajectories, write_scores
from tasks.consultations import score_all, step_metrics
from tasks.training import training


@task(cache_policy=NO_CACHE, task_run_name="score {step}")
def score(session_id: str, step: int) -> dict[str, float]:
    """Score one step's consultations under the preset in force; returns the step's rollout and reward metrics."""
    run = training(session_id)
    folder = run.step_folder(step)
    began = time.monotonic()
    trajectories = read_trajectories(folder / "rollout.parquet")
    cases = run.cases(step)
    scores = score_all(run.scorer, cases, trajectories)
    if not intact(folder / "scores.parquet"):
        write_scores(scores, folder / "scores.parquet")
    return step_metrics(cases, trajectories, scores) | {"time/score_s": time.monotonic() - began}
