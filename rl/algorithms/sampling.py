"""Dynamic sampling: which groups of a rollout are worth learning from."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from rl.experience import Scores, Trajectory


class DynamicSamplingParams(BaseModel):
    """Section `dynamic_sampling` of a recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    max_num_gen_batches: int = Field(ge=1)  # rollouts in one rollout step, the first included
    by: str  # reward, or the name of a reward component: a group is informative if its members differ in it
    tolerance: float = Field(ge=0)  # reward units; a smaller difference is none


def informative_groups(
    trajectories: Sequence[Trajectory], scores: Sequence[Scores], params: DynamicSamplingParams
) -> list[str]:
    """Ids of the groups whose members differ in what `by` names, in order of appearance; episodes that failed do not
    count.

    Source: DAPO, arXiv:2503.14476, equation 11 (there: not all right and not all wrong).
    """
    values: dict[str, list[float]] = {}
    for trajectory, score in zip(trajectories, scores, strict=True):
        seen = values.setdefault(trajectory.group_id, [])
        if trajectory.sampled_tokens:
            seen.append(
                score.reward if params.by == "reward" else sum(turn.get(params.by, 0.0) for turn in score.turns)
            )
    return [group for group, seen in values.items() if seen and max(seen) - min(seen) > params.tolerance]


def keep_informative(
    trajectories: Sequence[Trajectory], scores: Sequence[Scores], params: DynamicSamplingParams, groups: int
) -> tuple[list[Trajectory], list[Scores], dict[str, float]]:
    """The first `groups` informative groups with all their members, and how many were drawn and dropped (without
    signal, or more than needed).
    """
    drawn = {t.group_id for t in trajectories}
    good = informative_groups(trajectories, scores, params)
    kept = set(good[:groups])
    chosen = [i for i, t in enumerate(trajectories) if t.group_id in kept]
    metrics = {
        "groups_drawn": float(len(drawn)),
        "groups_dropped": float(len(drawn) - len(good)),
        "groups_spare": float(len(good) - len(kept)),
    }
    return [trajectories[i] for i in chosen], [scores[i] for i in chosen], metrics
