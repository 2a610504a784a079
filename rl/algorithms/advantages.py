"""From rewards to advantages: pure arithmetic on small numbers, no model.

A group is the G trajectories sampled for one case in one rollout step.
"""

from collections.abc import Sequence

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


def group_relative(returns: Sequence[Sequence[float]], *, divide_by_std: bool, eps: float) -> list[list[float]]:
    """Centre each trajectory's returns on its group, turn by turn.

    The baseline of turn k is the mean of R_k over the members that have a turn k; a turn that only one member reached gets 0.
    With `divide_by_std` the centred values are divided by their population standard deviation over the whole group
    (sum of squares / number of turns), plus eps. With one turn each this is GRPO's (R - mean) / (std + eps).

    Args:
        returns: per member of the group, one return per turn (one in all for episode credit), reward units.
        divide_by_std: True is GRPO, False is Dr. GRPO's centring.
        eps: added to the standard deviation, reward units.

    Returns:
        Same shape; unitless if divided, else reward units.

    Raises:
        TrainingError: a group of one, since it is always its own mean.

    Source:
        GRPO, arXiv:2402.03300 (outcome supervision; population deviation as in its equations). Per-turn baselines within a group are ours.
    """
    if len(returns) < 2:
        raise TrainingError("group_size 1 leaves GRPO without a baseline; set group_size to 2 or more")
    longest = max(map(len, returns))
    table_GK = np.full((len(returns), longest), np.nan)
    for row, values in enumerate(returns):
        table_GK[row, : len(values)] = values
    centred_GK = table_GK - np.nanmean(table_GK, axis=0)
    if divide_by_std:
        centred_GK = centred_GK / (np.sqrt(np.nanmean(centred_GK**2)) + eps)
    return [[float(x) for x in centred_GK[row, : len(values)]] for row, values in enumerate(returns)]
