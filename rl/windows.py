"""Sliding windows: which layers of a model see only the last tokens, and masks that keep to it.

Shapes: B sequences, T tokens.
"""

from typing import Any

import torch


def layer_windows(config: Any) -> list[int | None]:
    """Of each layer, how many places a token sees, itself included; None: all before it. One entry for all where the
    configuration names no layers.
    """
    window: int | None = getattr(config, "sliding_window", None) or None
    types = getattr(config, "layer_types", None)
    return [window if kind == "sliding_attention" else None for kind in types] if types else [window]


def shortest_window(config: Any) -> int | None:
    """The shortest window of any layer; None: every layer sees everything."""
    return min((window for window in layer_windows(config) if window is not None), default=None)


def layer_masks(
    config: Any, mask_B1TT: torch.Tensor, position_BT: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor | dict[str, torch.Tensor]:
    """A mask as the decoder wants it: with its windows, for each kind of layer where they differ.

    Args:
        config: the decoder's.
        mask_B1TT: bool, who sees whom but for windows.
        position_BT: int64, place of each token in its dialogue: windows are counted in these, not in rows.
        dtype: of the decoder's activations; eager attention adds its mask.
    """

    def mask(window: int | None) -> torch.Tensor:
        seen = mask_B1TT
        if window is not None:
            seen = seen & (position_BT[:, :, None] - position_BT[:, None] < window)[:, None]
        if config._attn_implementation != "eager":
            return seen
        return torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)

    windows = layer_windows(config)
    if len(set(windows)) == 1:
        return mask(windows[0])
    return dict(zip(config.layer_types, map(mask, windows), strict=True))
