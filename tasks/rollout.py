"""The rollout task: play the step's cases with the frozen policy, write the experience once."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context

from prefect import task
from prefect.cache_policies import NO_CACHE

from rl.errors import TrainingError
from rl.experience import intact, write_trajectories
from rl.rollout import refuse_if_many_failed
from rl.workers.local import session
from tasks.progress import Phase
from tasks.training import training

log = logging.getLogger(__name__)


def in_turn(session_id: str, steps: Sequence[int], experience: Callable[[str, int], dict[str, float]]) -> Iterator[tuple[int, dict[str, float]]]:
    """Rollout steps with the metrics of their experience; with `rollout.ahead` the next one is played while the caller learns from this one."""
    live = session(session_id)
    if not training(session_id).params.rollout.ahead:
        for step in steps:
            yield step, experience(session_id, step)
        return
    with ThreadPoolExecutor(1, "rollout") as pool:

        def begin(step: int) -> Future[dict[str, float]]:
            live.hold()
            return pool.submit(copy_context().run, experience, session_id, step)

        following = begin(steps[0]) if steps else None
        for step in steps:
            assert following is not None  # noqa: S101  each turn begins the next
            metrics = following.result()
            following = begin(step + 1) if step + 1 in steps else None
            yield step, metrics


@task(cache_policy=NO_CACHE, task_run_name="rollout {step}.{draw}", retries=1)
def rollout(session_id: str, step: int, draw: int) -> dict[str, float]:
    """Generate the trajectories of one draw of a step. Keyed by (run, step, draw): an intact file of an earlier try is kept."""
    run, live = training(session_id), session(session_id)
    path = run.rollout_file(step, draw)
    if intact(path):
        return {}
    if not run.algorithm.on_policy and live.learner.policy_version:
        raise TrainingError(f"{path} is missing or damaged, and the policy that sampled it has learned since; delete {run.folder} and run the stage again")
    specs = run.waiting.episodes(run.cases(step, draw), run.algorithm.group_size, run.params.seed, step, first=draw * run.params.rollout.prompts)
    began = time.monotonic()
    trajectories = live.rollout(specs, run.params.rollout.temperature, Phase(f"rollout {step}", "episodes"), held=bool(run.params.rollout.ahead))
    seconds = time.monotonic() - began
    refuse_if_many_failed(trajectories, run.params.rollout)
    write_trajectories(trajectories, path)
    return {"time/rollout_s": seconds, "time/rollout_tokens_per_s": sum(t.sampled_tokens for t in trajectories) / seconds}
