"""What every algorithm gives the learner.

Shapes: N loss positions of a micro-batch (tokens the policy sampled).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from pydantic import BaseModel, ConfigDict, Field

from rl.experience import Scores, Trajectory


class OptimizerParams(BaseModel):
    """Numbers of the training phase that every recipe has."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    num_epochs: int = Field(ge=1)  # passes over a step's trajectories
    mini_batch_size: int = Field(ge=1)  # trajectories per gradient step
    learning_rate: float = Field(gt=0)
    warmup_rollout_steps: int = Field(ge=0)  # linear learning-rate warm-up over their gradient steps
    weight_decay: float = Field(ge=0)
    max_grad_norm: float = Field(gt=0)
    micro_batch_tokens: int = Field(ge=1)


@dataclass(frozen=True)
class TokenBatch:
    """What the loss of one micro-batch sees; all float32 (N,)."""

    logprob_N: torch.Tensor  # of the recorded tokens under the policy being trained, with gradient
    old_logprob_N: torch.Tensor  # under the policy that sampled them
    advantage_N: torch.Tensor
    entropy_N: torch.Tensor  # of the distribution being trained; no gradient
    total_tokens: int  # loss positions of the whole mini-batch: the denominator


class Algorithm(ABC):
    """One learning rule. `recipe` holds its numbers, of which the loop reads `group_size` and `optimizer`; `roles` names further models it needs."""

    roles: tuple[str, ...] = ()
    reward_components: tuple[str, ...] = ()  # those that the recipe calls by name
    recipe: BaseModel
    group_size: int
    optimizer: OptimizerParams

    @classmethod
    @abstractmethod
    def from_recipe(cls, recipe: Mapping[str, Any]) -> Self:
        """Parse a recipe file's content."""

    @abstractmethod
    def advantages(self, trajectories: Sequence[Trajectory], scores: Sequence[Scores]) -> tuple[list[list[float]], dict[str, float]]:
        """Advantage of every token of every trajectory (0 where the mask is 0), and metrics."""

    @abstractmethod
    def loss(self, batch: TokenBatch) -> tuple[torch.Tensor, dict[str, float]]:
        """The micro-batch's share of the mini-batch loss, and sums over its tokens for metrics (divided by total_tokens later)."""
