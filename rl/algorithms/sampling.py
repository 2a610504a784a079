"""Dynamic sampling: which groups of a rollout are worth learning from."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from rl.experience import Scores, Trajectory


class DynamicSamplingParams(BaseModel):
    """Section `dynamic_sampling` of a recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    max_draws: int = Field(ge=1)  # rollouts in one rollout step, the first included
    by: str  # reward, or the name of a reward component: a group is informative if its members differ in it
    tolerance: float = Field(ge=0)  # reward units; a smaller difference is none


def informative_groups(trajectories: Sequence[Trajectory], scores: Sequence[Scores], params: DynamicSamplingParams) -> list[str]:
    """Ids of the groups whose members differ in what `by` names, in order of appearance; episodes that failed do not count.

    Source: DAPO, arXiv:2503.14476, equation 11 (there: not all right and not all wrong).
    """
    values: dict[str, list[float]] = {}
    for trajectory, score in zip(trajectories, scores, strict=True):
        seen = values.setdefault(trajectory.group_id, [])
        if trajectory.sampled_tokens:
            seen.append(score.reward if params.by == "reward" else sum(turn.get(params.by, 0.0) for turn in score.turns))
    return [group for group, seen in values.items() if seen and max(seen) - min(seen) > params.tolerance]
