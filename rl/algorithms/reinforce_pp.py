"""REINFORCE++: returns from each token on, whitened over the whole batch; no critic.

    R_t = sum_{u >= t} discount^{u-t} r_u          r: reward of the turn on its last token, less the KL penalty of each token
    A_t = (R_t - b - mean_batch) / (std_batch + eps)     baseline: none (b = 0) | group (b = the group's mean episode reward)

Mean and population deviation over all action tokens of the rollout step. With baseline: group it is REINFORCE++-baseline.
Source: arXiv:2501.03262, equations 4 to 6.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from rl.algorithms.advantages import Array, discounted, whitened
from rl.algorithms.base import Record
from rl.algorithms.policy_gradient import PolicyGradient, PolicyGradientRecipe


class ReinforcePPRecipe(PolicyGradientRecipe):
    """Every number of `recipes/reinforce_pp.yaml`."""

    name: Literal["reinforce_pp"]
    discount: float = Field(ge=0, le=1)  # per action token
    baseline: Literal["none", "group"]
    eps: float = Field(gt=0)

    @model_validator(mode="after")
    def _a_group_of_one_has_no_mean(self) -> "ReinforcePPRecipe":
        if self.baseline == "group" and self.group_size < 2:
            raise ValueError("baseline is group but group_size is 1, its own mean; set group_size to 2 or more, or baseline: none")
        return self


class ReinforcePP(PolicyGradient):
    """See the module docstring."""

    recipe_class = ReinforcePPRecipe
    recipe: ReinforcePPRecipe

    def advantages(self, records: Sequence[Record], rewards: Sequence[Array]) -> tuple[list[Array], None, dict[str, float]]:
        """Whitened returns."""
        groups: dict[str, list[float]] = defaultdict(list)
        for record, reward_A in zip(records, rewards, strict=True):
            groups[record.group_id].append(float(reward_A.sum()))
        base = {name: float(np.mean(totals)) if self.recipe.baseline == "group" else 0.0 for name, totals in groups.items()}
        returns = [discounted(reward_A, self.recipe.discount) - base[record.group_id] for record, reward_A in zip(records, rewards, strict=True)]
        silent = sum(max(totals) - min(totals) < self.recipe.eps for totals in groups.values())
        return whitened(returns, self.recipe.eps), None, {"groups": float(len(groups)), "groups_without_signal": float(silent)}
