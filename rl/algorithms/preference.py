"""What `dpo` and `online_dpo` have in common: they learn from preference pairs, without advantages or ratios.

    m = [log p/ref of the chosen] - [log p/ref of the rejected],  sums over the episode's action tokens (means for ipo)
    loss = mean over pairs of preference_loss(m) - chosen_weight x mean of log p over the chosen's tokens     sigmoid | ipo, label smoothing: see losses.py

Pairs of a group: the best and the worst, the second best and the second worst, ..., `pairs_per_group` of them, each at
least `margin` of reward apart. The tie to the reference is in the loss; there is no KL term. Sources: arXiv:2305.18290;
IPO, arXiv:2310.12036; the likelihood of the chosen, which a difference alone may lower, arXiv:2404.19733.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

from rl.algorithms.base import REFERENCE, Algorithm, OptimizerParams, TokenBatch, TokenRecord, TrainingSignal
from rl.algorithms.losses import preference_loss


def mine_pairs(reward: Mapping[int, float], count: int, margin: float) -> list[tuple[int, int]]:
    """Pairs (chosen, rejected) of a group: best against worst, second best against second worst, and so on.

    Args:
        reward: of each member, reward units.
        count: pairs at most; never more than half the members.
        margin: a pair that is not further apart is none.
    """
    ranked = sorted(reward, key=lambda i: -reward[i])
    found = [(ranked[k], ranked[-1 - k]) for k in range(min(count, len(ranked) // 2))]
    return [(chosen, rejected) for chosen, rejected in found if reward[chosen] - reward[rejected] > margin]


class PreferenceRecipe(BaseModel):
    """Numbers of both."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    group_size: int = Field(ge=2)
    # 1: best against worst; 2: the second best against the second worst as well; at most half the group
    pairs_per_group: int = Field(ge=1)
    margin: float = Field(ge=0)  # reward units; a pair that is nearer is none
    variant: Literal["sigmoid", "ipo"]
    beta: float = Field(gt=0, allow_inf_nan=False)
    label_smoothing: float = Field(ge=0, lt=0.5)  # sigmoid only
    chosen_weight: float = Field(ge=0, allow_inf_nan=False)  # of the chosen's log-likelihood beside the preference
    optimizer: OptimizerParams

    @model_validator(mode="after")
    def _fits_together(self) -> "PreferenceRecipe":
        if 2 * self.pairs_per_group > self.group_size:
            raise ValueError(
                f"pairs_per_group {self.pairs_per_group} needs twice as many samples, but group_size is {self.group_size}; lower it"
            )
        if self.variant == "ipo" and self.label_smoothing:
            raise ValueError(f"label_smoothing {self.label_smoothing} has no meaning with variant ipo; set it to 0")
        return self


class PreferenceLearning(Algorithm):
    """See the module docstring."""

    recipe: PreferenceRecipe
    frozen_roles = (REFERENCE,)
    trajectories_per_unit = 2

    def planned_units(self, prompts: int) -> int:
        """All pairs of all groups, or those of a file."""
        return self.pairs_given or prompts * self.recipe.pairs_per_group

    def signal(self, records: Sequence[TokenRecord]) -> TrainingSignal:
        """Best against worst of every group, and so on inwards."""
        members: dict[str, list[int]] = defaultdict(list)
        for i, record in enumerate(records):
            if record.size:
                members[record.group_id].append(i)
        found = [
            mine_pairs({i: records[i].scores.reward for i in group}, self.recipe.pairs_per_group, self.recipe.margin)
            for group in members.values()
        ]
        pairs = [pair for of_group in found for pair in of_group]
        silent = sum(not of_group for of_group in found)
        sign = [np.zeros(record.size) for record in records]
        for best, worst in pairs:
            sign[best], sign[worst] = np.ones(records[best].size), -np.ones(records[worst].size)
        metrics = {"groups": float(len(members)), "groups_without_signal": float(silent), "pairs": float(len(pairs))}
        return TrainingSignal(list(pairs), sign, [np.ones(record.size) for record in records], None, metrics)

    def loss(self, batch: TokenBatch) -> tuple[torch.Tensor, dict[str, float]]:
        """Mean over the mini-batch's pairs; `advantage_N` is +1 on the chosen's tokens and -1 on the rejected's."""
        signed_N = batch.advantage_N * (batch.logprob_N - batch.frozen_logprob_N[REFERENCE])
        length_N = torch.bincount(batch.sequence_N)[batch.sequence_N]
        if self.recipe.variant == "ipo":
            signed_N = signed_N / length_N
        pairs = int(batch.unit_S.max()) + 1
        margin_P = torch.zeros(pairs, device=signed_N.device).index_add(0, batch.unit_S[batch.sequence_N], signed_N)
        loss = (
            preference_loss(margin_P, self.recipe.variant, self.recipe.beta, self.recipe.label_smoothing).sum()
            / batch.total.units
        )
        chosen = (batch.logprob_N / length_N)[batch.advantage_N > 0].sum() / batch.total.units
        return loss - self.recipe.chosen_weight * chosen, {
            "policy_loss": loss.item(),
            "chosen_logprob": chosen.item(),
            "preference_margin": margin_P.sum().item() / batch.total.units,
            "preferred": (margin_P > 0).sum().item() / batch.total.units,
            "entropy": batch.entropy_N.sum().item() / batch.total.tokens,
        }
