"""What is computed once about a step's trajectories before the first update: old and reference log-probabilities,
values.

All in eval mode and without gradient; the recorded actions are read again, never sampled again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from rl.algorithms.advantages import Array
from rl.algorithms.base import TokenRecord
from rl.batching import MicroBatch, micro_batches, sibling_batches, size_of
from rl.experience import Scores, StopReason, Trajectory
from rl.policy import Policy
from rl.ranks import ALONE, Ranks

TRUNCATED = frozenset({StopReason.OUT_OF_TOKENS})
"""Stop reasons of episodes that a limit of the rollout cut; all others are the environment's own endings."""


def logprobs_of(
    policy: Policy, trajectories: Sequence[Trajectory], budget: int, temperature: float, ranks: Ranks = ALONE
) -> list[Array]:
    """Log-probability of every action token under a policy, (A,) per trajectory, nats."""

    def look(batch: MicroBatch) -> torch.Tensor:
        return policy.logprobs(batch, temperature)

    return _by_trajectory(policy, trajectories, budget, look, sibling_batches, ranks)


def values_of(
    policy: Policy, trajectories: Sequence[Trajectory], budget: int, ranks: Ranks = ALONE
) -> tuple[list[Array], list[float]]:
    """V before every action token, (A,) per trajectory, and V after the last token of each."""
    last: dict[int, float] = {}

    def look(batch: MicroBatch) -> torch.Tensor:
        value_BT: torch.Tensor = policy(batch, 1.0, logprobs=False, values=True).value_BT
        for row, i in enumerate(batch.index):
            last[i] = float(value_BT[row, len(trajectories[i].token_ids) - 1])
        return value_BT[batch.row_N, batch.source_N]

    found = _by_trajectory(policy, trajectories, budget, look, micro_batches, ranks)
    last = ranks.merge(last)
    return found, [last.get(i, 0.0) for i in range(len(trajectories))]


@torch.no_grad()
def _by_trajectory(
    policy: Policy,
    trajectories: Sequence[Trajectory],
    budget: int,
    look: Callable[[MicroBatch], torch.Tensor],
    cut: Callable[..., Iterator[MicroBatch]],
    ranks: Ranks,
) -> list[Array]:
    """Run `look` on micro-batches of the trajectories that have action tokens; its (N,) values per trajectory."""
    policy.eval()
    found: dict[int, Array] = {}
    some = [i for i, t in enumerate(trajectories) if t.sampled_tokens]
    if policy.apart:
        cut = partial(micro_batches, families=[trajectories[i].group_id for i in some])
    batches = cut([trajectories[i].token_ids for i in some], [trajectories[i].loss_mask for i in some], budget)
    for batch, _ in ranks.deal(batches, size_of):
        batch = replace(batch, index=tuple(some[i] for i in batch.index))
        batch = policy.dressed(batch, [trajectories[i] for i in batch.index])
        value_N = look(batch).double().cpu().numpy()
        places = np.cumsum([trajectories[i].sampled_tokens for i in batch.index])[:-1]
        for i, value_A in zip(batch.index, np.split(value_N, places), strict=True):
            found[i] = value_A
    found = ranks.merge(found)
    return [found.get(i, np.zeros(0)) for i in range(len(trajectories))]


def make_records(
    trajectories: Sequence[Trajectory],
    scores: Sequence[Scores],
    old: Sequence[Array] | None,
    frozen: Mapping[str, Sequence[Array]],
    values: tuple[Sequence[Array], Sequence[float]] | None,
) -> list[TokenRecord]:
    """Put together what an algorithm sees; without `old`, the engine's log-probabilities stand for the trainer's."""
    records = []
    for i, (trajectory, score) in enumerate(zip(trajectories, scores, strict=True)):
        places = [place for place, one in enumerate(trajectory.loss_mask) if one]
        turn_of = {place: turn for turn, (start, end) in enumerate(trajectory.turns) for place in range(start, end)}
        sampler_A = np.array([trajectory.logprobs[place] for place in places], dtype=np.float64)
        records.append(
            TokenRecord(
                group_id=trajectory.group_id,
                scores=score,
                turn_A=np.array([turn_of[place] for place in places], dtype=np.int64),
                truncated=trajectory.stop_reason in TRUNCATED,
                sampler_logprob_A=sampler_A,
                old_logprob_A=old[i] if old is not None else sampler_A,
                frozen_logprob_A={role: found[i] for role, found in frozen.items()},
                value_A=values[0][i] if values is not None else None,
                next_value=values[1][i] if values is not None else 0.0,
                privileged=trajectory.privileged,
            )
        )
    return records
