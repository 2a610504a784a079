"""Whether openings and turns fit into an episode's tokens, looked at before anything is trained or played.

Tokens follow bytes closely: of many openings only those that are longest in bytes are read token by token, and how many
do not fit is found by halving in that order. A hundred thousand take no longer than a hundred.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from rl.chat import ChatFormat
from rl.config import RolloutParams
from rl.environment import Message
from rl.models import load_tokenizer
from rl.rollout import needed_tokens
from rl.sft import Example

T = TypeVar("T")
READ = 64  # openings, the longest in bytes: among them is the longest in tokens, or one that is hardly shorter


@dataclass(frozen=True)
class Fit:
    """How openings fit."""

    openings: int
    too_long: int  # about how many of them leave no room for a turn
    longest: int  # tokens
    needed: int  # max_episode_tokens that would do for the longest

    def text(self, rollout: RolloutParams) -> str:
        """What is wrong and what would do, for a line that has said whose openings these are."""
        return (
            f"{self.too_long} of {self.openings} take up to {self.longest} tokens and leave no room for a turn of rollout.response_length {rollout.response_length}: "
            f"rollout.max_episode_tokens is {rollout.max_episode_tokens}; set it to {self.needed} or more"
        )


def fit_openings(
    chat: ChatFormat,
    items: Sequence[T],
    size: Callable[[T], int],
    opening: Callable[[T], Sequence[Message]],
    rollout: RolloutParams,
) -> Fit:
    """How the openings of many items fit.

    Args:
        chat: the policy's chat format.
        items: cases, or whatever has an opening.
        size: about how many bytes an item's opening has, but for what all have in common.
        opening: its messages.
        rollout: the budget.
    """

    def tokens(item: T) -> int:
        return len(chat.opening_ids(opening(item)))

    def fits(item: T) -> bool:
        return needed_tokens(tokens(item), rollout) <= rollout.max_episode_tokens

    order = sorted(items, key=size, reverse=True)
    longest = max(map(tokens, order[:READ]), default=0)
    needed = needed_tokens(longest, rollout)
    too_long = max(bisect_left(order, True, key=fits), 1) if needed > rollout.max_episode_tokens else 0
    return Fit(len(order), too_long, longest, needed)


def longest_turn(examples: Sequence[Example]) -> int:
    """Tokens of the longest turn that supervised dialogues teach; 0 of none."""
    return max((int(_runs(example).max(initial=0)) for example in examples), default=0)


def _runs(example: Example) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Lengths of the runs of ones in a loss mask."""
    edges = np.flatnonzero(np.diff(np.array([0, *example.loss_mask, 0])))
    return edges[1::2] - edges[::2]


def open_chat(name: str) -> ChatFormat:
    """The chat format of a model folder or Hugging Face id, without its weights; see `load_tokenizer`."""
    return ChatFormat(load_tokenizer(name))
