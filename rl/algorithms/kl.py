"""How far the policy is from a frozen reference: estimators on sampled tokens, and the coefficient that weighs them.

log-ratio d = log p_policy(token) - log p_reference(token), of tokens that the policy sampled.
"""

from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

Estimator = Literal["k1", "abs", "mse", "k3"]
NOT_IN_THE_LOSS: dict[Estimator, str] = {
    "k1": "whose gradient there is zero on average",
    "abs": "whose gradient there is not that of the KL",
}
"""Estimates of the value that are no use as a loss: over the policy's own samples, k1's gradient is that of the log-
probability, whose mean is 0, and that of abs has the sign of the log-ratio in place of the log-ratio.
"""


def kl_estimate(log_ratio: torch.Tensor, estimator: Estimator) -> torch.Tensor:
    """KL(policy || reference) estimated at each token, nats.

        k1   d                      unbiased, may be negative; not in the loss
        abs  |d|                    not in the loss
        mse  d^2 / 2                biased, low variance; its gradient is that of the KL in expectation
        k3   exp(-d) - 1 + d        unbiased, never negative, low variance; its gradient is that of KL(reference || policy)
                                    in expectation

    Args:
        log_ratio: float, any shape.
        estimator: which.

    Returns:
        Same shape.

    Source:
        J. Schulman, "Approximating KL divergence", joschu.net/blog/kl-approx.html; names as in verl. k3 is GRPO's,
        arXiv:2402.03300, equation 4.
    """
    if estimator == "k1":
        return log_ratio
    if estimator == "abs":
        return log_ratio.abs()
    if estimator == "mse":
        return 0.5 * log_ratio**2
    return torch.exp(-log_ratio) - 1 + log_ratio


MOST_ERROR = 0.2  # of the KL's distance from its target, in targets, that adapts the coefficient


class KLParams(BaseModel):
    """Section `kl` of a recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    place: Literal["none", "reward", "loss"]  # subtracted from each token's reward | added to each token's loss
    estimator: Estimator
    coefficient: float = Field(ge=0, allow_inf_nan=False)  # the first one, if adaptive
    target: float = Field(gt=0)  # nats a token; .inf = the coefficient stays
    horizon: float = Field(gt=0)  # trajectories over which it adapts

    @model_validator(mode="after")
    def _kl_needs_a_coefficient(self) -> "KLParams":
        if self.place != "none" and not self.coefficient:
            raise ValueError(f"place is {self.place} but coefficient is 0; set place: none, or a coefficient")
        return self

    @model_validator(mode="after")
    def _a_loss_is_known_by_its_gradient(self) -> "KLParams":
        if self.place == "loss" and self.estimator in NOT_IN_THE_LOSS:
            raise ValueError(
                f"place is loss but estimator is {self.estimator}, {NOT_IN_THE_LOSS[self.estimator]}; set estimator: mse or k3, or place: reward"
            )
        return self


class KLCoefficient:
    """Fixed, or adapted so that the KL stays near its target.

        coefficient *= 1 + clip(kl / target - 1, -0.2, 0.2) * trajectories / horizon

    Source: arXiv:1909.08593, section 2.2.
    """

    def __init__(self, params: KLParams) -> None:
        """Begin with the recipe's coefficient.

        Args:
            params: the recipe's section `kl`.
        """
        self._params = params
        self.value = params.coefficient

    def adapt(self, kl: float, trajectories: int) -> None:
        """After a training phase: the mean KL of its tokens and how many trajectories it had."""
        if self._params.target < float("inf"):
            error = min(max(kl / self._params.target - 1, -MOST_ERROR), MOST_ERROR)
            self.value *= 1 + error * trajectories / self._params.horizon
