"""From token sequences to tensors: length-sorted micro-batches under a token budget.

A sequence may carry branches (alternative endings at several places): the shared part is computed once, and they are
kept apart in attention. How sequences are cut into micro-batches changes speed and memory only: losses are sums divided
by a count taken over the whole mini-batch beforehand.

Shapes: B sequences, T tokens (padded), N positions that carry loss.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from rl.branches import Branch, Branches, branched
from rl.flex import Row, branched_row, packed_row, reads_rows, row_hidden
from rl.logits import known_ids, logits_of
from rl.packing import Packing, SoftTokens, inputs_of, last_layer_at, pack, packable, packed_hidden, runs_once, unpadded
from rl.windows import layer_masks

LOGIT_BYTES = {"cpu": 2**26, "cuda": 2**30}  # of logits that exist at once; a GPU wants thousands of rows in a product
SIBLINGS = 4  # sequences behind one shared opening, at most: what they do not see of each other is computed and masked


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """Right-padded sequences (each followed by its branches) and what carries loss; of each sequence in order, its
    branches last.
    """

    index: tuple[int, ...]  # which sequences of the mini-batch
    token_BT: torch.Tensor  # int64
    row_N: torch.Tensor  # row of each loss position
    source_N: torch.Tensor  # place whose hidden state predicts it; in a sequence, the one before
    target_N: torch.Tensor  # the token itself
    weight_N: torch.Tensor  # its weight in the loss, float32
    branches: Branches | None = None  # where there are some
    sibling_N: torch.Tensor | None = (
        None  # where a row holds several sequences: which of `index` a loss position belongs to
    )
    packing: Packing | None = None  # without branches, and where it saves something: the same sequences in one row
    soft: SoftTokens | None = None  # vectors that stand in place of some tokens
    told: Any = None  # what a policy that is told more than tokens makes its soft tokens of (`Policy.dressed`)

    @property
    def sequence_N(self) -> torch.Tensor:  # noqa: N802  a shape suffix
        """Which of `index` each loss position belongs to."""
        return self.row_N if self.sibling_N is None else self.sibling_N


def size_of(batch: MicroBatch) -> int:
    """What a micro-batch costs, in padded tokens."""
    return batch.token_BT.numel()


def computed_tokens(tokens: Sequence[int], branches: Sequence[Branch]) -> int:
    """How many tokens of a sequence with its branches go through the model."""
    return len(tokens) + sum(len(b.token_ids) - 1 for b in branches) + len({b.after for b in branches} - {None})


def micro_batches(
    tokens: Sequence[Sequence[int]],
    masks: Sequence[Sequence[int]],
    token_budget: int,
    branches: Sequence[Sequence[Branch]] | None = None,
    units: Sequence[Sequence[int]] | None = None,
    families: Sequence[Hashable] | None = None,
) -> Iterator[MicroBatch]:
    """Cut sequences into padded batches of at most `token_budget` tokens (a longer single unit goes alone).

    Args:
        tokens: token ids of each sequence.
        masks: 1 where a token carries loss; the first token never can.
        token_budget: padded tokens per micro-batch.
        branches: of each sequence, or None.
        units: sequences that must stay together (a preference pair); None: each is its own unit.
        families: of each sequence, where equal tokens may stand for something else: only those of one family share the
            computation of an opening. None: all are of one.
    """
    length = [computed_tokens(t, branches[i] if branches else ()) for i, t in enumerate(tokens)]
    whole = [tuple(unit) for unit in units] if units is not None else [(i,) for i in range(len(tokens))]
    order = sorted(whole, key=lambda unit: (max(length[i] for i in unit), unit))
    batch: list[int] = []
    for unit in order:
        if batch and max(length[i] for i in unit) * (len(batch) + len(unit)) > token_budget:
            yield _micro_batch(batch, tokens, masks, branches, families)
            batch = []
        batch += unit
    if batch:
        yield _micro_batch(batch, tokens, masks, branches, families)


def sibling_batches(
    tokens: Sequence[Sequence[int]],
    masks: Sequence[Sequence[int]],
    token_budget: int,
    units: Sequence[Sequence[int]] | None = None,
) -> Iterator[MicroBatch]:
    """As `micro_batches` without branches, but sequences that begin with the same opening (all before the first token
    that carries loss) share its computation where that pays.

    It pays for openings at least as long as what follows them: a masked row then costs less than the opening computed
    again and again (1.42 times for 512 and 224).
    """
    families, alone = _families(tokens, masks, units if units is not None else [(i,) for i in range(len(tokens))])
    flat = [i for unit in alone for i in unit]
    place = {i: k for k, i in enumerate(flat)}
    together = [tuple(place[i] for i in unit) for unit in alone]
    for batch in micro_batches([tokens[i] for i in flat], [masks[i] for i in flat], token_budget, None, together):
        yield replace(batch, index=tuple(flat[i] for i in batch.index))
    cut = [masks[family[0]].index(1) for family in families]
    openings = [tokens[family[0]][:size] for family, size in zip(families, cut, strict=True)]
    rests = [
        [Branch(size, tuple(tokens[i][size:]), tuple(map(float, masks[i][size:]))) for i in family]
        for family, size in zip(families, cut, strict=True)
    ]
    for batch in micro_batches(openings, [[0] * size for size in cut], token_budget, rests):
        members = tuple(i for number in batch.index for i in families[number])
        sibling_N = torch.repeat_interleave(torch.arange(len(members)), torch.tensor([sum(masks[i]) for i in members]))
        yield replace(batch, index=members, sibling_N=sibling_N)


def _families(
    tokens: Sequence[Sequence[int]], masks: Sequence[Sequence[int]], units: Sequence[Sequence[int]]
) -> tuple[list[list[int]], list[Sequence[int]]]:
    """Sequences that share their opening in one row (whole units only), and the units that stay alone."""
    same: dict[tuple[int, ...], list[Sequence[int]]] = defaultdict(list)
    alone: list[Sequence[int]] = []
    for unit in units:
        openings = {tuple(tokens[i][: masks[i].index(1)]) if 1 in masks[i] else () for i in unit}
        opening = openings.pop()
        if openings or 2 * len(opening) * len(unit) < sum(len(tokens[i]) for i in unit):
            alone.append(unit)
        else:
            same[opening].append(unit)
    families: list[list[int]] = []
    for siblings in same.values():
        family: list[int] = []
        for unit in siblings:
            if family and len(family) + len(unit) > SIBLINGS:
                families.append(family)
                family = []
            family = [*family, *unit]
        families.append(family)
    return [f for f in families if len(f) > 1], [*alone, *((f[0],) for f in families if len(f) == 1)]


def _pad(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row, dtype=torch.long) for row in rows], batch_first=True)


def _micro_batch(
    index: list[int],
    tokens: Sequence[Sequence[int]],
    masks: Sequence[Sequence[int]],
    branches: Sequence[Sequence[Branch]] | None,
    families: Sequence[Hashable] | None,
) -> MicroBatch:
    if branches is None:
        token_BT, mask_BT = _pad([tokens[i] for i in index]), _pad([masks[i] for i in index])
        row_N, place_N = mask_BT.nonzero(as_tuple=True)
        packing = pack(
            [tokens[i] for i in index],
            [list(masks[i]).index(1) if 1 in masks[i] else 0 for i in index],
            [families[i] for i in index] if families is not None else None,
        )
        target_N, weight_N = token_BT[row_N, place_N], mask_BT[row_N, place_N].float()
        return MicroBatch(
            index=tuple(index),
            token_BT=token_BT,
            row_N=row_N,
            source_N=place_N - 1,
            target_N=target_N,
            weight_N=weight_N,
            packing=packing,
        )
    rows = [branched(tokens[i], masks[i], branches[i]) for i in index]
    token_BT, *seen = (_pad([row.inputs[k] for row in rows]) for k in range(5))
    row_N = torch.tensor([number for number, row in enumerate(rows) for _ in row.loss], dtype=torch.long)
    source_N, target_N = (
        torch.tensor([position[k] for row in rows for position in row.loss], dtype=torch.long) for k in (0, 1)
    )
    weight_N = torch.tensor([weight for row in rows for _, _, weight in row.loss], dtype=torch.float32)
    return MicroBatch(
        index=tuple(index),
        token_BT=token_BT,
        row_N=row_N,
        source_N=source_N,
        target_N=target_N,
        weight_N=weight_N,
        branches=Branches(torch.tensor([len(row.inputs[0]) for row in rows]), *seen),
    )


def hidden_states(decoder: torch.nn.Module, batch: MicroBatch, *, everywhere: bool = True) -> torch.Tensor:
    """Last hidden states of a decoder, (B, T, D).

    Padding is on the right and attention is causal, so no mask is needed and padding changes nothing.

    Args:
        decoder: in train or eval mode, as the caller wants it.
        batch: sequences.
        everywhere: also where no loss position is predicted; else hidden states there may be anything.
    """
    device = next(decoder.parameters()).device
    read_N = None if everywhere else (batch.row_N * batch.token_BT.shape[1] + batch.source_N).to(device)
    if reads_rows(decoder):
        return row_hidden(decoder, batch.token_BT.to(device), row_of(batch).to(device), read_N, batch.soft)
    if batch.packing is not None and packable(decoder, batch.token_BT.shape[1]):
        return packed_hidden(decoder, batch.token_BT.to(device), batch.packing.to(device), read_N, batch.soft)
    inputs: dict[str, Any] = inputs_of(decoder, batch.token_BT.to(device), batch.soft, None)
    if batch.branches is not None:
        branches = batch.branches.to(device)
        inputs["position_ids"] = branches.position_BT
        dtype = next(decoder.parameters()).dtype
        inputs["attention_mask"] = layer_masks(decoder.config, branches.mask(), branches.position_BT, dtype)
    with last_layer_at(decoder, torch.unique(read_N) if read_N is not None and runs_once(decoder) else None):
        hidden_BTD: torch.Tensor = decoder(**inputs, use_cache=False).last_hidden_state
    return hidden_BTD


def row_of(batch: MicroBatch) -> Row:
    """A micro-batch as one row of tokens, and what each of them sees."""
    if batch.branches is not None:
        return branched_row(batch.branches)
    return packed_row(batch.packing or unpadded(*batch.token_BT.shape))


def token_logprobs(model: PreTrainedModel, batch: MicroBatch, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of the recorded tokens at the loss positions, and the entropy there (without gradient).

    Args:
        model: in train or eval mode, as the caller wants it.
        batch: sequences and loss positions.
        temperature: divides the logits, as at sampling.

    Returns:
        logprob_N, entropy_N: float32 (N,), nats.
    """
    return head_logprobs(
        model, hidden_states(model.get_decoder(), batch, everywhere=False), batch, temperature, entropy_gradient=False
    )


def head_logprobs(
    model: PreTrainedModel, hidden_BTD: torch.Tensor, batch: MicroBatch, temperature: float, *, entropy_gradient: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `token_logprobs`, from hidden states.

    Logits are computed at loss positions only, in chunks; a chunk's are computed again for its gradient.
    """
    hidden_ND = hidden_BTD[batch.row_N, batch.source_N]
    target_N = batch.target_N.to(hidden_ND.device)

    def chunk(hidden: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits_NV = logits_of(model, hidden)
        logprob_NV = torch.log_softmax(logits_NV if temperature == 1.0 else logits_NV / temperature, dim=-1)
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            entropy_N = -torch.einsum("nv,nv->n", logprob_NV.exp(), logprob_NV)
        return logprob_NV.gather(1, target[:, None])[:, 0], entropy_N

    logprobs, entropies = [], []
    size = max(1, LOGIT_BYTES[hidden_ND.device.type] // (4 * known_ids(model)))  # in float32
    chunks = list(zip(torch.split(hidden_ND, size), torch.split(target_N, size), strict=True))
    for hidden, target in chunks:
        again = len(chunks) > 1 and torch.is_grad_enabled()
        logprob_N, entropy_N = (
            checkpoint(chunk, hidden, target, use_reentrant=False) if again else chunk(hidden, target)
        )
        logprobs.append(logprob_N)
        entropies.append(entropy_N)
    return torch.cat(logprobs), torch.cat(entropies)
