"""Dr. GRPO: GRPO without its two biases.

    A = R - mean_group R                       no division by a deviation: an easy or hard case weighs no more than another
    loss = -sum_tokens min(r A, clip(r) A) / (constant_length x sequences)     a token of a long answer weighs no less

Source: arXiv:2503.20783; the constant is the generation limit there. Turn credit and own-turn components as in
`grpo.py`.
"""

from typing import Literal

from rl.algorithms.group_relative import GroupRelative, GroupRelativeRecipe


class DrGRPORecipe(GroupRelativeRecipe):
    """Every number of `recipes/dr_grpo.yaml`."""

    name: Literal["dr_grpo"]
    divide_by_std: Literal["none"]
    aggregation: Literal["constant"]


class DrGRPO(GroupRelative):
    """See the module docstring."""

    recipe_class = DrGRPORecipe
