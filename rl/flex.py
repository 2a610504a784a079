"""Attention of one row of tokens without a mask of its length squared: packed sequences, shared openings, branches and
windows as intervals of the row that each token sees (`torch.nn.attention.flex_attention`, arXiv:2412.05496).

For a GPU, where the kernels leave out blocks of the row that nobody sees. What is computed is what `packing` and
`branches` say; there the same is computed with padding and dense masks.

Shapes: B sequences, T tokens (padded), U tokens of the row, K intervals, N blocks of the row, H heads, D head width,
W width.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers import AttentionInterface, PreTrainedModel

from rl.branches import Branches
from rl.compiling import allow_programs
from rl.errors import first_line
from rl.packing import Packing, SoftTokens, attention_by, inputs_of, last_layer_at, runs_once, spread, unpadded
from rl.windows import layer_windows

NAME = "anamnesis_flex"
BLOCK = 128  # tokens; what flex_attention's kernels are tuned for
AT_ONCE = 64  # blocks whose sight is counted at once
TRIAL_TOLERANCE = 0.05  # of the largest number: both round to 16 bits, in different order
TRIAL_WINDOW = 50  # places
log = logging.getLogger(__name__)
AttendsTo = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Row:
    """Tokens in a row, and the intervals of it that each of them sees; within one, places rise by one."""

    packing: Packing  # where they lie in the padded sequences
    begin_KU: torch.Tensor  # int64; intervals of a token are disjoint
    end_KU: torch.Tensor  # int64, exclusive; not above its begin: empty
    place_KU: torch.Tensor  # int64, the place in its dialogue of the first token of the interval

    def to(self, device: torch.device) -> "Row":
        """On another device."""
        return Row(self.packing.to(device), self.begin_KU.to(device), self.end_KU.to(device), self.place_KU.to(device))

    def within(self, window: int | None) -> "Row":
        """With no more seen than a window of so many places, the token itself included."""
        if window is None:
            return self
        hidden_KU = (self.packing.position_U - window + 1 - self.place_KU).clamp(min=0)
        return replace(self, begin_KU=self.begin_KU + hidden_KU, place_KU=self.place_KU + hidden_KU)


def packed_row(packing: Packing) -> Row:
    """Sequences whose shared openings lie in the row once: a token sees the opening, and its own sequence behind it."""
    rows, width = packing.shape
    opening_B = torch.bincount(packing.again_A // width, minlength=rows)
    token_BT = packing.token_P.view(rows, width)
    row_U = packing.first_U // width
    own_B = token_BT.gather(1, opening_B[:, None])[:, 0]
    begin_KU = torch.stack([own_B[row_U], token_BT[:, 0][row_U]])
    end_KU = torch.stack([torch.arange(len(row_U)) + 1, begin_KU[1] + opening_B[row_U]])
    return Row(packing, begin_KU, end_KU, torch.stack([opening_B[row_U], torch.zeros_like(row_U)]))


def branched_row(branches: Branches) -> Row:
    """Sequences with their branches: a token sees its own segment, the one that this continues, and the sequence."""
    rows, width = branches.segment_BT.shape
    place_T = torch.arange(width)
    real_BT = place_T < branches.length_B[:, None]
    segment_BT = branches.segment_BT.masked_fill(~real_BT, torch.iinfo(torch.long).max)  # rising
    own_BT = torch.searchsorted(segment_BT, segment_BT)
    before_BT = torch.searchsorted(segment_BT, branches.before_BT)
    after_BT = torch.searchsorted(segment_BT, branches.before_BT, right=True)
    continues_BT = branches.before_BT != branches.segment_BT
    zero_BT = torch.zeros_like(own_BT)
    begin_KBT = torch.stack([own_BT, before_BT.clamp(max=width - 1), zero_BT])
    end_KBT = torch.stack(
        [
            (place_T + 1).expand(rows, -1),
            torch.where(continues_BT, after_BT, zero_BT),
            torch.where(branches.segment_BT > 0, branches.limit_BT, zero_BT),
        ]
    )
    place_KBT = torch.stack([branches.position_BT.gather(1, begin_BT.clamp(max=width - 1)) for begin_BT in begin_KBT])
    token_BT = real_BT.flatten().cumsum(0).view(rows, width) - 1
    packing = Packing(
        (rows, width),
        branches.position_BT[real_BT],
        real_BT.flatten().nonzero()[:, 0],
        torch.where(real_BT, token_BT, 0).flatten(),
        place_T[:0],
    )
    start_B1 = token_BT[:, :1]
    return Row(packing, (begin_KBT + start_B1)[:, real_BT], (end_KBT + start_B1)[:, real_BT], place_KBT[:, real_BT])


def block_mask(row: Row) -> BlockMask:
    """Which blocks of the row see which, and within those that see each other in part, who sees whom.

    The row is as if filled up to whole blocks with tokens that see themselves.
    """
    size = row.begin_KU.shape[1]
    filled_U = torch.arange(size, size + -size % BLOCK, device=row.begin_KU.device)
    nothing_KU = filled_U.new_zeros(len(row.begin_KU) - 1, len(filled_U))
    begin_KU = torch.cat([row.begin_KU, torch.cat([filled_U[None], nothing_KU])], 1).int()
    end_KU = torch.cat([row.end_KU, torch.cat([filled_U[None] + 1, nothing_KU])], 1).int()
    pieces = zip(torch.split(begin_KU, AT_ONCE * BLOCK, 1), torch.split(end_KU, AT_ONCE * BLOCK, 1), strict=True)
    seen_NN = torch.cat([_seen_by_blocks(begin, end, begin_KU.shape[1]) for begin, end in pieces])
    whole_NN = seen_NN == BLOCK * BLOCK
    return BlockMask.from_kv_blocks(
        *_ordered((seen_NN > 0) & ~whole_NN), *_ordered(whole_NN), BLOCK_SIZE=BLOCK, mask_mod=_sees(begin_KU, end_KU)
    )


def _seen_by_blocks(begin_KU: torch.Tensor, end_KU: torch.Tensor, size: int) -> torch.Tensor:
    """How many pairs of a token in each block of these and one in each block of a row of `size` see each other, (N', N)."""
    first_N = torch.arange(0, size, BLOCK, device=begin_KU.device, dtype=torch.int32)
    seen_UN = torch.zeros(begin_KU.shape[1], len(first_N), device=begin_KU.device, dtype=torch.int32)
    for begin_U, end_U in zip(begin_KU, end_KU, strict=True):
        low_UN = torch.maximum(begin_U[:, None], first_N)
        seen_UN += (torch.minimum(end_U[:, None], first_N + BLOCK) - low_UN).clamp(min=0)
    return seen_UN.view(-1, BLOCK, len(first_N)).sum(1)


def _ordered(chosen_NN: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each block how many others are chosen, and all others with the chosen ones first; (1, 1, N), (1, 1, N, N)."""
    order_NN = torch.argsort(chosen_NN.int(), dim=-1, descending=True, stable=True).int()
    return chosen_NN.sum(-1, dtype=torch.int32)[None, None], order_NN[None, None]


def _sees(begin_KU: torch.Tensor, end_KU: torch.Tensor) -> AttendsTo:
    intervals = tuple(zip(begin_KU.unbind(), end_KU.unbind(), strict=True))

    def sees(_b: torch.Tensor, _h: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        seen = key < 0
        for begin_U, end_U in intervals:
            seen = seen | ((key >= begin_U[query]) & (key < end_U[query]))
        return seen

    return sees


def _capped(softcap: float) -> Callable[..., torch.Tensor]:
    """Scores capped as by Gemma-2 (arXiv:2408.00118)."""

    def capped(score: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return softcap * torch.tanh(score / softcap)

    return capped


_compiled: list[Any] = []  # flex_attention, compiled when it is first needed on a GPU


def _flex(*arguments: torch.Tensor, **named: Any) -> torch.Tensor:
    """flex_attention, compiled on a GPU: as it stands it would make the scores of the whole row."""
    attend: Any = flex_attention
    if arguments[0].device.type == "cuda" and not torch.compiler.is_compiling():
        if not _compiled:
            # whole: else, after a few shapes too many, it would silently run as it stands
            _compiled.append(torch.compile(flex_attention, fullgraph=True))
        attend = _compiled[0]
    out: torch.Tensor = attend(*arguments, **named)
    return out


def _attend(
    _module: torch.nn.Module | None,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: BlockMask,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of a row (1, H, U, D); gives (1, U, H, D). Signature: transformers' attention interface."""
    out_1HUD = _flex(
        query,
        key,
        value,
        score_mod=_capped(softcap) if softcap else None,
        block_mask=attention_mask,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return out_1HUD.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, _attend)


def read_rows(model: PreTrainedModel) -> None:
    """From now on its decoder computes micro-batches in a row, by flex attention."""
    model.get_decoder().reads_rows = True


def reads_rows(decoder: torch.nn.Module) -> bool:
    """Whether `read_rows` was called on its model."""
    return bool(getattr(decoder, "reads_rows", False))


def row_hidden(
    decoder: Any, token_BT: torch.Tensor, row: Row, read_R: torch.Tensor | None, soft: SoftTokens | None = None
) -> torch.Tensor:
    """Last hidden states (B, T, W) of padded sequences, computed in a row; see `packing.packed_hidden`."""
    packing, config = row.packing, decoder.config
    size = len(packing.first_U)
    masks = {window: block_mask(row.within(window)) for window in set(layer_windows(config))}
    windows = layer_windows(config)
    mixed = len(masks) > 1
    fill = torch.nn.functional.pad
    row_R = None if read_R is None or not runs_once(decoder) else torch.unique(packing.token_P[read_R])
    token_1U = fill(token_BT.flatten()[packing.first_U], (0, -size % BLOCK))[None]
    with attention_by(config, NAME), last_layer_at(decoder, row_R):
        hidden_1UW = decoder(
            **inputs_of(decoder, token_1U, soft, packing),
            position_ids=fill(packing.position_U, (0, -size % BLOCK))[None],
            attention_mask={kind: masks[w] for kind, w in zip(config.layer_types, windows, strict=True)}
            if mixed
            else masks[windows[0]],
            use_cache=False,
        ).last_hidden_state
    return spread(hidden_1UW[0, :size], packing)


def same_attention_again(config: Any) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Contexts of a forward pass and of its recomputation for a gradient, which comes when `attention_by` is over."""
    return nullcontext(), attention_by(config, config._attn_implementation)


def prefer_rows(model: PreTrainedModel, compute: str) -> None:
    """`read_rows` where the model lies on a GPU and flex attention is found to work there.

    Args:
        model: as it was loaded.
        compute: torch's name of the precision of forward and backward.
    """
    if model.device.type != "cuda":
        return  # there it has no kernel with a gradient
    allow_programs()
    learns = getattr(torch, compute)
    # what is compiled is what takes time: weights in float32 are looked at once, and never learn as they are
    for dtype in {model.dtype, learns}:
        if reason := why_no_flex(model, dtype, gradients=dtype == learns):
            log.warning("flex attention does not work here in %s, sequences are padded instead: %s", dtype, reason)
            return
    read_rows(model)


def why_no_flex(model: PreTrainedModel, dtype: torch.dtype, *, gradients: bool = True) -> str | None:
    """Why flex attention cannot be used for a model on its device; None: it works.

    Tried on two short rows: forward and, for `gradients`, backward passes with the shapes of its heads and its cap,
    beside attention written out.
    """
    config, device = model.config.get_text_config(), model.device
    heads, shared = config.num_attention_heads, config.num_key_value_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    softcap = getattr(config, "attn_logit_softcapping", None)
    generator = torch.Generator().manual_seed(0)
    try:
        for size in (BLOCK, 3 * BLOCK):
            query, key, value = (
                torch.randn(1, n, size, width, generator=generator).to(device, dtype).requires_grad_(gradients)
                for n in (heads, shared, shared)
            )
            row = packed_row(unpadded(2, size // 2)).within(TRIAL_WINDOW)
            ours, _ = _attend(None, query, key, value, block_mask(row.to(device)), softcap=softcap)
            plain = _written_out(query.float(), key.float(), value.float(), size // 2, softcap)
            inputs = (query, key, value) if gradients else ()
            for side, other in zip(*(_with_gradients(out, *inputs) for out in (ours, plain)), strict=True):
                if not (side - other).abs().max() <= TRIAL_TOLERANCE * other.abs().max():
                    return "its results differ from those of attention written out"
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        return first_line(error)
    return None


def _written_out(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, length: int, softcap: float | None
) -> torch.Tensor:
    """Attention of sequences of one length in a row, with the window of the trial; (1, U, H, D)."""
    key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], 1) for x in (key, value))
    score = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    score = _capped(softcap)(score) if softcap else score
    place = torch.arange(query.shape[2], device=query.device)
    back = place[:, None] - place
    seen = (back >= 0) & (back < TRIAL_WINDOW) & (place[:, None] // length == place // length)
    return (torch.softmax(score.masked_fill(~seen, -torch.inf), -1) @ value).transpose(1, 2)


def _with_gradients(out: torch.Tensor, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of its sum of squares; the output first."""
    found = torch.autograd.grad(out.float().square().sum(), inputs) if inputs else ()
    return out.detach().float(), *(g.float() for g in found)
