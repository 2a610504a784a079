"""CISPO: REINFORCE whose importance weight is clipped, so that no token loses its gradient.

    loss = -sum_tokens stop_gradient(clip(r, 1 - clip_low, 1 + clip_high)) A log p / tokens

The paper leaves the lower side open (clip_low: 1) and bounds the upper. Source: arXiv:2506.13585. Advantages as in
`grpo.py`.
"""

from typing import Literal

import torch

from rl.algorithms.base import TokenBatch
from rl.algorithms.group_relative import GroupRelative, GroupRelativeRecipe
from rl.algorithms.losses import clipped_weight_loss


class CISPORecipe(GroupRelativeRecipe):
    """Every number of `recipes/cispo.yaml`."""

    name: Literal["cispo"]
    aggregation: Literal["token"]


class CISPO(GroupRelative):
    """See the module docstring."""

    recipe_class = CISPORecipe

    def policy_loss(self, batch: TokenBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """The clipped weight's."""
        return clipped_weight_loss(
            batch.logprob_N, self.log_ratio(batch), batch.advantage_N, self.recipe.clip_low, self.recipe.clip_high
        )
