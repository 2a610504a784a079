"""Sequences that carry branches: alternative endings at several places, computed in one row.

Shapes: B sequences with their branches, T tokens (padded).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Branch:
    """An alternative continuation of a sequence from place `cut` on: it sees the sequence before the cut, what it
    continues and itself; nobody else sees it.

    Its last token is a target only, unless another branch continues it.
    """

    cut: int
    token_ids: tuple[int, ...]
    loss_weight: tuple[float, ...]  # of each token; a token of the sequence itself has 1 or 0
    after: int | None = (
        None  # which branch of the same sequence, with the same cut, it continues; that one continues none
    )


@dataclass(frozen=True)
class Branches:
    """Where the tokens of padded rows stand in their dialogues, and what they see."""

    length_B: torch.Tensor  # int64, tokens of each row, its branches included
    position_BT: torch.Tensor  # int64, rotary positions
    segment_BT: torch.Tensor  # int64, 0: the sequence itself; else its branches, from 1, one after the other
    before_BT: torch.Tensor  # int64, the segment that this one continues, or itself
    limit_BT: torch.Tensor  # int64, how many tokens of the sequence itself are seen

    def to(self, device: torch.device) -> "Branches":
        """On another device."""
        return Branches(
            self.length_B.to(device),
            self.position_BT.to(device),
            self.segment_BT.to(device),
            self.before_BT.to(device),
            self.limit_BT.to(device),
        )

    def mask(self) -> torch.Tensor:
        """Who sees whom but for windows, bool (B, 1, T, T)."""
        place_T = torch.arange(self.segment_BT.shape[1], device=self.segment_BT.device)
        causal_TT = place_T[:, None] >= place_T
        trunk_BTT = (self.segment_BT[:, None] == 0) & (place_T < self.limit_BT[:, :, None])
        own_BTT = (self.segment_BT[:, None] == self.segment_BT[:, :, None]) | (
            self.segment_BT[:, None] == self.before_BT[:, :, None]
        )
        return ((trunk_BTT | own_BTT) & causal_TT)[:, None]


@dataclass(frozen=True)
class BranchedRow:
    """A sequence with its branches."""

    # token, position, segment, segment continued or its own, how much of the sequence is seen
    inputs: tuple[list[int], list[int], list[int], list[int], list[int]]
    loss: list[tuple[int, int, float]]  # predicting place, target, weight


def branched(tokens: Sequence[int], mask: Sequence[int], branches: Sequence[Branch]) -> BranchedRow:
    """Lay a sequence and its branches out in one row."""
    size = len(tokens)
    inputs = list(tokens), list(range(size)), [0] * size, [0] * size, [size] * size
    token, position, segment, before, limit = inputs
    loss = [(place - 1, tokens[place], 1.0) for place in range(size) if mask[place]]
    continued = {branch.after for branch in branches}
    last: list[int] = []  # place of each branch's last input
    for number, branch in enumerate(branches):
        read = len(branch.token_ids) - (number not in continued)
        source, offset = (
            (branch.cut - 1, branch.cut)
            if branch.after is None
            else (last[branch.after], position[last[branch.after]] + 1)
        )
        start = len(token)
        token += branch.token_ids[:read]
        position += range(offset, offset + read)
        segment += [number + 1] * read
        before += [number + 1 if branch.after is None else branch.after + 1] * read
        limit += [branch.cut] * read
        last.append(start + read - 1)
        sources = [source, *range(start, start + len(branch.token_ids) - 1)]
        loss += [(s, t, w) for s, t, w in zip(sources, branch.token_ids, branch.loss_weight, strict=True) if w]
    return BranchedRow(inputs, loss)
