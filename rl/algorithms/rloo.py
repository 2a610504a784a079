"""RLOO: REINFORCE with the other samples of the case as baseline.

    A_i = R_i - mean of the other members' R  =  G / (G - 1) (R_i - mean_group R)

No division by a deviation; the KL penalty, if any, is in the reward. Source: arXiv:2402.14740. The ratio is clipped as
in PPO for the case of several updates on the same data; with one update it is 1 and nothing is clipped. Turn credit as
in `grpo.py`.
"""

from typing import Literal

from pydantic import model_validator

from rl.algorithms.advantages import leave_one_out
from rl.algorithms.group_relative import GroupRelative, GroupRelativeRecipe


class RLOORecipe(GroupRelativeRecipe):
    """Every number of `recipes/rloo.yaml`."""

    name: Literal["rloo"]
    divide_by_std: Literal["none"]

    @model_validator(mode="after")
    def _kl_in_the_reward(self) -> "RLOORecipe":
        if self.kl.place == "loss":
            raise ValueError("kl.place is loss, but RLOO has its KL in the reward; set kl.place: reward or none")
        return self


class RLOO(GroupRelative):
    """See the module docstring."""

    recipe_class = RLOORecipe
    against_the_group = staticmethod(leave_one_out)
