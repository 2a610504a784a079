"""Off-policy correction between sampler and trainer: an engine that computes log-probabilities a little differently
samples from another policy.

Its weight is kept apart from PPO's ratio: that one compares the policy now with the policy before the updates, both as
the trainer computes them.
"""

from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rl.algorithms.advantages import Array


class CorrectionParams(BaseModel):
    """Section `sampler_correction` of a recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    level: Literal["none", "token", "sequence"]
    # a weight above the upper bound becomes that bound | one outside of either bound drops out of the loss
    mode: Literal["clip", "mask"]
    lower: float = Field(ge=0, le=1)  # with mode: mask
    upper: float = Field(ge=1)


def sampler_weights(old_logprob_A: Array, sampler_logprob_A: Array, params: CorrectionParams) -> Array:
    """Truncated importance weights, one per action token of a trajectory.

        w = exp(trainer's log p before the updates - sampler's log p);   sequence: the product over its tokens
        clip: min(w, upper)     mask: w where lower <= w <= upper, else 0

    Args:
        old_logprob_A: float64 (A,), as the trainer computes them.
        sampler_logprob_A: float64 (A,), as the engine recorded them.
        params: level, mode and bounds.

    Returns:
        float64 (A,).

    Source:
        Truncated importance sampling for rollouts: F. Yao et al., "Your efficient RL framework secretly brings you
        off-policy RL training", 2025. Masking: IcePop, arXiv:2510.18855, with .5 and 5 there.
    """
    if params.level == "none":
        return np.ones_like(old_logprob_A)
    log_weight_A = old_logprob_A - sampler_logprob_A
    if params.level == "sequence":
        log_weight_A = np.full_like(log_weight_A, log_weight_A.sum())
    weight_A = np.exp(np.minimum(log_weight_A, 50.0))  # beyond, both modes give the same
    return (
        np.minimum(weight_A, params.upper)
        if params.mode == "clip"
        else np.where((params.lower <= weight_A) & (weight_A <= params.upper), weight_A, 0.0)
    )


def mismatch(old_logprob: Array, sampler_logprob: Array) -> dict[str, float]:
    """How differently sampler and trainer see the same tokens: mean and largest |delta log p|, and k3 of the KL between
    them, nats.
    """
    delta = old_logprob - sampler_logprob
    if not delta.size:
        return {}
    return {
        "sampler_mismatch_mean": float(np.abs(delta).mean()),
        "sampler_mismatch_max": float(np.abs(delta).max()),
        "sampler_mismatch_k3": float((np.exp(delta) - 1 - delta).mean()),
    }
