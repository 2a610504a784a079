"""GRPO: the clipped ratio with an advantage relative to the group.

    A = (R - mean_group R) / (s + eps)        or by turn: `group_relative`
    loss = -sum_tokens min(r A, clip(r) A) / tokens

The denominator is the number of sampled tokens of the mini-batch (aggregation: token) or, as in the paper, that of each
sequence first (sequence).
Source: arXiv:2402.03300.
"""

from typing import Literal

from rl.algorithms.group_relative import GroupRelative, GroupRelativeRecipe


class GRPORecipe(GroupRelativeRecipe):
    """Every number of `recipes/grpo.yaml`."""

    name: Literal["grpo"]
    aggregation: Literal["token", "sequence"]


class GRPO(GroupRelative):
    """See the module docstring."""

    recipe_class = GRPORecipe
