"""GRPO: the group is the baseline, no critic.

    A = (R - mean_group R) / (s + eps)                     credit: episode (the paper's outcome supervision)
    A_k = (R_k - mean_group R_k) / (s + eps)               credit: turn (R_k: return from turn k on)
        + own_turn_weight (o_k - mean_group o_k) / (s_o + eps)     o_k: components that only the turn itself can have earned
    loss = -sum_tokens min(r A, clip(r) A) / tokens

Every token of a turn carries its turn's advantage; the denominator is the number of sampled tokens of the mini-batch
(the paper averages within each sequence first). No KL term here. Source: arXiv:2402.03300; returns and own-turn
components normalised apart as rewards are in GDPO, arXiv:2601.05242.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field

from rl.algorithms.advantages import deviation, group_centred, turn_returns
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
    own_turn: tuple[str, ...]  # reward components that credit the turn that earned them and no earlier one; used with turn credit
    own_turn_weight: float = Field(ge=0)
    divide_by_std: Literal["none", "group", "step"]  # deviation over the group (the paper) or over all groups of the rollout step
    eps: float = Field(gt=0)
    clip_low: float = Field(gt=0, lt=1)
    clip_high: float = Field(gt=0)
    optimizer: OptimizerParams


class GRPO(Algorithm):
    """See the module docstring."""

    def __init__(self, recipe: GRPORecipe) -> None:
        """Args: the parsed recipe."""
        self.recipe: GRPORecipe = recipe
        self.reward_components = recipe.own_turn
        self.group_size = recipe.group_size
        self.optimizer = recipe.optimizer

    @classmethod
    def from_recipe(cls, recipe: Mapping[str, Any]) -> Self:
        """Parse `recipes/grpo.yaml`."""
        return cls(GRPORecipe.model_validate(recipe))

    def advantages(self, trajectories: Sequence[Trajectory], scores: Sequence[Scores]) -> tuple[list[list[float]], dict[str, float]]:
        """Group-relative advantages, spread over each turn's tokens; counts groups whose members all scored the same."""
        members: dict[str, list[int]] = defaultdict(list)
        for i, trajectory in enumerate(trajectories):
            if trajectory.sampled_tokens:  # a failed episode teaches nothing
                members[trajectory.group_id].append(i)
        groups = [group for group in members.values() if len(group) > 1]  # else the others failed
        returns = self._relative(groups, [self._returns(s) for s in scores])
        own = self._relative(groups, [self._own(s) for s in scores])
        advantage: list[list[float]] = [[0.0] * len(t.token_ids) for t in trajectories]
        silent = len(members) - len(groups)
        for group in groups:
            turns = {i: [r + self.recipe.own_turn_weight * o for r, o in zip_longest(returns[i], own[i], fillvalue=0.0)] for i in group}
            silent += all(abs(value) < self.recipe.eps for values in turns.values() for value in values)
            for i, values in turns.items():
                _spread(values, trajectories[i], advantage[i])
        return advantage, {"groups": float(len(members)), "groups_without_signal": float(silent)}

    def _returns(self, scores: Scores) -> list[float]:
        if self.recipe.credit == "episode":
            return [scores.reward]
        return turn_returns([sum(v for name, v in turn.items() if name not in self.recipe.own_turn) for turn in scores.turns], self.recipe.discount)

    def _own(self, scores: Scores) -> list[float]:
        if self.recipe.credit == "episode":
            return []
        return [sum(turn.get(name, 0.0) for name in self.recipe.own_turn) for turn in scores.turns]

    def _relative(self, groups: Sequence[Sequence[int]], values: Sequence[Sequence[float]]) -> dict[int, list[float]]:
        """Centred on the group and divided as the recipe says, by trajectory."""
        centred = [group_centred([values[i] for i in group]) for group in groups]
        step = deviation(chain.from_iterable(centred))
        relative: dict[int, list[float]] = {}
        for group, rows in zip(groups, centred, strict=True):
            by = {"none": 1.0, "group": deviation(rows) + self.recipe.eps, "step": step + self.recipe.eps}[self.recipe.divide_by_std]
            relative |= {i: [value / by for value in row] for i, row in zip(group, rows, strict=True)}
        return relative

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
