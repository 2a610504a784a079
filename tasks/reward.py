"""The scoring task: recorded consultations to rewards, a pure function of what the rollout wrote."""

import time

from prefect import task
from prefect.cache_policies import NO_CACHE

from rl.experience import intact, read_trajectories, write_scores
from tasks.consultations import score_all, step_metrics
from tasks.training import training


@task(cache_policy=NO_CACHE, task_run_name="score {step}.{draw}")
def score(session_id: str, step: int, draw: int) -> dict[str, float]:
    """Score one draw's consultations under the preset in force; returns rollout and reward metrics over all draws of the step so far."""
    run = training(session_id)
    path = run.scores_file(step, draw)
    began = time.monotonic()
    trajectories = read_trajectories(run.rollout_file(step, draw))
    scores = score_all(run.scorer, run.cases(step, draw), trajectories)
    if not intact(path):
        write_scores(scores, path)
    earlier = run.experience(step, draw)
    cases = [case for number in range(draw + 1) for case in run.cases(step, number)]
    return step_metrics(cases, earlier[0] + trajectories, earlier[1] + scores) | {"time/score_s": time.monotonic() - began}
