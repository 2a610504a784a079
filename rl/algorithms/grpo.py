"""GRPO: the group is the baseline, no critic.

    A = (R - mean_group R) / (std_group R + eps)           credit: episode (the paper's outcome supervision)
    A_k = (R_k - mean_group R_k) / (std_group + eps)       credit: turn (R_k: return from turn k on)
    loss = -sum_tokens min(r A, clip(r) A) / tokens

Every token of a turn carries its turn's advantage; the denominator is the number of sampled tokens of the mini-batch
(the paper averages within each sequence first). No KL term here. Source: arXiv:2402.03300.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field

from rl.algorithms.advantages import group_relative, turn_returns
from rl.algorithms.base import Algorithm, OptimizerParams, TokenBatch
from rl.algorithms.losses import clipped_ratio_loss
from rl.experience import Scores, Trajectory


class GRPORecipe(BaseModel):
    """Every number of `recipes/grpo.yaml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: Literal["grpo"]
    group_size: int = Field(ge=2)
    credit: Literal["episode", "turn"]
    discount: float = Field(ge=0, le=1)  # per turn; used with turn credit
    divide_by_std: bool
    eps: float = Field(gt=0)
    clip_low: float = Field(gt=0, lt=1)
    clip_high: float = Field(gt=0)
    optimizer: OptimizerParams


class GRPO(Algorithm):
    """See the module docstring."""

    def __init__(self, recipe: GRPORecipe) -> None:
        """Args: the parsed recipe."""
        self.recipe: GRPORecipe = recipe
        self.group_size = recipe.group_size
        self.optimizer = recipe.optimizer

    @classmethod
    def from_recipe(cls, recipe: Mapping[str, Any]) -> Self:
        """Parse `recipes/grpo.yaml`."""
        return cls(GRPORecipe.model_validate(recipe))

    def advantages(self, trajectories: Sequence[Trajectory], scores: Sequence[Scores]) -> tuple[list[list[float]], dict[str, float]]:
        """Group-relative advantages, spread over each turn's tokens; counts groups whose members all scored the same."""
        groups: dict[str, list[int]] = defaultdict(list)
        for i, trajectory in enumerate(trajectories):
            if trajectory.sampled_tokens:  # a failed episode teaches nothing
                groups[trajectory.group_id].append(i)
        advantage: list[list[float]] = [[0.0] * len(t.token_ids) for t in trajectories]
        silent = 0
        for members in groups.values():
            if len(members) < 2:  # the others failed
                silent += 1
                continue
            returns = [self._returns(scores[i]) for i in members]
            relative = group_relative(returns, divide_by_std=self.recipe.divide_by_std, eps=self.recipe.eps)
            silent += all(abs(value) < self.recipe.eps for values in relative for value in values)
            for i, values in zip(members, relative, strict=True):
                _spread(values, trajectories[i], advantage[i])
        return advantage, {"groups": float(len(groups)), "groups_without_signal": float(silent)}

    def _returns(self, scores: Scores) -> list[float]:
        if self.recipe.credit == "episode":
            return [scores.reward]
        return turn_returns(scores.turn_rewards, self.recipe.discount)

    def loss(self, batch: TokenBatch) -> tuple[torch.Tensor, dict[str, float]]:
        """The clipped objective over all sampled tokens of the mini-batch."""
        loss_N, clipped_N = clipped_ratio_loss(batch.logprob_N, batch.old_logprob_N, batch.advantage_N, self.recipe.clip_low, self.recipe.clip_high)
        log_ratio_N = (batch.logprob_N - batch.old_logprob_N).detach()
        sums = {
            "policy_loss": float(loss_N.detach().sum()),
            "clip_fraction": float(clipped_N.sum()),
            "entropy": float(batch.entropy_N.sum()),
            "kl_to_sampler": float((log_ratio_N.exp() - 1 - log_ratio_N).sum()),
        }
        return loss_N.sum() / batch.total_tokens, sums


def _spread(turn_values: Sequence[float], trajectory: Trajectory, token_values: list[float]) -> None:
    """Give every sampled token its turn's value; a single value goes to all turns."""
    for k, (start, end) in enumerate(trajectory.turns):
        for place in range(start, end):
            if trajectory.loss_mask[place]:
                token_values[place] = turn_values[min(k, len(turn_values) - 1)]
