"""Ranks given continuations by the policy's log-probability, without sampling: what it would say if it had to choose now."""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from rl.batching import Branch, micro_batches, token_logprobs


@torch.inference_mode()
def continuation_logprobs(model: PreTrainedModel, prefix: Sequence[int], candidates: Sequence[Sequence[int]]) -> list[float]:
    """Log-probability of each candidate after the prefix.

    The candidates are branches of the prefix: one forward, in which the prefix is computed once.

    Args:
        model: in eval mode.
        prefix: token ids, at least one.
        candidates: token ids of each continuation, none empty.

    Returns:
        Sum of token log-probabilities (nats, temperature 1) per candidate.
    """
    branches = [Branch(len(prefix), tuple(candidate), (1,) * len(candidate)) for candidate in candidates]
    (batch,) = micro_batches([prefix], [[0] * len(prefix)], 1, [branches])
    logprob_N, _ = token_logprobs(model, batch, temperature=1.0)
    return [float(part.sum()) for part in torch.split(logprob_N, [len(candidate) for candidate in candidates])]
