"""A language model, and the critic that reads off it, as one module with one forward pass.

Whoever needs log-probabilities with a gradient, or of a model whose weights FSDP2 holds, asks it: FSDP2 gathers weights
when the module that it wraps is called, never when a part of it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from rl.adapters import NAME, has_adapter
from rl.batching import MicroBatch, head_logprobs, hidden_states
from rl.compiling import compile_layers
from rl.critic import Critic
from rl.experience import Trajectory
from rl.features import AdaptModule, FeatureMaker
from rl.parts import CRITIC, POLICY, Adaptation
from rl.ranks import ALONE, Ranks


@dataclass(frozen=True)
class PolicyOutput:
    """What a forward pass gives; None for what was not asked for."""

    logprob_N: torch.Tensor | None  # float32, nats, of the recorded token at each loss position
    entropy_N: torch.Tensor | None  # float32, nats
    value_BT: torch.Tensor | None  # float32, reward units, after every token
    adaptation: Adaptation | None = None  # of a policy that learns from a privileged teacher


class Policy(torch.nn.Module):
    """A causal language model and, if there is one, its critic."""

    def __init__(self, model: PreTrainedModel, critic: Critic | None = None, *, compiled: bool = False) -> None:
        """Wrap them; they stay what they are.

        Args:
            model: the language model.
            critic: a value head, on a trunk of its own or on the model's.
            compiled: compile the model's layers.
        """
        super().__init__()
        self.model, self.critic = model, critic
        if compiled:
            compile_layers(model.get_decoder())

    @property
    def parts(self) -> dict[str, torch.nn.Module]:
        """The modules that algorithms name, the policy first."""
        return {POLICY: self.model} | ({CRITIC: self.critic} if self.critic is not None else {})

    @property
    def trunks(self) -> list[Any]:
        """The decoders that it computes with, which FSDP2 holds layer by layer."""
        critic = self.critic.trunk if self.critic is not None else None
        return [self.model.get_decoder()] + ([critic] if critic is not None else [])

    @property
    def player(self) -> PreTrainedModel:
        """Whose turns these are."""
        return self.model

    @property
    def adapter(self) -> str:
        """Which adapter makes the player of its base, if there are any."""
        return NAME

    @property
    def apart(self) -> bool:
        """Whether equal tokens are read differently in different groups."""
        return False

    @property
    def adaptation(self) -> AdaptModule | None:
        """What predicts the policy's features, if it is told any."""
        return None

    def play(self, part: str) -> None:
        """Which part plays, and is learned from, from now on."""

    def meet(self, privileged: Sequence[object]) -> None:
        """Look at what the simulator alone knows of episodes that are about to be played and learned from."""

    @property
    def feature_maker(self) -> FeatureMaker | None:
        """Makes what the player is told beside tokens, if it is told anything."""
        return None

    def prepare(self, trajectories: Sequence[Trajectory], budget: int) -> dict[str, float]:  # noqa: ARG002  nothing here
        """Look at the trajectories of a training phase before its first update; returns metrics.

        Args:
            trajectories: of the phase.
            budget: padded tokens of a micro-batch.
        """
        return {}

    def dressed(self, batch: MicroBatch, trajectories: Sequence[Trajectory]) -> MicroBatch:  # noqa: ARG002  nothing here
        """A micro-batch with what is read beside its tokens; trajectories in the order of its sequences, prepared."""
        return batch

    def lessons(self, batch: MicroBatch, hidden_BTD: torch.Tensor, temperature: float) -> Adaptation | None:  # noqa: ARG002  nothing here
        """What a policy that learns compares its hidden states at the loss positions with, beside what was rewarded."""
        return None

    def ended(self) -> None:
        """Told after the last update of a training phase."""

    def begin(self) -> None:
        """Let all but the policy be again what they were made as."""
        if self.critic is not None:
            self.critic.begin(self.model)

    def forward(
        self,
        batch: MicroBatch,
        temperature: float,
        *,
        logprobs: bool = True,
        values: bool = False,
        entropy_gradient: bool = False,
        learning: Sequence[str] = (),
    ) -> PolicyOutput:
        """Log-probabilities and entropy at the loss positions of a micro-batch, values after every token.

        Args:
            batch: B sequences of T tokens with N loss positions.
            temperature: divides the logits, as at sampling.
            logprobs: whether those are asked for.
            values: whether those are; needs a critic.
            entropy_gradient: whether the entropy carries one.
            learning: the parts that this pass is for; none: nobody learns.
        """
        alone = values and not logprobs and self.critic is not None and not self.critic.reads_policy
        hidden_BTD = None if alone else hidden_states(self.player.get_decoder(), batch, everywhere=values)
        logprob_N = entropy_N = adaptation = None
        if logprobs and hidden_BTD is not None:
            logprob_N, entropy_N = head_logprobs(
                self.player, hidden_BTD, batch, temperature, entropy_gradient=entropy_gradient
            )
            adaptation = self.lessons(batch, hidden_BTD, temperature) if learning else None
        value_BT = self.critic(batch, hidden_BTD) if values and self.critic is not None else None
        return PolicyOutput(logprob_N, entropy_N, value_BT, adaptation)

    def logprobs(self, batch: MicroBatch, temperature: float) -> torch.Tensor:
        """Log-probability of the recorded token at each loss position, float32 (N,), nats."""
        logprob_N = self(batch, temperature).logprob_N
        assert logprob_N is not None  # noqa: S101  it was asked for
        return logprob_N  # type: ignore[no-any-return]  # torch's stubs


def compute_in(policy: Policy, dtype: str, ranks: Ranks = ALONE) -> None:
    """Let a policy compute in a precision below that of its weights, and on several ranks, in place; nothing happens for
    float32 and one rank.

    Weights, gradients and what an optimizer keeps stay float32: a weight in bfloat16 has 8 bits, and an update below
    1/256 of it is lost. To be called before optimizers are made.

    Args:
        policy: float32 weights; those beside an adapter may be in another precision, and compute in it.
        dtype: torch's name of the precision of forward and backward.
        ranks: that hold the weights together.
    """
    adapted = has_adapter(policy.model)
    if ranks.size > 1 or (dtype != "float32" and not adapted):
        spread(policy, None if adapted else dtype, ranks)


def spread(policy: Policy, dtype: str | None, ranks: Ranks = ALONE) -> None:
    """Give a policy's weights to FSDP2, in place: it gathers them layer by layer, in the precision that computes (None:
    their own).

    Gradients of several ranks add up; the loss has its denominator already. On a mesh of one process that is a copy in
    the precision that computes; in float32 the results are bit for bit those of the plain policy.
    """
    heads = [policy.critic.head] if policy.critic is not None else []  # a sum of many small numbers: in float32
    layers = [layer for trunk in policy.trunks for layer in trunk.layers]
    ranks.share(policy, layers, heads, getattr(torch, dtype) if dtype is not None else None, policy.model.device.type)
