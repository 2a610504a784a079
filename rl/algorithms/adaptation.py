"""The numbers of a recipe by which a student learns from a privileged teacher. A leaf."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class FeatureParams(BaseModel):
    """Section `feature` of a recipe: what the teacher is told."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    tokens: int = Field(ge=0)  # soft tokens before what is new at every turn; 0: none, plain PPO
    hidden: int = Field(ge=1)  # width of the encoder's hidden layer
    chart: str  # which of the charts that the environment tells
    learning_rate: float = Field(gt=0, allow_inf_nan=False)  # of encoder_priv


class AdaptationParams(BaseModel):
    """Section `adaptation`: how the feature is learned to be predicted from the dialogue."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    layers: int = Field(ge=1)  # of the policy's, from the first on, that adapt_module begins with
    num_epochs: int = Field(ge=1)  # passes over a step's trajectories
    mini_batch_size: int = Field(ge=1)  # trajectories per gradient step
    learning_rate: float = Field(gt=0, allow_inf_nan=False)  # of adapt_module
    tau: float = Field(gt=0, le=1)  # share of adapt_module that adapt_ema takes over after a training phase


class RegularisationParams(BaseModel):
    """Section `regularisation`: the feature is drawn towards what can be predicted."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    coefficient: float = Field(ge=0, allow_inf_nan=False)  # of the squared error, beside the policy loss
    ramp_steps: int = Field(ge=0)  # rollout steps over which it rises from 0


class FoldParams(BaseModel):
    """Section `fold` of a recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    rollouts: int = Field(ge=1)  # of the student, each of a rollout step's size, that the copy learns from
    num_epochs: int = Field(ge=1)  # passes over them
    mini_batch_size: int = Field(ge=1)  # trajectories per gradient step
    learning_rate: float = Field(gt=0, allow_inf_nan=False)  # falls to 0 in a straight line
    max_grad_norm: float = Field(gt=0)  # a longer gradient is shortened to it
    micro_batch_tokens: int = Field(ge=1)


class DistillationParams(BaseModel):
    """Section `distillation` of a recipe: the policy learns from what it was, with a chart in the prompt."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    chart: str  # which of the charts that the environment tells
    turns: Literal["all", "last"]  # in which the teacher is listened to; last: the one in which an episode ends
    coefficient: float = Field(ge=0, allow_inf_nan=False)  # of the KL, beside the policy loss
    # forward: KL(teacher || student), towards the mean of all teachers | reverse: KL(student || teacher), the paper's
    divergence: Literal["forward", "reverse"]
    # share of the policy that the teacher takes over after a training phase; 0: it stays the warm start, 1: it is the policy
    tau: float = Field(ge=0, le=1)
