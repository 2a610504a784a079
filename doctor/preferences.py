"""Preference pairs out of stored experience: the best against the worst consultation of every group."""

from collections import defaultdict
from pathlib import Path

from rl.algorithms.preference import mine_pairs
from rl.errors import TrainingError
from rl.experience import Scores, Trajectory, mask_unscored, read_scores, read_trajectories


def stored_pairs(steps: Path, margin: float) -> list[dict[str, object]]:
    """Pairs of all rollouts below a folder.

    Raises:
        TrainingError: there is none with a difference of more than `margin` (reward units).
    """
    if not margin >= 0:
        raise TrainingError(f"a margin of {margin} is none; give 0 or more reward units")
    stored = sorted(steps.rglob("rollout*.parquet"))
    if not stored:
        raise TrainingError(
            f"{steps} holds no rollout.parquet; name the folder steps/ of a training below checkpoints/"
        )
    rows = [row for path in stored for row in pairs(read_trajectories(path), read_scores(_scores_of(path)), margin)]
    if not rows:
        raise TrainingError(
            f"{steps} holds no group whose best and worst consultation are more than {margin} apart; lower --margin or name another folder"
        )
    return rows


def pairs(trajectories: list[Trajectory], scores: list[Scores], margin: float) -> list[dict[str, object]]:
    """One row per group with a pair: prompt, chosen and rejected as messages, and both rewards."""
    groups: dict[str, list[int]] = defaultdict(list)
    for i, trajectory in enumerate(mask_unscored(trajectories, scores)):
        if trajectory.sampled_tokens:
            groups[trajectory.group_id].append(i)
    rows: list[dict[str, object]] = []
    for group, members in groups.items():
        for best, worst in mine_pairs({i: scores[i].reward for i in members}, 1, margin):
            chosen, rejected = (list(trajectories[i].texts) for i in (best, worst))
            start = len(trajectories[best].opening)
            rows.append(
                {
                    "prompt": chosen[:start],
                    "chosen": chosen[start:],
                    "rejected": rejected[start:],
                    "group": group,
                    "chosen_reward": scores[best].reward,
                    "rejected_reward": scores[worst].reward,
                }
            )
    return rows


def _scores_of(rollout: Path) -> Path:
    return rollout.with_name(rollout.name.replace("rollout", "scores"))
