"""A teacher and its student side by side, in every rollout step: both curves from the first to the last."""

from collections.abc import Mapping

from prefect import task
from prefect.cache_policies import NO_CACHE

from doctor.scoring import step_metrics
from doctor.training import Training, with_policy
from rl.parts import POLICY
from rl.rollout import refuse_if_many_unplayed
from tasks.reward import scores_of
from tracking.progress import Phase

COMPARED = {
    "reward/mean": "reward",
    "reward/information": "information",
    "rollout/accuracy": "accuracy",
    "rollout/turns": "turns",
}


def side_by_side(run: Training, step: int, played: Mapping[str, float]) -> dict[str, float]:
    """`teacher/...` while one plays, and `student/...` always; of an algorithm without a teacher, nothing.

    Args:
        run: the training, before it learns from the step.
        step: the rollout step.
        played: metrics of the rollout that is learned from.
    """
    if run.algorithm.feature is None:
        return {}
    if run.algorithm.player(step - 1) == POLICY:
        return _named("student", played)
    return _named("teacher", played) | _named("student", student(run, step))


@task(cache_policy=NO_CACHE, task_run_name="student {step}")
def student(run: Training, step: int) -> dict[str, float]:
    """Each case of the step once more, begun as it was and seen by the student; nothing is learned from it."""
    cases, searches_every = run.cases(step, 0), run.params.train_doctor.searches_every
    specs = run.factory.episodes(cases, 1, run.params.seed, step, searches_every=searches_every)
    temperature, progress = run.params.decoding.train.temperature, Phase(f"student {step}", "episodes")
    trajectories = with_policy(run, step - 1, lambda: run.session.rollout(specs, temperature, progress))
    refuse_if_many_unplayed(trajectories, run.params.rollout)
    return step_metrics(cases, trajectories, scores_of(run, cases, trajectories))


def _named(who: str, metrics: Mapping[str, float]) -> dict[str, float]:
    return {f"{who}/{short}": metrics[name] for name, short in COMPARED.items() if name in metrics}
