"""Ranks given continuations by the policy's log-probability, without sampling: what it would say if it had to choose now."""

from collections.abc import Sequence
from itertools import takewhile

import torch
from transformers import PreTrainedModel

from rl.batching import Branch, micro_batches, token_logprobs


@torch.inference_mode()
def continuation_logprobs(model: PreTrainedModel, prefix: Sequence[int], candidates: Sequence[Sequence[int]]) -> list[float]:
    """Log-probability of each candidate after the prefix.

    The candidates are branches of the prefix and of the tokens they all begin with: one forward, in which these are computed once.

    Args:
        model: in eval mode.
        prefix: token ids, at least one.
        candidates: token ids of each continuation, none empty.

    Returns:
        Sum of token log-probabilities (nats, temperature 1) per candidate.
    """
    columns = zip(*(candidate[:-1] for candidate in candidates), strict=False)
    shared = [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]
    trunk, mask = [*prefix, *shared], [*[0] * len(prefix), *[1] * len(shared)]
    rests = [tuple(candidate[len(shared) :]) for candidate in candidates]
    (batch,) = micro_batches([trunk], [mask], 1, [[Branch(len(trunk), rest, (1.0,) * len(rest)) for rest in rests]])
    logprob_N, _ = token_logprobs(model, batch, temperature=1.0)
    together, *apart = torch.split(logprob_N, [len(shared), *map(len, rests)])
    return [float(together.sum() + part.sum()) for part in apart]
