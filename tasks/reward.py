"""The scoring task: recorded consultations to rewards, a pure function of what the rollout wrote."""

import time
from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from clinic.cases import Case
from doctor.opinions import refuse_if_many_missing
from doctor.scoring import patient_metrics, score_all, step_metrics
from doctor.training import Training
from rl.experience import Scores, Trajectory, intact


@task(cache_policy=NO_CACHE, task_run_name="score {step}.{draw}")
def score(run: Training, step: int, draw: int) -> dict[str, float]:
    """Score one draw's consultations under the preset in force; returns rollout and reward metrics over all draws of
    the step so far.
    """
    began = time.monotonic()
    trajectories = run.played(step, draw)
    if not intact(run.scores_file(step, draw)):
        run.keep_scored(step, draw, scores_of(run, run.cases(step, draw), trajectories))
    scores = run.scored(step, draw)
    earlier = run.experience(step, draw)
    cases = [case for number in range(draw + 1) for case in run.cases(step, number)]
    metrics = step_metrics(cases, earlier[0] + trajectories, earlier[1] + scores)
    if run.params.language_models.patient is not None:
        metrics |= patient_metrics(cases, earlier[0] + trajectories, run.factory.matchers)
    return metrics | {"time/score_s": time.monotonic() - began}


def scores_of(run: Training, cases: Sequence[Case], trajectories: Sequence[Trajectory]) -> list[Scores]:
    """What consultations with these cases are worth under the preset in force, asking whom it asks."""
    by_id = {case.case_id: case for case in cases}
    opinions = run.opinions([by_id[t.case_id] for t in trajectories], trajectories)
    refuse_if_many_missing(run.reward, run.params.reward.max_missing_share, trajectories, opinions)
    return score_all(run.scorer, cases, trajectories, opinions)
