"""What every algorithm gives the learner, and what it gets.

Shapes: A action tokens of a trajectory (those the policy sampled, in order); N loss positions of a micro-batch; S
sequences of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field

from rl.algorithms.adaptation import AdaptationParams, DistillationParams, FeatureParams, FoldParams
from rl.algorithms.advantages import ROUNDING, Array
from rl.algorithms.losses import Totals
from rl.algorithms.sampling import DynamicSamplingParams
from rl.experience import Scores
from rl.parts import CRITIC, POLICY, Adaptation

REFERENCE = "reference"  # the frozen role that begins as the policy does, and stays


class OptimizerParams(BaseModel):
    """Numbers of the training phase that every recipe has."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    num_epochs: int = Field(ge=1)  # passes over a step's trajectories
    mini_batch_size: int = Field(ge=1)  # trajectories per gradient step
    learning_rate: float = Field(gt=0, allow_inf_nan=False)
    warmup_rollout_steps: int = Field(ge=0)  # linear learning-rate warm-up over their gradient steps
    weight_decay: float = Field(ge=0, allow_inf_nan=False)
    max_grad_norm: float = Field(gt=0)
    micro_batch_tokens: int = Field(ge=1)
    gradient_checkpointing: (
        bool  # keep each layer's input alone and compute the rest again for the gradient; changes no result
    )
    compile: bool  # torch.compile of the training phase's forward pass; changes rounding alone


class CriticParams(BaseModel):
    """Section `critic` of a recipe whose algorithm needs one."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    # a model of its own, begun as the policy | a head on the policy's last hidden state
    trunk: Literal["own", "shared"]
    learning_rate: float = Field(gt=0, allow_inf_nan=False)  # of the critic; the trunk it shares has the policy's
    value_clip: float = Field(gt=0)  # reward units; .inf = none
    loss_weight: float = Field(gt=0, allow_inf_nan=False)  # of the value loss beside the policy's
    warmup_rollout_steps: int = Field(ge=0)  # at first only the critic learns


@dataclass(frozen=True, kw_only=True)
class TokenRecord:
    """One trajectory as an algorithm sees it before the updates. Made by the learner.

    `*_A` have one entry per action token; without a critic there are no values.
    """

    group_id: str
    scores: Scores
    turn_A: Array  # int64, which turn each token is of
    truncated: bool  # a token limit cut the episode, which would have gone on
    sampler_logprob_A: Array  # as the engine recorded them
    old_logprob_A: Array  # of the same policy as the trainer computes them
    frozen_logprob_A: Mapping[str, Array]  # of each frozen role
    value_A: Array | None  # V of the state before each token
    next_value: float  # V of the state after the last one; 0 without a critic
    privileged: Mapping[str, Any]  # what only the simulator knows of the case

    @property
    def size(self) -> int:
        """A."""
        return len(self.turn_A)


@dataclass(frozen=True)
class TrainingSignal:
    """What a training phase learns from.

    Made by the algorithm, read by the learner; per record in order, whether it is learned from or not.
    """

    units: list[tuple[int, ...]]  # records to learn from; those of a unit stay in one micro-batch
    advantage: list[Array]  # (A,) each
    weight: list[Array]  # (A,), of each token's policy loss
    target: list[Array] | None  # (A,), what the critic should say
    metrics: dict[str, float]

    @property
    def silent(self) -> bool:
        """Whether no token that is learned from has an advantage, so that rewards move nothing."""
        return all(np.abs(self.advantage[i]).max(initial=0.0) < ROUNDING for unit in self.units for i in unit)


@dataclass(frozen=True, kw_only=True)
class TokenBatch:
    """What the loss of one micro-batch sees; float32 (N,) unless said otherwise."""

    sequence_N: torch.Tensor  # int64, 0 to S - 1
    unit_S: torch.Tensor  # int64, sequences of the same number are one unit
    logprob_N: torch.Tensor  # of the recorded tokens under the policy being trained, with gradient
    entropy_N: torch.Tensor  # of the distribution being trained, with gradient if the algorithm asks for it
    value_N: torch.Tensor | None  # of the critic being trained, with gradient
    old_logprob_N: torch.Tensor  # before the updates
    frozen_logprob_N: Mapping[str, torch.Tensor]  # of each frozen role
    old_value_N: torch.Tensor | None
    advantage_N: torch.Tensor
    weight_N: torch.Tensor
    target_N: torch.Tensor | None
    adaptation: Adaptation | None = None  # of a policy that learns from a privileged teacher
    total: Totals


@dataclass(frozen=True)
class Part:
    """A module that the learner keeps; its weights and its optimizer have their place in the checkpoint."""

    name: str  # as the policy's `parts` call it
    learning_rate: float | None  # None: frozen, it has no optimizer
    waits: int  # training phases at first in which its gradient is measured and not applied


@dataclass(frozen=True)
class Pass:
    """Some epochs over a step's trajectories that lower one loss; a training phase is one or several of them."""

    parts: tuple[str, ...]  # whose weights it changes
    epochs: int
    units: int  # per gradient step
    loss: Callable[[TokenBatch], tuple[torch.Tensor, dict[str, float]]]


class Algorithm(ABC):
    """One learning rule. `recipe` holds its numbers, of which the loop reads `group_size` and `optimizer`."""

    recipe_class: ClassVar[type[BaseModel]]
    frozen_roles: tuple[str, ...] = ()  # further models whose log-probabilities of the recorded tokens it needs
    reward_components: tuple[str, ...] = ()  # those that the recipe calls by name
    trajectories_per_unit: int = 1
    entropy_gradient: bool = False
    needs_old_logprobs: bool = False  # from the trainer even where the engine's are the same
    on_policy: bool = True  # whether trajectories of an older policy version are refused
    critic: CriticParams | None = None
    feature: FeatureParams | None = None  # what a privileged teacher is told; then there is an adaptation too
    adaptation: AdaptationParams | None = None
    distillation: DistillationParams | None = None  # of a teacher that is the policy of before with a chart
    fold: FoldParams | None = None  # how the student is exported as an ordinary model; None: with its adaptation
    dynamic_sampling: DynamicSamplingParams | None = None
    pairs_given: int | None = None  # of a rollout step, at most, where they are read from a file; told once it is seen
    optimizer: OptimizerParams
    group_size: int

    def __init__(self, recipe: Any) -> None:
        """Take over the recipe's numbers.

        Args:
            recipe: as `recipe_class` parsed it.
        """
        self.recipe = recipe
        self.group_size, self.optimizer = recipe.group_size, recipe.optimizer

    @classmethod
    def from_recipe(cls, recipe: Mapping[str, Any]) -> Self:
        """Parse a recipe file's content."""
        return cls(cls.recipe_class.model_validate(recipe))

    @property
    def gradient_units(self) -> int:
        """Units per gradient step."""
        return max(1, self.optimizer.mini_batch_size // self.trajectories_per_unit)

    def planned_units(self, prompts: int) -> int:
        """Units of one rollout step, before any is dropped."""
        return prompts * self.group_size

    @property
    def parts(self) -> tuple[Part, ...]:
        """What the learner keeps: the policy first, then the critic if there is one."""
        policy = self.optimizer.learning_rate
        if self.critic is None:
            return (Part(POLICY, policy, 0),)
        critic = Part(CRITIC, self.critic.learning_rate, 0)
        return Part(POLICY, policy, self.critic.warmup_rollout_steps), critic

    def passes(self, policy_version: int) -> list[Pass]:  # noqa: ARG002  for those that have several phases
        """What the training phase that begins at this version is made of; the first part of the first pass is the
        policy that plays.
        """
        parts = tuple(part.name for part in self.parts)
        return [Pass(parts, self.optimizer.num_epochs, self.gradient_units, self.loss)]

    def player(self, policy_version: int) -> str:
        """The part whose play is learned from in the training phase that begins at this version."""
        return self.passes(policy_version)[0].parts[0]

    @abstractmethod
    def signal(self, records: Sequence[TokenRecord]) -> TrainingSignal:
        """What to learn from a rollout step."""

    @abstractmethod
    def loss(self, batch: TokenBatch) -> tuple[torch.Tensor, dict[str, float]]:
        """The micro-batch's share of the mini-batch's loss (with a critic, of both models' losses), and its share of
        means over the mini-batch for metrics.
        """

    def finish(self, metrics: Mapping[str, float], trajectories: int) -> dict[str, float]:  # noqa: ARG002  for those that adapt
        """After the training phase, with its metrics; returns further ones."""
        return {}

    def state(self) -> dict[str, float]:
        """What a resumed run needs of the algorithm itself."""
        return {}

    def load_state(self, state: Mapping[str, float]) -> None:  # noqa: B027  most have none
        """Go on from `state()`."""
