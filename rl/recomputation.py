"""How a model stands while its own recorded turns are read again for a gradient: as it stood when it sampled them."""

import torch


def ready_for_gradients(model: torch.nn.Module) -> None:
    """Evaluation mode: no dropout anywhere, no noise in a router, so that the first update's ratio to the recorded
    policy is 1 and a rerun gives the same bits.

    Only what computes its activations again for the gradient is told that it trains, since that is what it goes by.
    """
    model.eval()
    for module in model.modules():
        module.training = bool(getattr(module, "gradient_checkpointing", False))
