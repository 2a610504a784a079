"""Does an engine with weights of its own compute what the trainer computes? Log-probabilities of a fixed token sequence
say so.
"""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

PROBE_TOKENS = 64


def probe_ids(model: PreTrainedModel, max_length: int) -> list[int]:
    """The fixed sequence: tokens from all over the vocabulary, one less than a session may have, so that an engine can
    add one.
    """
    return [(31 * i + 7) % model.config.get_text_config().vocab_size for i in range(min(PROBE_TOKENS, max_length - 1))]


@torch.no_grad()
def largest_difference(model: PreTrainedModel, ids: Sequence[int], logprobs: torch.Tensor) -> float:
    """Largest |delta log p| between an engine and the trainer's model.

    Args:
        model: the trainer's, in eval mode.
        ids: T tokens.
        logprobs: float (T - 1,), of every token but the first under the engine, at temperature 1.
    """
    logits_TV = model(input_ids=torch.tensor([list(ids)], device=model.device)).logits[0, :-1].float()
    expected = torch.log_softmax(logits_TV, dim=-1).gather(1, torch.tensor(ids[1:], device=model.device)[:, None])[:, 0]
    return float((logprobs - expected.cpu()).abs().max())
