"""GSPO: one importance ratio for the whole sequence.

    s = (p_now(sequence) / p_old(sequence)) ^ (1 / tokens)
    loss = -mean over sequences of min(s A, clip(s, 1 - clip_low, 1 + clip_high) A)

A sequence is an episode's action tokens. The clip range is orders of magnitude smaller than a token's, since s is a
geometric mean.
With turn credit the tokens of a sequence have different advantages: the paper's GSPO-token. Source: arXiv:2507.18071.
"""

from typing import Literal

import torch

from rl.algorithms.base import TokenBatch
from rl.algorithms.group_relative import GroupRelative, GroupRelativeRecipe
from rl.algorithms.losses import sequence_log_ratio


class GSPORecipe(GroupRelativeRecipe):
    """Every number of `recipes/gspo.yaml`."""

    name: Literal["gspo"]
    aggregation: Literal["sequence"]


class GSPO(GroupRelative):
    """See the module docstring."""

    recipe_class = GSPORecipe

    def log_ratio(self, batch: TokenBatch) -> torch.Tensor:
        """The sequence's, at each of its tokens."""
        return sequence_log_ratio(super().log_ratio(batch), batch.logprob_N, batch.sequence_N)
