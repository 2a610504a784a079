"""From rewards to advantages: pure arithmetic on small numbers, no model.

A group is the G trajectories sampled for one case in one rollout step. A counts the tokens that the policy sampled in
one trajectory (its action tokens), in order: what the patient said is not among them, so a discount, a bootstrap and a
reward pass over it.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from rl.errors import TrainingError

Array = NDArray[np.float64]
ROUNDING = 1e-6  # of rewards, values and advantages; a smaller difference is what is left of equal ones


def turn_returns(rewards: Sequence[float], discount: float) -> list[float]:
    """Return of each turn: R_k = r_k + discount * R_{k+1}."""
    returns: list[float] = []
    running = 0.0
    for reward in reversed(rewards):
        running = reward + discount * running
        returns.append(running)
    return returns[::-1]


def group_centred(values: Sequence[Sequence[float]], kinds: Sequence[Sequence[int]] = ()) -> list[list[float]]:
    """Centre each trajectory's values on its group, turn by turn.

    The baseline of turn k is the mean over the members whose turn k is of the same kind; a turn that has no such fellow
    gets 0. With one value each this is GRPO's R - mean.

    Args:
        values: per member of the group, one value per turn (one in all for episode credit), reward units.
        kinds: as many whole numbers from 0 on, equal for turns that may be compared; none: all may be.

    Returns:
        Same shape and units.

    Raises:
        TrainingError: a group of one, since it is always its own mean.

    Source:
        GRPO, arXiv:2402.03300 (outcome supervision). Per-turn baselines within a group are ours.
    """
    return _against_the_group(values, kinds, lambda members_K: np.ones_like(members_K, dtype=np.float64))


def leave_one_out(values: Sequence[Sequence[float]], kinds: Sequence[Sequence[int]] = ()) -> list[list[float]]:
    """Each value minus the mean of the other members' values, turn by turn: n / (n - 1) times `group_centred`.

    Args, Returns, Raises: as `group_centred`.

    Source:
        RLOO, arXiv:2402.14740, equation 6. Per turn is ours.
    """
    return _against_the_group(values, kinds, lambda members_K: members_K / np.maximum(members_K - 1.0, 1.0))


def _against_the_group(
    values: Sequence[Sequence[float]], kinds: Sequence[Sequence[int]], factor: Callable[[Array], Array]
) -> list[list[float]]:
    """A column for each kind of each turn: what stands in one is compared."""
    if len(values) < 2:
        raise TrainingError("group_size 1 leaves no other sample to compare with; set group_size to 2 or more")
    longest = max(map(len, values))
    columns = [
        [turn + longest * kind for turn, kind in enumerate(row)] for row in kinds or [[0] * len(row) for row in values]
    ]
    table_GK = np.full((len(values), 1 + max(chain.from_iterable(columns), default=-1)), np.nan)
    for row, (at, turns) in enumerate(zip(columns, values, strict=True)):
        table_GK[row, at] = turns
    members_K = np.sum(~np.isnan(table_GK), axis=0)
    mean_K = np.nansum(table_GK, axis=0) / np.maximum(members_K, 1)
    relative_GK = (table_GK - mean_K) * factor(members_K.astype(np.float64))
    return [[float(x) for x in relative_GK[row, at]] for row, at in enumerate(columns)]


def deviation(centred: Iterable[Sequence[float]]) -> float:
    """Root mean square of centred values, each turn counted once: the population standard deviation, reward units; 0 of
    nothing.
    """
    flat = np.array([x for values in centred for x in values])
    return float(np.sqrt(np.mean(flat**2))) if flat.size else 0.0


def discounted(reward_A: Array, discount: float) -> Array:
    """Return from each action token on: R_t = r_t + discount * R_{t+1}, float64 (A,)."""
    return np.array(turn_returns(list(reward_A), discount))


def generalized_advantages(
    reward_A: Array, value_A: Array, next_value: float, discount: float, gae_lambda: float
) -> Array:
    """GAE over action tokens.

        delta_t = r_t + discount * V_{t+1} - V_t,   A_t = delta_t + discount * gae_lambda * A_{t+1}

    Args:
        reward_A: float64 (A,), reward of each action token.
        value_A: float64 (A,), V of the state before it.
        next_value: V of the state after the last one; 0 when the episode ended, the critic's estimate when a limit cut
            it.
        discount: gamma, per action token.
        gae_lambda: lambda; 1 = Monte Carlo return minus V, 0 = one-step.

    Returns:
        float64 (A,); the critic's target is this plus value_A.

    Source:
        arXiv:1506.02438, equation 16; the sum skips what the policy did not sample.
    """
    delta_A = reward_A + discount * np.append(value_A[1:], next_value) - value_A
    return np.array(turn_returns(list(delta_A), discount * gae_lambda))


def whitened(values: Sequence[Array], eps: float, parts: Sequence[Array] | None = None) -> list[Array]:
    """Centre and divide by the population deviation over all tokens of all trajectories: (x - mean) / (std + eps).

    Args:
        values: float64 (A,) per trajectory.
        eps: added to the deviation.
        parts: int64 (A,) per trajectory; tokens of the same number are centred on their own mean (the deviation is then
            that of the centred values). None: all on one.
    """
    flat = np.concatenate([np.zeros(0), *values])
    if not flat.size:
        return list(values)
    part = np.concatenate(parts).astype(np.int64) if parts is not None else np.zeros(flat.size, np.int64)
    flat = flat - (np.bincount(part, flat) / np.maximum(np.bincount(part), 1))[part]
    return np.split(flat / (flat.std() + eps), np.cumsum([len(x) for x in values])[:-1])


def normalised_rewards(rewards: Sequence[float], groups: Sequence[str], how: str, eps: float) -> list[float]:
    """Episode rewards as the DoctorAgent-RL trainer normalises them, before any estimator: (R - mean) / (std + eps).

    Args:
        rewards: one per trajectory.
        groups: the group of each.
        how: grpo: mean and deviation over the group; brpo: over the whole batch; arpo: R itself.
        eps: 1e-6 there.

    Returns:
        One per trajectory. The deviation divides by n - 1, as torch.std does; a set of one keeps its reward (mean 0,
        deviation 1), as there.

    Source:
        github.com/JarvisUSTC/DoctorAgent-RL, ragen/trainer (`reward_norm_type`).
    """
    if how == "arpo":
        return list(rewards)
    key = list(groups) if how == "grpo" else [""] * len(rewards)
    sets: dict[str, list[float]] = {}
    for name, reward in zip(key, rewards, strict=True):
        sets.setdefault(name, []).append(reward)
    moments = {
        name: (float(np.mean(v)), float(np.std(v, ddof=1))) if len(v) > 1 else (0.0, 1.0) for name, v in sets.items()
    }
    return [(reward - moments[name][0]) / (moments[name][1] + eps) for name, reward in zip(key, rewards, strict=True)]


def explained_variance(value: Array, target: Array) -> float:
    """1 - Var(target - value) / Var(target): 1 is a perfect critic, 0 one that knows the mean only; nan when the target
    does not vary but for rounding.
    """
    spread = float(np.var(target)) if target.size else 0.0
    return 1.0 - float(np.var(target - value)) / spread if spread > ROUNDING**2 else float("nan")
