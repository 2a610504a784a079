"""Ranks given continuations by the policy's log-probability, without sampling: what it would say if it had to choose
now.
"""

from collections.abc import Callable, Sequence
from itertools import takewhile

import torch

from rl.batching import micro_batches
from rl.branches import Branch
from rl.policy import Policy

Rank = Callable[[Sequence[Sequence[int]], Sequence[Sequence[int]]], torch.Tensor]  # prefixes, candidates -> (P, C)
FORWARD_TOKENS = 2048  # padded tokens of a forward; a longer prefix with its candidates goes alone


@torch.no_grad()  # not inference_mode: FSDP2 cannot hold what is gathered in it
def continuation_logprobs(
    policy: Policy, prefixes: Sequence[Sequence[int]], candidates: Sequence[Sequence[int]]
) -> torch.Tensor:
    """Log-probability of each candidate after each prefix.

    The candidates are branches of a prefix and of the tokens they all begin with, which are computed once.

    Args:
        policy: in eval mode.
        prefixes: P sequences of token ids, at least one token each.
        candidates: C continuations as token ids, none empty.

    Returns:
        float32 (P, C): sum of token log-probabilities (nats, temperature 1).
    """
    columns = zip(*(candidate[:-1] for candidate in candidates), strict=False)
    shared = [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]
    rests = [tuple(candidate[len(shared) :]) for candidate in candidates]
    trunks = [[*prefix, *shared] for prefix in prefixes]
    masks = [[*[0] * len(prefix), *[1] * len(shared)] for prefix in prefixes]
    branches = [[Branch(len(trunk), rest, (1.0,) * len(rest)) for rest in rests] for trunk in trunks]
    scores_PC = torch.zeros(len(prefixes), len(candidates))
    for batch in micro_batches(trunks, masks, FORWARD_TOKENS, branches):
        logprob_N = policy.logprobs(batch, temperature=1.0)
        for place, of_prefix in zip(
            batch.index, torch.split(logprob_N.cpu(), len(shared) + sum(map(len, rests))), strict=True
        ):
            together, *apart = torch.split(of_prefix, [len(shared), *map(len, rests)])
            scores_PC[place] = torch.stack([together.sum() + part.sum() for part in apart])
    return scores_PC
