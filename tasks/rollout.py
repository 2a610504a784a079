"""The rollout task: play the step's cases with the frozen policy, write the experience once."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context

from prefect import task
from prefect.cache_policies import NO_CACHE

from doctor.training import Training, with_policy
from rl.errors import TrainingError
from rl.experience import intact
from rl.rollout import refuse_if_many_unplayed
from tracking.progress import Phase

log = logging.getLogger(__name__)


def in_turn(
    run: Training, steps: Sequence[int], experience: Callable[[Training, int], dict[str, float]]
) -> Iterator[tuple[int, dict[str, float]]]:
    """Rollout steps with the metrics of their experience.

    Each is played when the caller asks for it, but an offline algorithm's all before the first; with `rollout.ahead`
    the next one is played while the caller learns from this one.
    """
    if run.plays_first:
        yield from [(step, experience(run, step)) for step in steps]
        return
    if not run.params.rollout.ahead:
        yield from ((step, experience(run, step)) for step in steps)
        return
    with ThreadPoolExecutor(1, "rollout") as pool:

        def begin(step: int, updates: int) -> Future[dict[str, float]]:
            with_policy(run, updates, run.session.hold)
            return pool.submit(copy_context().run, experience, run, step)

        following = begin(steps[0], steps[0] - 1) if steps else None
        for step in steps:
            assert following is not None  # noqa: S101  each turn begins the next
            metrics = following.result()
            following = begin(step + 1, step - 1) if step + 1 in steps else None
            yield step, metrics


@task(cache_policy=NO_CACHE, task_run_name="rollout {step}.{draw}", retries=1)
def rollout(run: Training, step: int, draw: int) -> dict[str, float]:
    """Generate the trajectories of one draw of a step.

    Keyed by (run, step, draw): an intact file of an earlier try is kept.
    """
    path = run.rollout_file(step, draw)
    if intact(path):
        return {}
    if not run.algorithm.on_policy and run.session.policy_version:
        raise TrainingError(
            f"{path} is missing or damaged, and the policy that sampled it has learned since; delete {run.folder} and run the stage again"
        )
    specs = run.factory.episodes(
        run.cases(step, draw),
        run.algorithm.group_size,
        run.params.seed,
        step,
        first=draw * run.params.rollout.prompts,
        searches_every=run.params.train_doctor.searches_every,
    )
    began = time.monotonic()
    temperature, progress = run.params.decoding.train.temperature, Phase(f"rollout {step}", "episodes")
    if run.params.rollout.ahead:  # the policy of now may learn meanwhile
        trajectories = run.session.rollout(specs, temperature, progress, held=True, to_learn=True)
    else:
        updates = step - 1 if run.algorithm.on_policy else 0
        trajectories = with_policy(
            run, updates, lambda: run.session.rollout(specs, temperature, progress, to_learn=True)
        )
    seconds = time.monotonic() - began
    refuse_if_many_unplayed(trajectories, run.params.rollout)
    run.keep_played(step, draw, trajectories)
    return {
        "time/rollout_s": seconds,
        "time/rollout_tokens_per_s": sum(t.sampled_tokens for t in trajectories) / seconds,
    }
