"""What the policy-gradient algorithms share: rewards on action tokens, KL, the corrected and aggregated loss.

An algorithm's own file says what its advantage is, which ratio its loss has, and which numbers its recipe may hold.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field

from rl.algorithms.advantages import Array
from rl.algorithms.base import REFERENCE, Algorithm, OptimizerParams, TokenBatch, TokenRecord, TrainingSignal
from rl.algorithms.correction import CorrectionParams, sampler_weights
from rl.algorithms.kl import KLCoefficient, KLParams, kl_estimate
from rl.algorithms.losses import Aggregation, clipped_ratio_loss, token_shares


class PolicyGradientRecipe(BaseModel):
    """What every recipe of the family holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    group_size: int = Field(ge=1)
    # the reward of the episode on its last token | of each turn on the turn's last token
    credit: Literal["episode", "turn"]
    clip_low: float = Field(gt=0, le=1)
    clip_high: float = Field(gt=0)
    aggregation: Aggregation
    constant_length: int = Field(ge=1)  # tokens; used with aggregation: constant
    kl: KLParams
    entropy_coefficient: float = Field(ge=0, allow_inf_nan=False)
    sampler_correction: CorrectionParams
    optimizer: OptimizerParams


class PolicyGradient(Algorithm):
    """The family. An algorithm says what `advantages` are; some have another `policy_loss`."""

    recipe: PolicyGradientRecipe

    def __init__(self, recipe: PolicyGradientRecipe) -> None:
        """Take over the recipe's numbers.

        Args:
            recipe: as `recipe_class` parsed it.
        """
        super().__init__(recipe)
        self.frozen_roles = (REFERENCE,) if recipe.kl.place != "none" else ()
        self.entropy_gradient = recipe.entropy_coefficient > 0
        self.needs_old_logprobs = recipe.sampler_correction.level != "none"
        self.kl_coefficient = KLCoefficient(recipe.kl)

    @abstractmethod
    def advantages(
        self, records: Sequence[TokenRecord], rewards: Sequence[Array]
    ) -> tuple[list[Array], list[Array] | None, dict[str, float]]:
        """Advantage of every action token, the critic's target or None, and metrics.

        Args:
            records: with at least one action token each.
            rewards: (A,) each, as `token_rewards` gives them.
        """

    def signal(self, records: Sequence[TokenRecord]) -> TrainingSignal:
        """Advantages of all records with action tokens; the others teach nothing."""
        kept = [i for i, record in enumerate(records) if record.size]
        some, targets, metrics = self.advantages(
            [records[i] for i in kept], [self.token_rewards(records[i]) for i in kept]
        )
        advantage, target = ([np.zeros(record.size) for record in records] for _ in range(2))
        for place, i in enumerate(kept):
            advantage[i] = some[place]
            if targets is not None:
                target[i] = targets[place]
        weight = [
            sampler_weights(r.old_logprob_A, r.sampler_logprob_A, self.recipe.sampler_correction) for r in records
        ]
        if self.needs_old_logprobs and kept:
            metrics["sampler_weight"] = float(np.concatenate(weight).mean())
        return TrainingSignal(
            [(i,) for i in kept if self.teaches(records[i])],
            advantage,
            weight,
            target if targets is not None else None,
            metrics,
        )

    def teaches(self, record: TokenRecord) -> bool:  # noqa: ARG002  for those that filter
        """Whether a trajectory enters the loss."""
        return True

    def token_rewards(self, record: TokenRecord) -> Array:
        """Reward of every action token: each turn's on the last token of that turn (or all on the very last), less the
        KL penalty where it is in the reward.
        """
        reward_A = np.zeros(record.size)
        last = {int(turn): place for place, turn in enumerate(record.turn_A)}
        for turn, reward in enumerate(self.turn_rewards(record)):
            place = last.get(turn) if self.recipe.credit == "turn" else record.size - 1
            reward_A[record.size - 1 if place is None else place] += reward
        if self.recipe.kl.place == "reward":
            log_ratio = torch.from_numpy(record.old_logprob_A - record.frozen_logprob_A[REFERENCE])
            reward_A -= self.kl_coefficient.value * kl_estimate(log_ratio, self.recipe.kl.estimator).numpy()
        return reward_A

    def turn_rewards(self, record: TokenRecord) -> list[float]:
        """Reward of each turn, before it is placed."""
        return record.scores.turn_rewards

    def log_ratio(self, batch: TokenBatch) -> torch.Tensor:
        """Of the policy now to the policy before the updates, (N,)."""
        return batch.logprob_N - batch.old_logprob_N

    def policy_loss(self, batch: TokenBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss of each token and where a clip is in force, (N,) both."""
        return clipped_ratio_loss(self.log_ratio(batch), batch.advantage_N, self.recipe.clip_low, self.recipe.clip_high)

    def loss(self, batch: TokenBatch) -> tuple[torch.Tensor, dict[str, float]]:
        """Policy loss, KL if it is in the loss, entropy bonus: each weighed as `aggregation` says."""
        return self.loss_with(batch, self.recipe.entropy_coefficient)

    def loss_with(self, batch: TokenBatch, entropy_coefficient: float) -> tuple[torch.Tensor, dict[str, float]]:
        """The same with another weight of the entropy bonus."""
        recipe = self.recipe
        share_N = token_shares(batch.sequence_N, recipe.aggregation, batch.total, recipe.constant_length)
        loss_N, clipped_N = self.policy_loss(batch)
        loss = (share_N * batch.weight_N * loss_N).sum()
        log_ratio_N = (batch.logprob_N - batch.old_logprob_N).detach()
        means = {
            "policy_loss": loss.item(),
            "clip_fraction": clipped_N.sum().item() / batch.total.tokens,
            "entropy": batch.entropy_N.detach().sum().item() / batch.total.tokens,
            "kl_to_sampler": (log_ratio_N.exp() - 1 - log_ratio_N).sum().item() / batch.total.tokens,
        }
        if (reference_N := batch.frozen_logprob_N.get(REFERENCE)) is not None:
            kl_N = kl_estimate(batch.logprob_N - reference_N, recipe.kl.estimator)
            means["kl_to_reference"] = kl_N.detach().sum().item() / batch.total.tokens
            if recipe.kl.place == "loss":
                loss = loss + self.kl_coefficient.value * (share_N * kl_N).sum()
        if self.entropy_gradient:
            loss = loss - entropy_coefficient * (share_N * batch.entropy_N).sum()
        return loss, means

    def finish(self, metrics: Mapping[str, float], trajectories: int) -> dict[str, float]:
        """Adapt the KL coefficient."""
        if self.recipe.kl.place == "none":
            return {}
        used = self.kl_coefficient.value
        if math.isfinite(kl := metrics.get("kl_to_reference", math.nan)):
            self.kl_coefficient.adapt(kl, trajectories)
        return {"kl_coefficient": used}

    def state(self) -> dict[str, float]:
        """The KL coefficient."""
        return {"kl_coefficient": self.kl_coefficient.value}

    def load_state(self, state: Mapping[str, float]) -> None:
        """Go on from `state()`."""
        self.kl_coefficient.value = state["kl_coefficient"]
