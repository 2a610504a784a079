"""The key-value cache of the slots, and attention that reads it where it lies.

Plain attention of transformers would copy the cache twice at every token: the rows of the running slots out of it, and every key-value head once more for
each query head that shares it. Here queries of a shared head are folded into one, and as long as enough slots run, all of them are read in place.

Shapes: S slots, B rows in this forward, H query heads, K key-value heads, G = H / K, Q new tokens per row, L cached length, D head width.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask

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
        self.in_place = False  # whether `update` returns the slots from 0 to the highest running one; else the running ones, copied
        self._top = 0

    def select(self, rows: list[int], place_BQ: torch.Tensor, span: int) -> None:
        """Say where the next forward writes (rows, rising, and places) and how far it reads."""
        device = self.keys[0].device
        self.row_B, self.place_BQ, self.span = torch.tensor(rows, device=device), place_BQ.to(device), span
        self._top = rows[-1] + 1
        self.in_place = self._top <= IN_PLACE * len(rows)

    def update(self, key: torch.Tensor, value: torch.Tensor, layer: int, *_: object, **__: object) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new keys and values (B, K, Q, D); return all up to the span, (B, K, L, D), or of all slots up to the highest running."""
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


def _attend(
    _module: torch.nn.Module | None,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    *,
    slots: SlotCache,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Scaled dot-product attention of (B, H, Q, D) on what `SlotCache.update` returned; gives (B, Q, H, D). Signature: transformers' attention interface."""
    rows, heads, new, width = query.shape
    shared = key.shape[1]
    query_BKGD = query.reshape(rows, shared, heads // shared * new, width)
    mask_B1GL = attention_mask.repeat(1, 1, heads // shared, 1)
    if slots.in_place and len(key) > rows:
        query_SKGD = query.new_zeros(len(key), *query_BKGD.shape[1:])
        query_SKGD[slots.row_B] = query_BKGD
        mask_S1GL = mask_B1GL.new_zeros(len(key), *mask_B1GL.shape[1:])
        mask_S1GL[..., 0] = True  # what idle slots compute is thrown away, but must be a number
        mask_S1GL[slots.row_B] = mask_B1GL
        out = torch.nn.functional.scaled_dot_product_attention(query_SKGD, key, value, mask_S1GL, scale=scaling)[slots.row_B]
    else:
        out = torch.nn.functional.scaled_dot_product_attention(query_BKGD, key, value, mask_B1GL, scale=scaling)
    return out.reshape(rows, heads, new, width).transpose(1, 2).contiguous(), None


NAME = "anamnesis_slots"
AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, sdpa_mask)


@contextmanager
def slot_attention(model: PreTrainedModel) -> Iterator[None]:
    """Let the model's attention read a `SlotCache` (given as `slots` to its forward) while the block runs."""
    config = model.config.get_text_config()
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before
