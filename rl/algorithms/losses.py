"""Losses on token tensors.

What is summed is divided by a count given from outside, so that splitting a batch changes nothing.

Shapes: N loss positions of a micro-batch (tokens the policy sampled); S sequences of it, whole.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch

Aggregation = Literal["token", "sequence", "constant"]


@dataclass(frozen=True)
class Totals:
    """What a mini-batch holds in all, however it is cut: the denominators."""

    tokens: int  # loss positions
    sequences: int
    units: int  # sequences, or pairs of them


def clipped_ratio_loss(
    log_ratio_N: torch.Tensor, advantage_N: torch.Tensor, clip_low: float, clip_high: float, dual_clip: float = math.inf
) -> tuple[torch.Tensor, torch.Tensor]:
    """PPO's pessimistic clipped objective, negated, one value per token.

        -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A),  r = exp(log_ratio);  where A < 0, at most dual_clip |A|

    Args:
        log_ratio_N: float (N,), log-probability now minus log-probability before the updates.
        advantage_N: float (N,).
        clip_low: how far the ratio may fall below 1 before its gradient stops.
        clip_high: how far it may rise above 1.
        dual_clip: bound on the ratio where the advantage is negative; inf = none.

    Returns:
        loss_N: float (N,).
        clipped_N: bool (N,), where a clip is in force.

    Source:
        PPO, arXiv:1707.06347, equation 7; two bounds as in DAPO, arXiv:2503.14476; dual clip, arXiv:1912.09729,
        equation 5.
    """
    ratio_N = torch.exp(log_ratio_N)
    plain_N = ratio_N * advantage_N
    bounded_N = ratio_N.clamp(1 - clip_low, 1 + clip_high) * advantage_N
    objective_N, clipped_N = torch.minimum(plain_N, bounded_N), bounded_N < plain_N
    if math.isfinite(dual_clip):
        floor_N = torch.where(advantage_N < 0, dual_clip * advantage_N, -torch.inf)
        objective_N, clipped_N = torch.maximum(objective_N, floor_N), clipped_N | (objective_N < floor_N)
    return -objective_N, clipped_N


def clipped_weight_loss(
    logprob_N: torch.Tensor, log_ratio_N: torch.Tensor, advantage_N: torch.Tensor, clip_low: float, clip_high: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """CISPO: REINFORCE with a clipped importance weight that carries no gradient; no token loses its gradient.

        -stop_gradient(clip(r, 1 - clip_low, 1 + clip_high)) A logprob

    Args, Returns: as `clipped_ratio_loss`; logprob_N with gradient.

    Source:
        MiniMax-M1, arXiv:2506.13585, equations 4 and 5.
    """
    ratio_N = torch.exp(log_ratio_N.detach())
    weight_N = ratio_N.clamp(1 - clip_low, 1 + clip_high)
    return -weight_N * advantage_N * logprob_N, weight_N != ratio_N


def sequence_log_ratio(log_ratio_N: torch.Tensor, logprob_N: torch.Tensor, sequence_N: torch.Tensor) -> torch.Tensor:
    """GSPO's log-ratio: the mean over the sequence, at every token of it; the gradient of each token is its own share.

        s = mean over the sequence of log_ratio;   value s, gradient of each token that of its logprob

    Args:
        log_ratio_N: float (N,), log-probability now minus log-probability before the updates.
        logprob_N: float (N,), now, with gradient.
        sequence_N: int64 (N,), which sequence each token is of.

    Returns:
        float (N,).

    Source:
        GSPO, arXiv:2507.18071, equations 7 and 13 (GSPO-token): with one advantage in the sequence both have the same
        gradient.
    """
    length_S = torch.bincount(sequence_N).clamp(min=1)
    mean_S = (
        torch.zeros(len(length_S), dtype=log_ratio_N.dtype, device=log_ratio_N.device).index_add(
            0, sequence_N, log_ratio_N.detach()
        )
        / length_S
    )
    return mean_S[sequence_N] + logprob_N - logprob_N.detach()


def token_shares(sequence_N: torch.Tensor, how: Aggregation, totals: Totals, constant_length: int) -> torch.Tensor:
    """What a token's loss counts in the mini-batch's.

        token     1 / tokens of the mini-batch                      (DAPO)
        sequence  1 / (tokens of its sequence x sequences)          (GRPO's paper: mean of means)
        constant  1 / (constant_length x sequences)                 (Dr. GRPO)

    Args:
        sequence_N: int64 (N,), which sequence of the micro-batch each token is of; a sequence is never split between
            micro-batches.
        how: which.
        totals: of the whole mini-batch.
        constant_length: tokens.

    Returns:
        float32 (N,).
    """
    if how == "token":
        return torch.full(sequence_N.shape, 1 / totals.tokens, device=sequence_N.device)
    if how == "constant":
        return torch.full(sequence_N.shape, 1 / (constant_length * totals.sequences), device=sequence_N.device)
    return 1 / (torch.bincount(sequence_N).float()[sequence_N] * totals.sequences)


def clipped_value_loss(
    value_N: torch.Tensor, old_value_N: torch.Tensor, return_N: torch.Tensor, clip: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """PPO's value loss: half the squared error, the worse of the plain and of a value that moved at most `clip`.

    Args:
        value_N: float (N,), the critic's, with gradient.
        old_value_N: float (N,), before the updates.
        return_N: float (N,), its target.
        clip: reward units; inf = none.

    Returns:
        loss_N: float (N,).
        clipped_N: bool (N,), where the bound is in force.

    Source:
        PPO's reference implementation (openai/baselines, ppo2), as in arXiv:2006.05990, appendix B.1.
    """
    plain_N = (value_N - return_N) ** 2
    near_N = old_value_N + (value_N - old_value_N).clamp(-clip, clip)
    bounded_N = (near_N - return_N) ** 2
    return 0.5 * torch.maximum(plain_N, bounded_N), bounded_N > plain_N


def preference_loss(
    margin_P: torch.Tensor, variant: Literal["sigmoid", "ipo"], beta: float, label_smoothing: float
) -> torch.Tensor:
    """DPO's loss of each pair.

        sigmoid  -(1 - e) log sigma(beta m) - e log sigma(-beta m)     e: label_smoothing, the share of labels expected to be wrong
        ipo      (m - 1 / (2 beta))^2

    Args:
        margin_P: float (P,), [log pi/ref of the chosen] - [log pi/ref of the rejected], nats (a token's mean each for
            ipo).
        variant: which.
        beta: strength of the tie to the reference.
        label_smoothing: 0 to .5; sigmoid only.

    Returns:
        float (P,).

    Source:
        DPO, arXiv:2305.18290, equation 7; conservative DPO, ericmitchell.ai/cdpo.pdf; IPO, arXiv:2310.12036, equation
        17.
    """
    if variant == "ipo":
        return (margin_P - 1 / (2 * beta)) ** 2
    sure_P, wrong_P = (torch.nn.functional.logsigmoid(sign * beta * margin_P) for sign in (1, -1))
    return -(1 - label_smoothing) * sure_P - label_smoothing * wrong_P
