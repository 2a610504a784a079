"""From token sequences to tensors: length-sorted micro-batches under a token budget.

A sequence may carry branches (alternative endings at several places): the shared part is computed once, under a mask that keeps them apart.
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
class Branch:
    """An alternative continuation of a sequence from place `cut` on: it sees the sequence before the cut and itself, nobody sees it."""

    cut: int
    token_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]


@dataclass(frozen=True)
class MicroBatch:
    """Right-padded sequences (each followed by its branches) and where their loss positions are."""

    index: tuple[int, ...]  # which sequences of the mini-batch
    token_BT: torch.Tensor  # int64
    row_N: torch.Tensor  # sequence of each loss position
    place_N: torch.Tensor  # token place of each loss position
    source_N: torch.Tensor  # place whose hidden state predicts it: the one before, or the one before a branch's cut
    position_BT: torch.Tensor | None = None  # with branches only: rotary positions
    mask_B1TT: torch.Tensor | None = None  # with branches only: who sees whom


def micro_batches(
    tokens: Sequence[Sequence[int]], masks: Sequence[Sequence[int]], token_budget: int, branches: Sequence[Sequence[Branch]] | None = None
) -> Iterator[MicroBatch]:
    """Cut sequences into padded batches of at most `token_budget` tokens (a longer single sequence goes alone).

    Args:
        tokens: token ids of each sequence.
        masks: 1 where a token carries loss; the first token never can.
        token_budget: padded tokens per micro-batch.
        branches: of each sequence, or None.
    """
    length = [len(t) + sum(len(b.token_ids) for b in (branches[i] if branches else ())) for i, t in enumerate(tokens)]
    order = sorted(range(len(tokens)), key=lambda i: (length[i], i))
    batch: list[int] = []
    for i in order:
        if batch and length[i] * (len(batch) + 1) > token_budget:
            yield _micro_batch(batch, tokens, masks, branches)
            batch = []
        batch.append(i)
    if batch:
        yield _micro_batch(batch, tokens, masks, branches)


def _pad(rows: list[torch.Tensor], value: int = 0) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)


def _micro_batch(index: list[int], tokens: Sequence[Sequence[int]], masks: Sequence[Sequence[int]], branches: Sequence[Sequence[Branch]] | None) -> MicroBatch:
    if branches is None:
        mask_BT = _pad([torch.tensor(masks[i], dtype=torch.long) for i in index])
        row_N, place_N = mask_BT.nonzero(as_tuple=True)
        return MicroBatch(tuple(index), _pad([torch.tensor(tokens[i], dtype=torch.long) for i in index]), row_N, place_N, place_N - 1)
    rows = [_branched(tokens[i], masks[i], branches[i]) for i in index]
    token_BT, mask_BT, position_BT, segment_BT, limit_BT, source_BT = (_pad([row[k] for row in rows]) for k in range(6))
    place_T = torch.arange(token_BT.shape[1])
    causal_TT = place_T[:, None] >= place_T
    trunk_BTT = (segment_BT[:, None] == 0) & (place_T < limit_BT[:, :, None])
    own_BTT = segment_BT[:, None] == segment_BT[:, :, None]
    row_N, place_N = mask_BT.nonzero(as_tuple=True)
    return MicroBatch(tuple(index), token_BT, row_N, place_N, source_BT[row_N, place_N], position_BT, ((trunk_BTT | own_BTT) & causal_TT)[:, None])


def _branched(tokens: Sequence[int], mask: Sequence[int], branches: Sequence[Branch]) -> list[torch.Tensor]:
    """Token, loss mask, position, segment (0 = trunk), how much of the trunk is seen, and predicting place, each (T,)."""
    size = len(tokens)
    token, loss, position = list(tokens), list(mask), list(range(size))
    segment, limit, source = [0] * size, [size] * size, [i - 1 for i in range(size)]
    for number, branch in enumerate(branches, 1):
        start, length = len(token), len(branch.token_ids)
        token += branch.token_ids
        loss += branch.loss_mask
        position += range(branch.cut, branch.cut + length)
        segment += [number] * length
        limit += [branch.cut] * length
        source += [branch.cut - 1, *range(start, start + length - 1)]
    return [torch.tensor(column, dtype=torch.long) for column in (token, loss, position, segment, limit, source)]


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
    places = {} if batch.mask_B1TT is None else {"position_ids": batch.position_BT, "attention_mask": batch.mask_B1TT}
    inputs = {name: value.to(model.device) for name, value in {"input_ids": batch.token_BT, **places}.items() if value is not None}
    hidden_BTD = model.get_decoder()(**inputs, use_cache=False).last_hidden_state
    hidden_ND = hidden_BTD[batch.row_N, batch.source_N]
    target_N = batch.token_BT[batch.row_N, batch.place_N].to(model.device)
    head = model.get_output_embeddings()
    logprobs, entropies = [], []
    for hidden, target in zip(torch.split(hidden_ND, LOGIT_CHUNK), torch.split(target_N, LOGIT_CHUNK), strict=True):
        logprob_NV = torch.log_softmax(head(hidden).float() / temperature, dim=-1)
        logprobs.append(logprob_NV.gather(1, target[:, None])[:, 0])
        with torch.no_grad():
            entropies.append(-torch.einsum("nv,nv->n", logprob_NV.exp(), logprob_NV))
    return torch.cat(logprobs), torch.cat(entropies)
