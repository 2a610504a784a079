"""From token sequences to tensors: length-sorted micro-batches under a token budget.

How sequences are cut into micro-batches changes speed and memory only: losses are sums divided by a count
taken over the whole mini-batch beforehand.

Shapes: B sequences, T tokens (padded), N positions that carry loss.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

LOGIT_CHUNK = 4096  # loss positions whose logits exist at once


@dataclass(frozen=True)
class MicroBatch:
    """Right-padded sequences and where their loss positions are."""

    index: tuple[int, ...]  # which sequences of the mini-batch
    token_BT: torch.Tensor  # int64
    row_N: torch.Tensor  # sequence of each loss position
    place_N: torch.Tensor  # token place of each loss position, >= 1


def micro_batches(tokens: Sequence[Sequence[int]], masks: Sequence[Sequence[int]], token_budget: int) -> Iterator[MicroBatch]:
    """Cut sequences into padded batches of at most `token_budget` tokens (a longer single sequence goes alone).

    Args:
        tokens: token ids of each sequence.
        masks: 1 where a token carries loss; the first token never can.
        token_budget: padded tokens per micro-batch.
    """
    order = sorted(range(len(tokens)), key=lambda i: (len(tokens[i]), i))
    batch: list[int] = []
    for i in order:
        if batch and len(tokens[i]) * (len(batch) + 1) > token_budget:
            yield _micro_batch(batch, tokens, masks)
            batch = []
        batch.append(i)
    if batch:
        yield _micro_batch(batch, tokens, masks)


def _micro_batch(index: list[int], tokens: Sequence[Sequence[int]], masks: Sequence[Sequence[int]]) -> MicroBatch:
    rows = [torch.tensor(tokens[i], dtype=torch.long) for i in index]
    mask_BT = torch.nn.utils.rnn.pad_sequence([torch.tensor(masks[i], dtype=torch.long) for i in index], batch_first=True)
    row_N, place_N = mask_BT.nonzero(as_tuple=True)
    return MicroBatch(tuple(index), torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), row_N, place_N)


def token_logprobs(model: PreTrainedModel, batch: MicroBatch, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of the recorded tokens at the loss positions, and the entropy there (without gradient).

    Logits are computed at loss positions only, in chunks. Padding is on the right and attention is causal, so no mask is
    needed and padding changes nothing.

    Args:
        model: in train or eval mode, as the caller wants it.
        batch: sequences and loss positions.
        temperature: divides the logits, as at sampling.

    Returns:
        logprob_N, entropy_N: float32 (N,), nats.
    """
    hidden_BTD = model.get_decoder()(input_ids=batch.token_BT.to(model.device), use_cache=False).last_hidden_state
    hidden_ND = hidden_BTD[batch.row_N, batch.place_N - 1]
    target_N = batch.token_BT[batch.row_N, batch.place_N].to(model.device)
    head = model.get_output_embeddings()
    logprobs, entropies = [], []
    for hidden, target in zip(hidden_ND.split(LOGIT_CHUNK), target_N.split(LOGIT_CHUNK), strict=True):
        logprob_NV = torch.log_softmax(head(hidden).float() / temperature, dim=-1)
        logprobs.append(logprob_NV.gather(1, target[:, None])[:, 0])
        with torch.no_grad():
            entropies.append(-torch.einsum("nv,nv->n", logprob_NV.exp(), logprob_NV))
    return torch.cat(logprobs), torch.cat(entropies)
