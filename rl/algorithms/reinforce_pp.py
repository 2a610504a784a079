"""REINFORCE++: returns from each token on, whitened over the whole batch; no critic.

    R_t = sum_{u >= t} discount^{u-t} r_u          r: reward of the turn on its last token, less the KL penalty of each token
    A_t = (R_t - b - mean) / (std + eps)     baseline: none (b = 0) | group (b = the group's mean return from the episode's first token on)

Mean and population deviation over all action tokens of the rollout step. The paper's is credit: episode, discount: 1
and baseline: none: one reward at the end, so that R_t is the episode's reward less the KL still to come. With baseline:
group it is REINFORCE++-baseline. With credit: turn the returns of late turns are smaller by what was earned before them,
which says nothing about their actions: mean and b are then those of the same turn (ours).
Source: arXiv:2501.03262, equations 4 to 6.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from rl.algorithms.advantages import ROUNDING, Array, discounted, whitened
from rl.algorithms.base import TokenRecord
from rl.algorithms.policy_gradient import PolicyGradient, PolicyGradientRecipe


class ReinforcePPRecipe(PolicyGradientRecipe):
    """Every number of `recipes/reinforce_pp.yaml`."""

    name: Literal["reinforce_pp"]
    discount: float = Field(ge=0, le=1)  # per action token
    baseline: Literal["none", "group"]
    eps: float = Field(gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _a_group_of_one_has_no_mean(self) -> "ReinforcePPRecipe":
        if self.baseline == "group" and self.group_size < 2:
            raise ValueError(
                "baseline is group but group_size is 1, its own mean; set group_size to 2 or more, or baseline: none"
            )
        return self


class ReinforcePP(PolicyGradient):
    """See the module docstring."""

    recipe_class = ReinforcePPRecipe
    recipe: ReinforcePPRecipe

    def advantages(
        self, records: Sequence[TokenRecord], rewards: Sequence[Array]
    ) -> tuple[list[Array], None, dict[str, float]]:
        """Whitened returns."""
        returns = [discounted(reward_A, self.recipe.discount) for reward_A in rewards]
        parts = [record.turn_A if self.recipe.credit == "turn" else np.zeros_like(record.turn_A) for record in records]
        firsts: dict[tuple[str, int], list[float]] = defaultdict(list)
        for record, return_A, part_A in zip(records, returns, parts, strict=True):
            for part, place in zip(*np.unique(part_A, return_index=True), strict=True):
                firsts[record.group_id, int(part)].append(float(return_A[place]))
        groups: dict[str, bool] = defaultdict(bool)  # whether its members differ
        for (group, _), values in firsts.items():
            groups[group] |= max(values) - min(values) >= ROUNDING
        if self.recipe.baseline == "group":
            base = {key: float(np.mean(values)) for key, values in firsts.items()}
            returns = [
                return_A - [base[record.group_id, int(part)] for part in part_A]
                for record, return_A, part_A in zip(records, returns, parts, strict=True)
            ]
        silent = len(groups) - sum(groups.values())
        return (
            whitened(returns, self.recipe.eps, parts),
            None,
            {"groups": float(len(groups)), "groups_without_signal": float(silent)},
        )
