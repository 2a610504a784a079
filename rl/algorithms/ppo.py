"""PPO with a critic: GAE over action tokens, clipped policy and value losses.

    delta_t = r_t + discount V_{t+1} - V_t;   A_t = delta_t + discount gae_lambda A_{t+1};   target_t = A_t + V_t
    policy loss = -min(r A, clip(r) A)       value loss = 1/2 max((V - target)^2, (V_old + clip(V - V_old) - target)^2)

t counts the tokens the policy sampled: the patient's carry no reward, value or advantage, and V_{t+1} of a turn's last
token is V before the first token of the next turn. An episode that a token limit cut bootstraps from the critic; one
that ended does not.
Sources: arXiv:1707.06347, arXiv:1506.02438.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import Field, model_validator

from rl.algorithms.advantages import Array, explained_variance, generalized_advantages, normalised_rewards, whitened
from rl.algorithms.base import CriticParams, TokenBatch, TokenRecord
from rl.algorithms.losses import clipped_ratio_loss, clipped_value_loss, token_shares
from rl.algorithms.policy_gradient import PolicyGradient, PolicyGradientRecipe


class PPORecipe(PolicyGradientRecipe):
    """Every number of `recipes/ppo.yaml`."""

    name: Literal["ppo"]
    discount: float = Field(ge=0, le=1)  # gamma, per action token
    gae_lambda: float = Field(ge=0, le=1)  # lambda
    reward_normalisation: Literal["grpo", "brpo", "arpo"]  # of episode rewards: over the group | over the batch | none
    whiten: bool  # advantages over the batch
    eps: float = Field(gt=0, allow_inf_nan=False)
    dual_clip: float = Field(gt=1)  # .inf = none
    critic: CriticParams

    @model_validator(mode="after")
    def _normalised_once(self) -> "PPORecipe":
        if self.reward_normalisation != "arpo" and self.credit == "turn":
            raise ValueError(
                f"reward_normalisation {self.reward_normalisation} is of one reward per episode; set credit: episode, or reward_normalisation: arpo"
            )
        return self


class PPO(PolicyGradient):
    """See the module docstring."""

    recipe_class = PPORecipe
    recipe: PPORecipe

    def __init__(self, recipe: PPORecipe) -> None:
        """Take over the recipe's numbers.

        Args:
            recipe: as `recipe_class` parsed it.
        """
        super().__init__(recipe)
        self.critic = recipe.critic

    def advantages(
        self, records: Sequence[TokenRecord], rewards: Sequence[Array]
    ) -> tuple[list[Array], list[Array], dict[str, float]]:
        """GAE, and the critic's targets."""
        recipe = self.recipe
        if recipe.reward_normalisation != "arpo":
            totals = [record.scores.reward for record in records]
            normal = normalised_rewards(totals, [r.group_id for r in records], recipe.reward_normalisation, recipe.eps)
            rewards = [
                reward_A + _on_the_last(len(reward_A), new - old)
                for reward_A, new, old in zip(rewards, normal, totals, strict=True)
            ]
        values = [_values(record) for record in records]
        advantage = [
            generalized_advantages(
                reward_A, value_A, record.next_value if record.truncated else 0.0, recipe.discount, recipe.gae_lambda
            )
            for record, reward_A, value_A in zip(records, rewards, values, strict=True)
        ]
        target = [a + v for a, v in zip(advantage, values, strict=True)]
        metrics = (
            {
                "explained_variance": explained_variance(np.concatenate(values), np.concatenate(target)),
                "value_mean": float(np.concatenate(values).mean()),
            }
            if records
            else {}
        )
        return whitened(advantage, recipe.eps) if recipe.whiten else advantage, target, metrics

    def policy_loss(self, batch: TokenBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """With the dual clip, if there is one."""
        return clipped_ratio_loss(
            self.log_ratio(batch), batch.advantage_N, self.recipe.clip_low, self.recipe.clip_high, self.recipe.dual_clip
        )

    def loss_with(self, batch: TokenBatch, entropy_coefficient: float) -> tuple[torch.Tensor, dict[str, float]]:
        """The policy's and the critic's, aggregated alike."""
        policy_loss, means = super().loss_with(batch, entropy_coefficient)
        assert batch.value_N is not None and batch.old_value_N is not None and batch.target_N is not None  # noqa: S101, PT018  it has a critic
        share_N = token_shares(batch.sequence_N, self.recipe.aggregation, batch.total, self.recipe.constant_length)
        loss_N, clipped_N = clipped_value_loss(
            batch.value_N, batch.old_value_N, batch.target_N, self.recipe.critic.value_clip
        )
        loss = (share_N * loss_N).sum()
        means |= {"value_loss": loss.item(), "value_clip_fraction": clipped_N.sum().item() / batch.total.tokens}
        return policy_loss + self.recipe.critic.loss_weight * loss, means


def _on_the_last(size: int, value: float) -> Array:
    only = np.zeros(size)
    only[-1] = value
    return only


def _values(record: TokenRecord) -> Array:
    assert record.value_A is not None  # noqa: S101  it has a critic
    return record.value_A
