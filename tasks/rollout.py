"""The rollout task: play the step's cases with the frozen policy, write the experience once."""

import logging
import time

from prefect import task
from prefect.cache_policies import NO_CACHE

from rl.errors import TrainingError
from rl.experience import intact, write_trajectories
from rl.rollout import refuse_if_many_failed
from rl.workers.local import session
from tasks.training import training

log = logging.getLogger(__name__)


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
    trajectories = live.rollout(specs, run.params.rollout.temperature)
    seconds = time.monotonic() - began
    refuse_if_many_failed(trajectories, run.params.rollout)
    write_trajectories(trajectories, path)
    return {"time/rollout_s": seconds, "time/rollout_tokens_per_s": sum(t.sampled_tokens for t in trajectories) / seconds}
