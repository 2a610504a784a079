"""Hand-overs and gradients of models in tests."""

from typing import Any

import torch
from transformers import PreTrainedModel

from rl.algorithms import Algorithm
from rl.handover import Handover, handover_of
from rl.learner import Learner
from rl.policies import policy_for
from rl.policy import Policy


def handed(model: PreTrainedModel, version: int = 0) -> Handover:
    """A handover of a plain model."""
    return handover_of(Policy(model), version)


def learner_for(model: PreTrainedModel, algorithm: Algorithm, *rest: Any, **named: Any) -> Learner:
    """A learner of a plain model, in float32; with a `chat` one that a teacher may tell charts."""
    chat = named.pop("chat", None)
    return Learner(policy_for(model, algorithm, chat=chat, seed=0), algorithm, *rest, **named)


def watched(learner: Learner) -> dict[str, torch.Tensor]:
    """The gradients of a learner at its last update, by the model's own names, "critic." before the critic's; filled
    while it learns, since afterwards they are gone.
    """
    found: dict[str, torch.Tensor] = {}

    def look(*_: object) -> None:
        for name, parameter in learner.policy.named_parameters():
            if parameter.grad is not None:
                found[name.removeprefix("model.")] = parameter.grad.clone()

    for optimizer in learner.optimizers.of.values():
        optimizer.register_step_pre_hook(look)
    return found
