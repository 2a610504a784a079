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
    """An alternative continuation of a sequence from place `cut` on: it sees the sequence before the cut, what it continues and itself; nobody else sees it.

    Its last token is a target only, unless another branch continues it.
    """

    cut: int
    token_ids: tuple[int, ...]
    loss_weight: tuple[float, ...]  # of each token; a token of the sequence itself has 1 or 0
    after: int | None = None  # which branch of the same sequence, with the same cut, it continues; that one continues none


@dataclass(frozen=True)
class MicroBatch:
    """Right-padded sequences (each followed by its branches) and what carries loss; of each sequence in order, its branches last."""

    index: tuple[int, ...]  # which sequences of the mini-batch
    token_BT: torch.Tensor  # int64
    row_N: torch.Tensor  # sequence of each loss position
    source_N: torch.Tensor  # place whose hidden state predicts it; in a sequence, the one before
    target_N: torch.Tensor  # the token itself
    weight_N: torch.Tensor  # its weight in the loss, float32
    position_BT: torch.Tensor | None = None  # with branches only: rotary positions
    mask_B1TT: torch.Tensor | None = None  # with branches only: who sees whom


def computed_tokens(tokens: Sequence[int], branches: Sequence[Branch]) -> int:
    """How many tokens of a sequence with its branches go through the model."""
    return len(tokens) + sum(len(b.token_ids) - 1 for b in branches) + len({b.after for b in branches} - {None})


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
    length = [computed_tokens(t, branches[i] if branches else ()) for i, t in enumerate(tokens)]
    order = sorted(range(len(tokens)), key=lambda i: (length[i], i))
    batch: list[int] = []
    for i in order:
        if batch and length[i] * (len(batch) + 1) > token_budget:
            yield _micro_batch(batch, tokens, masks, branches)
            batch = []
        batch.append(i)
    if batch:
        yield _micro_batch(batch, tokens, masks, branches)


def _pad(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row, dtype=torch.long) for row in rows], batch_first=True)


def _micro_batch(index: list[int], tokens: Sequence[Sequence[int]], masks: Sequence[Sequence[int]], branches: Sequence[Sequence[Branch]] | None) -> MicroBatch:
    if branches is None:
        token_BT, mask_BT = _pad([tokens[i] for i in index]), _pad([masks[i] for i in index])
        row_N, place_N = mask_BT.nonzero(as_tuple=True)
        return MicroBatch(tuple(index), token_BT, row_N, place_N - 1, token_BT[row_N, place_N], mask_BT[row_N, place_N].float())
    rows = [_branched(tokens[i], masks[i], branches[i]) for i in index]
    token_BT, position_BT, segment_BT, before_BT, limit_BT = (_pad([row.inputs[k] for row in rows]) for k in range(5))
    place_T = torch.arange(token_BT.shape[1])
    causal_TT = place_T[:, None] >= place_T
    trunk_BTT = (segment_BT[:, None] == 0) & (place_T < limit_BT[:, :, None])
    own_BTT = (segment_BT[:, None] == segment_BT[:, :, None]) | (segment_BT[:, None] == before_BT[:, :, None])
    row_N = torch.tensor([number for number, row in enumerate(rows) for _ in row.loss], dtype=torch.long)
    source_N, target_N = (torch.tensor([position[k] for row in rows for position in row.loss], dtype=torch.long) for k in (0, 1))
    weight_N = torch.tensor([weight for row in rows for _, _, weight in row.loss], dtype=torch.float32)
    return MicroBatch(tuple(index), token_BT, row_N, source_N, target_N, weight_N, position_BT, ((trunk_BTT | own_BTT) & causal_TT)[:, None])


@dataclass(frozen=True)
class _Row:
    """A sequence with its branches."""

    inputs: tuple[list[int], list[int], list[int], list[int], list[int]]  # token, position, segment (0 = trunk), segment continued or its own, how much of the trunk is seen
    loss: list[tuple[int, int, float]]  # predicting place, target, weight


def _branched(tokens: Sequence[int], mask: Sequence[int], branches: Sequence[Branch]) -> _Row:
    size = len(tokens)
    inputs = list(tokens), list(range(size)), [0] * size, [0] * size, [size] * size
    token, position, segment, before, limit = inputs
    loss = [(place - 1, tokens[place], 1.0) for place in range(size) if mask[place]]
    continued = {branch.after for branch in branches}
    last: list[int] = []  # place of each branch's last input
    for number, branch in enumerate(branches):
        read = len(branch.token_ids) - (number not in continued)
        source, offset = (branch.cut - 1, branch.cut) if branch.after is None else (last[branch.after], position[last[branch.after]] + 1)
        start = len(token)
        token += branch.token_ids[:read]
        position += range(offset, offset + read)
        segment += [number + 1] * read
        before += [number + 1 if branch.after is None else branch.after + 1] * read
        limit += [branch.cut] * read
        last.append(start + read - 1)
        sources = [source, *range(start, start + len(branch.token_ids) - 1)]
        loss += [(s, t, w) for s, t, w in zip(sources, branch.token_ids, branch.loss_weight, strict=True) if w]
    return _Row(inputs, loss)


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
    target_N = batch.target_N.to(model.device)
    head = model.get_output_embeddings()
    logprobs, entropies = [], []
    for hidden, target in zip(torch.split(hidden_ND, LOGIT_CHUNK), torch.split(target_N, LOGIT_CHUNK), strict=True):
        logprob_NV = torch.log_softmax(head(hidden).float() / temperature, dim=-1)
        logprobs.append(logprob_NV.gather(1, target[:, None])[:, 0])
        with torch.no_grad():
            entropies.append(-torch.einsum("nv,nv->n", logprob_NV.exp(), logprob_NV))
    return torch.cat(logprobs), torch.cat(entropies)
