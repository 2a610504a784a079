"""From rewards to advantages: pure arithmetic on small numbers, no model.

A group is the G trajectories sampled for one case in one rollout step.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from rl.errors import TrainingError


def turn_returns(rewards: Sequence[float], discount: float) -> list[float]:
    """Return of each turn: R_k = r_k + discount * R_{k+1}."""
    returns: list[float] = []
    running = 0.0
    for reward in reversed(rewards):
        running = reward + discount * running
        returns.append(running)
    return returns[::-1]


def group_centred(values: Sequence[Sequence[float]]) -> list[list[float]]:
    """Centre each trajectory's values on its group, turn by turn.

    The baseline of turn k is the mean over the members that have a turn k; a turn that only one member reached gets 0. With one
    value each this is GRPO's R - mean.

    Args:
        values: per member of the group, one value per turn (one in all for episode credit), reward units.

    Returns:
        Same shape and units.

    Raises:
        TrainingError: a group of one, since it is always its own mean.

    Source:
        GRPO, arXiv:2402.03300 (outcome supervision). Per-turn baselines within a group are ours.
    """
    if len(values) < 2:
        raise TrainingError("group_size 1 leaves GRPO without a baseline; set group_size to 2 or more")
    longest = max(map(len, values))
    table_GK = np.full((len(values), longest), np.nan)
    for row, turns in enumerate(values):
        table_GK[row, : len(turns)] = turns
    centred_GK = table_GK - np.nanmean(table_GK, axis=0)
    return [[float(x) for x in centred_GK[row, : len(turns)]] for row, turns in enumerate(values)]


def deviation(centred: Iterable[Sequence[float]]) -> float:
    """Root mean square of centred values, each turn counted once: the population standard deviation, reward units; 0 of nothing."""
    flat = np.array([x for values in centred for x in values])
    return float(np.sqrt(np.mean(flat**2))) if flat.size else 0.0
