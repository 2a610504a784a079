"""A policy on its way to an engine: weights as a stream of named tensors, their version, and what the trainer computes
with them.

An engine with weights of its own never holds the trainer's module. One merged matrix is alive at a time, so that a handover
costs a layer and not a second model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from transformers import PretrainedConfig, PreTrainedModel

from rl.adapters import NamedTensors, named_weights
from rl.batching import micro_batches
from rl.logits import every_id, unknown_ids
from rl.policy import Policy


@dataclass(frozen=True, kw_only=True)
class Handover:
    """What an engine takes between two rollouts."""

    version: int  # of the policy
    model: PreTrainedModel | None  # for an engine that plays with the trainer's own weights; None: it lies elsewhere
    config: PretrainedConfig
    architecture: str  # name of the model's class
    unknown_ids: range  # rows of the head that are no tokens
    weights: Callable[[], NamedTensors]  # whole tensors by the names of a model without an adapter
    identity: Callable[[], object]  # equal as long as no weight has been changed
    logprobs: Callable[
        [Sequence[int]], torch.Tensor
    ]  # of every token of a sequence but the first, as the trainer computes it, float32


def handover_of(policy: Policy, version: int) -> Handover:
    """The handover of a live policy: it reads the weights as they are when the engine asks for them."""
    model = policy.player

    def identity() -> object:
        held = model.state_dict(keep_vars=True).items()
        return version, id(model), policy.adapter, *((name, tensor._version) for name, tensor in held)

    return Handover(
        version=version,
        model=model,
        config=model.config,
        architecture=type(model).__name__,
        unknown_ids=unknown_ids(model),
        weights=lambda: named_weights(model, policy.adapter),
        identity=identity,
        logprobs=lambda ids: sequence_logprobs(policy, ids),
    )


@torch.no_grad()
def sequence_logprobs(policy: Policy, ids: Sequence[int]) -> torch.Tensor:
    """Log-probability of every token of a sequence but the first, float32 (T - 1,) on the processor, at temperature 1,
    over all rows of the head.
    """
    (batch,) = micro_batches([list(ids)], [[0] + [1] * (len(ids) - 1)], len(ids))
    with every_id(policy.player):
        return policy.logprobs(batch, 1.0).float().cpu()
