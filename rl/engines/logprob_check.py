"""Does an engine with weights of its own compute what the trainer computes? Log-probabilities of a fixed token sequence
say so.
"""

import torch
from transformers import PretrainedConfig

PROBE_TOKENS = 64


def probe_ids(config: PretrainedConfig, max_length: int) -> list[int]:
    """The fixed sequence: tokens from all over the vocabulary, one less than a session may have, so that an engine can
    add one.
    """
    return [(31 * i + 7) % config.get_text_config().vocab_size for i in range(min(PROBE_TOKENS, max_length - 1))]


def largest_difference(trainers: torch.Tensor, engines: torch.Tensor) -> float:
    """Largest |delta log p| between the trainer and an engine, nats.

    Args:
        trainers: float (T - 1,), of every token of the sequence but the first, at temperature 1.
        engines: the same under the engine.
    """
    return float((trainers.cpu() - engines.cpu()).abs().max())
