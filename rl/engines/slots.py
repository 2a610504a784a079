"""The key-value cache of the slots, and attention that reads it where it lies.

New tokens of all rows lie in one row without padding, whether a slot gets one token or many: what a model does token by
token wastes nothing. For attention alone they are laid out by slot, those that get one apart from those that get many.

Plain attention of transformers would copy the cache twice at every token: the rows of the running slots out of it, and
every key-value head once more for each query head that shares it. Here queries of a shared head are folded into one,
and as long as enough slots run, all of them are read in place.

Shapes: S slots, B rows in this forward, U new tokens of all rows, H query heads, K key-value heads, G = H / K, Q new
tokens per row, L cached length, D head width.
"""

import copy
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask

from rl.packing import attention_by

IN_PLACE = 2  # slots read for each running one, at most, before copying the running ones is cheaper


class SlotCache:
    """Keys and values of all slots, one preallocated tensor per layer; the model's attention calls `update`."""

    def __init__(self, model: PreTrainedModel, slots: int, length: int) -> None:
        """Allocate for `slots` sequences of at most `length` tokens."""
        config = model.config.get_text_config()
        heads = config.num_key_value_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (slots, heads, length, width)
        device, dtype = model.device, model.dtype
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.num_hidden_layers)]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.num_hidden_layers)]
        self.row_B: torch.Tensor
        self.place_BQ: torch.Tensor
        self.span = 0
        self.in_place = (
            False  # whether `update` returns the slots from 0 to the highest running one; else the running ones, copied
        )
        self._top = 0

    def select(self, rows: list[int], place_BQ: torch.Tensor, span: int) -> None:
        """Say where the next forward writes (rows, rising, and places) and how far it reads."""
        device = self.keys[0].device
        self.row_B, self.place_BQ, self.span = torch.tensor(rows, device=device), place_BQ.to(device), span
        self._top = rows[-1] + 1
        self.in_place = self._top <= IN_PLACE * len(rows)

    def select_all(self, row_S: torch.Tensor, place_S1: torch.Tensor, span: int) -> None:
        """As `select` of one token for every slot, from tensors that lie on the cache's device."""
        self.row_B, self.place_BQ, self.span = row_S, place_S1, span
        self._top, self.in_place = len(row_S), True

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer: int, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new keys and values (B, K, Q, D); return all up to the span, (B, K, L, D), or of all slots up to the
        highest running.
        """
        keys, values = self.keys[layer], self.values[layer]
        row_B1 = self.row_B[:, None]
        keys[row_B1, :, self.place_BQ] = key.transpose(1, 2)
        values[row_B1, :, self.place_BQ] = value.transpose(1, 2)
        if self.in_place:
            return keys[: self._top, :, : self.span], values[: self._top, :, : self.span]
        return keys[self.row_B, :, : self.span], values[self.row_B, :, : self.span]

    def get_seq_length(self, *_: object) -> int:
        """Unused by the model when positions are given."""
        return 0


@dataclass(frozen=True)
class Part:
    """Slots that are fed in one forward, as they lie in the row of all new tokens."""

    cache: SlotCache  # with these slots selected
    token_P: torch.Tensor  # int64 (B Q), which token of the row each padded place holds
    place_U: torch.Tensor  # int64, the padded place of each token
    mask_B1QL: torch.Tensor

    def spread(self, x_1HUD: torch.Tensor) -> torch.Tensor:
        """By slot, (B, H, Q, D)."""
        _, heads, _, width = x_1HUD.shape
        rows = len(self.mask_B1QL)
        return (
            x_1HUD[0].index_select(1, self.token_P).view(heads, rows, len(self.token_P) // rows, width).transpose(0, 1)
        )


class SlotRow:
    """What a model's forward is given as cache when the new tokens of several slots lie in one row."""

    def __init__(
        self, cache: SlotCache, groups: Sequence[tuple[list[int], torch.Tensor, torch.Tensor]], length: int
    ) -> None:
        """Args: the cache; slots (rising), cached lengths (B,) and numbers of new tokens (B,) of each group, in the
        order of the row; tokens that a slot can hold.
        """
        self.parts: list[Part] = []
        self._read: list[tuple[torch.Tensor, torch.Tensor]] = []
        places, lasts, size = [], [], 0
        for rows, start_B, count_B in groups:
            offset_BQ = torch.arange(int(count_B.max())).expand(len(rows), -1)
            place_BQ = (start_B[:, None] + offset_BQ).clamp(max=length - 1)  # padding past the end is never read
            span = int(place_BQ.max()) + 1
            selected = copy.copy(cache)
            selected.select(rows, place_BQ, span)
            real_BQ = offset_BQ < count_B[:, None]
            last_B = size + count_B.cumsum(0) - 1
            token_BQ = torch.where(real_BQ, (last_B - count_B + 1)[:, None] + offset_BQ, 0)
            mask_B1QL = (torch.arange(span) <= place_BQ[:, :, None])[:, None]
            device = cache.keys[0].device
            self.parts.append(
                Part(
                    selected,
                    token_BQ.flatten().to(device),
                    real_BQ.flatten().nonzero()[:, 0].to(device),
                    mask_B1QL.to(device),
                )
            )
            places.append(place_BQ[real_BQ])
            lasts.append(last_B)
            size += int(count_B.sum())
        self.position_U, self.last_B = torch.cat(places), torch.cat(lasts)

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer: int, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new keys and values (1, K, U, D)."""
        self._read = [part.cache.update(part.spread(key), part.spread(value), layer) for part in self.parts]
        return key, value

    def attend(self, query: torch.Tensor, layer: Mapping[str, Any]) -> torch.Tensor:
        """Attention of (1, H, U, D) on what the last `update` wrote and what lay there before; (1, U, H, D)."""
        out = []
        for part, (key, value) in zip(self.parts, self._read, strict=True):
            out_BQHD, _ = _attend(None, part.spread(query), key, value, part.mask_B1QL, slots=part.cache, **layer)
            out.append(out_BQHD.flatten(0, 1).index_select(0, part.place_U))
        return torch.cat(out)[None]

    def get_seq_length(self, *_: object) -> int:
        """Unused by the model when positions are given."""
        return 0


def _attend(
    _module: torch.nn.Module | None,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    *,
    slots: SlotCache | SlotRow,
    **layer: Any,
) -> tuple[torch.Tensor, None]:
    """Scaled dot-product attention of (B, H, Q, D) on what `SlotCache.update` returned; gives (B, Q, H, D).

    Signature: transformers' attention interface. Of what it says of a layer, `scaling`, `sliding_window` and `softcap`
    count.
    """
    if isinstance(slots, SlotRow):
        return slots.attend(query, layer), None
    rows, heads, new, width = query.shape
    shared = key.shape[1]
    query_BKGD = query.reshape(rows, shared, heads // shared * new, width)
    scaling, softcap = layer.get("scaling"), layer.get("softcap")
    if window := layer.get("sliding_window"):
        place_L = torch.arange(slots.span, device=query.device)
        attention_mask = attention_mask & (place_L > slots.place_BQ[:, :, None] - window)[:, None]
    mask_B1GL = attention_mask.repeat(1, 1, heads // shared, 1)
    if slots.in_place and len(key) > rows:
        query_SKGD = query.new_zeros(len(key), *query_BKGD.shape[1:])
        query_SKGD[slots.row_B] = query_BKGD
        mask_S1GL = mask_B1GL.new_zeros(len(key), *mask_B1GL.shape[1:])
        mask_S1GL[..., 0] = True  # what idle slots compute is thrown away, but must be a number
        mask_S1GL[slots.row_B] = mask_B1GL
        out = _product(query_SKGD, key, value, mask_S1GL, scaling, softcap)[slots.row_B]
    else:
        out = _product(query_BKGD, key, value, mask_B1GL, scaling, softcap)
    return out.reshape(rows, heads, new, width).transpose(1, 2).contiguous(), None


def _product(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    scaling: float | None,
    softcap: float | None,
) -> torch.Tensor:
    """Attention; its scores capped if the layer does so (Gemma-2, arXiv:2408.00118)."""
    if not softcap:
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, scale=scaling)
    score = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    score = (torch.tanh(score / softcap) * softcap).masked_fill(~mask, -torch.inf)
    return torch.softmax(score, dim=-1, dtype=torch.float32).to(value.dtype) @ value


NAME = "anamnesis_slots"
AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, sdpa_mask)


def slot_attention(model: PreTrainedModel) -> AbstractContextManager[None]:
    """Let the model's attention read a `SlotCache` (given as `slots` to its forward) while the block runs."""
    return attention_by(model.config.get_text_config(), NAME)
