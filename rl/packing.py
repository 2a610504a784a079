"""Sequences of a micro-batch as one row without padding, in which an opening that several of them share is computed
once.

All that a decoder does token by token runs on that row; for attention alone the sequences are laid out one below the
other, as plain causal attention wants them. What the last layer does after its attention is computed only where
somebody reads it. Gradients are those of the padded sequences but for rounding.

Shapes: B sequences, T tokens (padded), P = B T padded places, U tokens of the row, H heads, D head width, W width.
"""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable
from transformers import AttentionInterface

from rl.compiling import has_compiled_layers
from rl.windows import shortest_window

WORTHWHILE = 0.98  # tokens of the row over padded places, at most; else the sequences stay as they are
NAME = "anamnesis_packed"  # no mask is registered beside it: there is none


@dataclass(frozen=True)
class SoftTokens:
    """Vectors that stand in place of some tokens' embeddings."""

    place_F: torch.Tensor  # int64, different padded places
    vector_FW: torch.Tensor  # as wide as an embedding, with a gradient if they are to have one


@dataclass(frozen=True)
class Packing:
    """Where the tokens of padded sequences lie in the row."""

    shape: tuple[int, int]  # B, T
    position_U: torch.Tensor  # int64, place of each token in its sequence
    first_U: torch.Tensor  # int64, the padded place it was taken from
    token_P: torch.Tensor  # int64, which token of the row each padded place holds; 0 for padding, which nobody reads
    again_A: torch.Tensor  # int64, padded places that hold a token taken from another: shared openings

    def to(self, device: torch.device) -> "Packing":
        """On another device."""
        return Packing(
            self.shape,
            self.position_U.to(device),
            self.first_U.to(device),
            self.token_P.to(device),
            self.again_A.to(device),
        )


def pack(
    tokens: Sequence[Sequence[int]], openings: Sequence[int], families: Sequence[Hashable] | None = None
) -> Packing | None:
    """Lay sequences out in one row; None where that saves next to nothing.

    Args:
        tokens: of each sequence.
        openings: how many of its first tokens may be shared with sequences that begin the same.
        families: of each sequence; only those of one family share. None: all are of one.
    """
    width = max(map(len, tokens))
    token_BT = np.zeros((len(tokens), width), dtype=np.int64)
    first: list[np.ndarray] = []
    again: list[np.ndarray] = []
    begun: dict[tuple[Hashable, ...], int] = {}  # where in the row an opening lies
    size = 0
    for row, (ids, opening) in enumerate(zip(tokens, openings, strict=True)):
        family = families[row] if families is not None else None
        shared = begun.setdefault((family, *ids[:opening]), size)
        new = 0 if shared == size else opening
        token_BT[row, :new] = np.arange(shared, shared + new)
        token_BT[row, new : len(ids)] = np.arange(size, size + len(ids) - new)
        again.append(row * width + np.arange(new))
        first.append(row * width + np.arange(new, len(ids)))
        size += len(ids) - new
    if size > WORTHWHILE * token_BT.size:
        return None
    first_U, again_A = torch.from_numpy(np.concatenate(first)), torch.from_numpy(np.concatenate(again))
    return Packing(token_BT.shape, first_U % width, first_U, torch.from_numpy(token_BT).flatten(), again_A)


def unpadded(rows: int, width: int) -> Packing:
    """Rows that have no padding, or whose padding is computed as if it were tokens; nothing is shared."""
    place_P = torch.arange(rows * width)
    return Packing((rows, width), place_P % width, place_P, place_P, place_P[:0])


class _Spread(torch.autograd.Function):
    """From the row (U, W) to padded places (P, W)."""

    @staticmethod
    def forward(ctx: Any, row_UW: torch.Tensor, packing: Packing) -> torch.Tensor:
        ctx.packing = packing
        return row_UW.index_select(0, packing.token_P)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_PW: torch.Tensor) -> tuple[torch.Tensor, None]:
        packing: Packing = ctx.packing
        gradient_UW = gradient_PW.index_select(0, packing.first_U)
        again = packing.again_A
        return gradient_UW.index_add_(0, packing.token_P[again], gradient_PW.index_select(0, again)), None


class _Take(torch.autograd.Function):
    """Some rows of a matrix, each at most once."""

    @staticmethod
    def forward(ctx: Any, all_PW: torch.Tensor, index_U: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(index_U)
        ctx.rows = len(all_PW)
        return all_PW.index_select(0, index_U)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_UW: torch.Tensor) -> tuple[torch.Tensor, None]:
        (index_U,) = ctx.saved_tensors
        return gradient_UW.new_zeros(ctx.rows, gradient_UW.shape[1]).index_copy_(0, index_U, gradient_UW), None


def _attend(
    _module: torch.nn.Module | None,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _mask: torch.Tensor | None,
    *,
    packing: Packing,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention of a row (1, H, U, D); gives (1, U, H, D). Signature: transformers' attention interface."""

    def padded(x_1HUD: torch.Tensor) -> torch.Tensor:
        _, heads, size, width = x_1HUD.shape
        spread_PW = _Spread.apply(x_1HUD.transpose(1, 2).reshape(size, heads * width), packing)  # type: ignore[no-untyped-call]  # torch's stubs
        out: torch.Tensor = spread_PW.view(*packing.shape, heads, width).transpose(1, 2)
        return out

    shared = query.shape[1] != key.shape[1]
    out_BHTD = torch.nn.functional.scaled_dot_product_attention(
        padded(query), padded(key), padded(value), is_causal=True, dropout_p=dropout, scale=scaling, enable_gqa=shared
    )
    out_PW = out_BHTD.transpose(1, 2).reshape(len(packing.token_P), -1)
    taken_UW: torch.Tensor = _Take.apply(out_PW, packing.first_U)  # type: ignore[no-untyped-call]  # torch's stubs
    return taken_UW.view(1, len(packing.first_U), query.shape[1], query.shape[3]), None


AttentionInterface.register(NAME, _attend)


def packable(decoder: Any, length: int) -> bool:
    """Whether a decoder's attention is plain and causal in every layer for sequences of `length` tokens (a window that
    is no shorter hides nothing), and its forward pass is run once, here (not again for a gradient, nor compiled).
    """
    window = shortest_window(decoder.config)
    plain = decoder.config._attn_implementation == "sdpa" and (window is None or window >= length)
    return plain and runs_once(decoder)


def runs_once(decoder: Any) -> bool:
    """Whether a forward pass is run as it stands: not compiled, and not again for its gradient."""
    return not has_compiled_layers(decoder) and not (
        decoder.training and getattr(decoder, "gradient_checkpointing", False)
    )


def inputs_of(
    decoder: Any, token_XU: torch.Tensor, soft: SoftTokens | None, packing: Packing | None
) -> dict[str, torch.Tensor]:
    """What a decoder is given for tokens: their ids, or embeddings with the soft tokens in their places.

    Args:
        decoder: that reads them.
        token_XU: int64, padded sequences, or a row of theirs.
        soft: placed in the padded sequences.
        packing: how the row was laid out; None: they are the padded sequences themselves.
    """
    if soft is None:
        return {"input_ids": token_XU}
    place_F, vector_FW = soft.place_F.to(token_XU.device), soft.vector_FW
    if packing is not None:  # of places that share a token of the row, the one that it was taken from
        own_F = (packing.first_U[packing.token_P[place_F]] == place_F).nonzero()[:, 0]
        place_F, vector_FW = packing.token_P[place_F[own_F]], vector_FW[own_F]
    embedded_UW = decoder.get_input_embeddings()(token_XU).flatten(0, 1)
    return {"inputs_embeds": embedded_UW.index_copy(0, place_F, vector_FW.to(embedded_UW)).view(*token_XU.shape, -1)}


def packed_hidden(
    decoder: Any,
    token_BT: torch.Tensor,
    packing: Packing,
    read_R: torch.Tensor | None,
    soft: SoftTokens | None = None,
) -> torch.Tensor:
    """Last hidden states (B, T, W) of padded sequences, computed in a row.

    Args:
        decoder: a packable one.
        token_BT: the padded sequences.
        packing: of these.
        read_R: padded places where hidden states are read; elsewhere they may be anything. None: all.
        soft: vectors in place of tokens.
    """
    row_R = None if read_R is None else torch.unique(packing.token_P[read_R])
    token_1U = token_BT.flatten()[packing.first_U][None]
    with attention_by(decoder.config, NAME), last_layer_at(decoder, row_R):
        hidden_1UW = decoder(
            **inputs_of(decoder, token_1U, soft, packing),
            position_ids=packing.position_U[None],
            use_cache=False,
            packing=packing,
        ).last_hidden_state
    return spread(hidden_1UW[0], packing)


def spread(hidden_UW: torch.Tensor, packing: Packing) -> torch.Tensor:
    """From the row back to padded sequences (B, T, W)."""
    spread_PW: torch.Tensor = _Spread.apply(hidden_UW, packing)  # type: ignore[no-untyped-call]  # torch's stubs
    return spread_PW.view(*packing.shape, -1)


@contextmanager
def attention_by(config: Any, name: str) -> Iterator[None]:
    """While the block runs, a registered function computes the attention of a decoder of this configuration."""
    before = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before


@contextmanager
def last_layer_at(decoder: Any, row_R: torch.Tensor | None) -> Iterator[None]:
    """While the block runs, compute the feed-forward part of the last layer only for some tokens; the others get
    nothing added. None: for all.

    Args:
        decoder: one that `runs_once`; nothing happens to one whose last layer has no `mlp`.
        row_R: int64, different tokens, counted through all sequences.
    """
    layers = getattr(decoder, "layers", None)
    mlp = getattr(layers[-1], "mlp", None) if layers else None
    if mlp is None or row_R is None:
        yield
        return
    shape: list[torch.Size] = []

    def take(_module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        shape.append(inputs[0].shape)
        taken_RW = _Take.apply(inputs[0].reshape(-1, inputs[0].shape[-1]), row_R)  # type: ignore[no-untyped-call]  # torch's stubs
        return taken_RW[None], *inputs[1:]

    def give(_module: torch.nn.Module, _inputs: Any, out_1RW: torch.Tensor) -> torch.Tensor:
        return (
            out_1RW.new_zeros(shape[0].numel() // shape[0][-1], shape[0][-1])
            .index_copy(0, row_R, out_1RW[0])
            .view(shape[0])
        )

    hooks = [mlp.register_forward_pre_hook(take), mlp.register_forward_hook(give)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
