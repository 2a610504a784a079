"""Policy losses on token tensors. Sums divided by a count given from outside, so that splitting a batch changes nothing."""

import torch


def clipped_ratio_loss(
    logprob_N: torch.Tensor, old_logprob_N: torch.Tensor, advantage_N: torch.Tensor, clip_low: float, clip_high: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """PPO's pessimistic clipped objective, negated, one value per token.

        -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A),  r = exp(logprob - old_logprob)

    Args:
        logprob_N: float (N,), of the policy being trained.
        old_logprob_N: float (N,), of the policy that sampled.
        advantage_N: float (N,).
        clip_low: how far the ratio may fall below 1 before its gradient stops.
        clip_high: how far it may rise above 1.

    Returns:
        loss_N: float (N,).
        clipped_N: bool (N,), where the clip is in force.

    Source:
        PPO, arXiv:1707.06347, equation 7; two bounds as in DAPO, arXiv:2503.14476.
    """
    ratio_N = torch.exp(logprob_N - old_logprob_N)
    plain_N = ratio_N * advantage_N
    bounded_N = ratio_N.clamp(1 - clip_low, 1 + clip_high) * advantage_N
    return -torch.minimum(plain_N, bounded_N), bounded_N < plain_N
