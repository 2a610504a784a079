"""Ranks given continuations by the policy's log-probability, without sampling: what it would say if it had to choose now."""

from collections.abc import Sequence

import torch
from transformers import DynamicCache, PreTrainedModel


@torch.inference_mode()
def continuation_logprobs(model: PreTrainedModel, prefix: Sequence[int], candidates: Sequence[Sequence[int]]) -> list[float]:
    """Log-probability of each candidate after the prefix.

    The prefix is run once; its keys and values are shared by all candidates.

    Args:
        model: in eval mode.
        prefix: token ids, at least two.
        candidates: token ids of each continuation, none empty.

    Returns:
        Sum of token log-probabilities (nats, temperature 1) per candidate.
    """
    device = model.device
    cache = DynamicCache(config=model.config)
    model(input_ids=torch.tensor([list(prefix[:-1])], device=device), past_key_values=cache, use_cache=True, logits_to_keep=1)
    cache.batch_repeat_interleave(len(candidates))
    longest = max(map(len, candidates))
    token_BT = torch.zeros((len(candidates), longest + 1), dtype=torch.long, device=device)
    mask_BT = torch.zeros((len(candidates), longest), device=device)
    for row, candidate in enumerate(candidates):
        token_BT[row, : len(candidate) + 1] = torch.tensor([prefix[-1], *candidate])
        mask_BT[row, : len(candidate)] = 1.0
    logits_BTV = model(input_ids=token_BT[:, :-1], past_key_values=cache, use_cache=True).logits.float()
    logprob_BT = torch.log_softmax(logits_BTV, dim=-1).gather(2, token_BT[:, 1:, None])[:, :, 0]
    return [float(x) for x in (logprob_BT * mask_BT).sum(1)]
