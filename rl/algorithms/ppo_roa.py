"""PPO-ROA: a teacher that has read the chart, and a student that learns to do without.

    train      teacher acts on feature z = encoder_priv(chart):
                 PPO on actor, encoder_priv and critic, and   coefficient |z - stop(z_hat)|^2   on the encoder
                 |stop(z) - z_hat|^2 on adapt_module, z_hat its prediction from the dialogue
                 KL(stop(teacher) || student) at every action token, the student reading stop(z_hat)
    finetune   student acts on adapt_ema's prediction:
                 PPO on actor_adapt and critic;   |z - z_hat|^2 on adapt_module, the encoder frozen
    after both adapt_ema <- (1 - tau) adapt_ema + tau adapt_module

`train_steps` rollout steps of the first, then the second to the end. Squares are means over a vector's numbers, in
squared lengths of a token's embedding, over an episode's turns, and over episodes; the KL is a mean over action tokens.
Source: regularised online adaptation, arXiv:2210.10044; PPO as in `ppo.py`.
"""

from functools import partial
from typing import Literal

import torch
from pydantic import Field, model_validator

from rl.algorithms.adaptation import AdaptationParams, FeatureParams, FoldParams, RegularisationParams
from rl.algorithms.base import Part, Pass, TokenBatch
from rl.algorithms.ppo import PPO, PPORecipe
from rl.parts import ACTOR, ADAPT, CRITIC, EMA, ENCODER, POLICY


class PPOROARecipe(PPORecipe):
    """Every number of `recipes/ppo_roa.yaml`."""

    name: Literal["ppo_roa"]  # type: ignore[assignment]  # another algorithm's
    train_steps: int = Field(ge=0)  # rollout steps in which the teacher acts; then the student does
    feature: FeatureParams
    adaptation: AdaptationParams
    regularisation: RegularisationParams
    student_entropy_coefficient: float = Field(ge=0, allow_inf_nan=False)  # in finetune
    fold: FoldParams | None

    @model_validator(mode="after")
    def _as_it_is_made(self) -> "PPOROARecipe":
        if self.critic.trunk != "own":
            raise ValueError("critic.trunk shared: teacher and student would share a critic; set critic.trunk: own")
        if self.kl.place != "none":
            raise ValueError(f"kl.place {self.kl.place}: the warm start reads no feature; set kl.place: none")
        if self.optimizer.gradient_checkpointing:
            raise ValueError("optimizer.gradient_checkpointing true: several models share a pass; set it to false")
        if self.optimizer.compile:
            raise ValueError("optimizer.compile true: copies of compiled layers do not learn; set it to false")
        return self


class PPOROA(PPO):
    """See the module docstring. The policy, whose weights are checked, chosen and exported, is the student."""

    recipe_class = PPOROARecipe  # type: ignore[assignment]  # with more numbers
    recipe: PPOROARecipe

    def __init__(self, recipe: PPOROARecipe) -> None:
        """Take over the recipe's numbers.

        Args:
            recipe: as `recipe_class` parsed it.
        """
        super().__init__(recipe)
        self.feature, self.adaptation, self.fold = recipe.feature, recipe.adaptation, recipe.fold
        self.entropy_gradient = max(recipe.entropy_coefficient, recipe.student_entropy_coefficient) > 0

    @property
    def parts(self) -> tuple[Part, ...]:
        """Six of them; the teacher waits for the critic."""
        recipe, waits = self.recipe, self.recipe.critic.warmup_rollout_steps
        return (
            Part(POLICY, recipe.optimizer.learning_rate, 0),
            Part(ACTOR, recipe.optimizer.learning_rate, waits),
            Part(ENCODER, recipe.feature.learning_rate, waits),
            Part(ADAPT, recipe.adaptation.learning_rate, 0),
            Part(EMA, None, 0),
            Part(CRITIC, recipe.critic.learning_rate, 0),
        )

    def passes(self, policy_version: int) -> list[Pass]:
        """The teacher's PPO and the adaptation, or the student's PPO and what goes on of the adaptation."""
        recipe, adaptation = self.recipe, self.recipe.adaptation
        teaching = policy_version < recipe.train_steps
        ramp = recipe.regularisation.ramp_steps
        weight = recipe.regularisation.coefficient * (min(1.0, policy_version / ramp) if ramp else 1.0)
        acting = (ACTOR, ENCODER, CRITIC) if teaching else (POLICY, CRITIC)
        entropy = recipe.entropy_coefficient if teaching else recipe.student_entropy_coefficient
        adapting = (ADAPT, POLICY) if teaching else (ADAPT,)
        return [
            Pass(acting, recipe.optimizer.num_epochs, self.gradient_units, partial(self.acting_loss, weight, entropy)),
            Pass(adapting, adaptation.num_epochs, adaptation.mini_batch_size, self.adaptation_loss),
        ]

    def acting_loss(self, weight: float, entropy: float, batch: TokenBatch) -> tuple[torch.Tensor, dict[str, float]]:
        """PPO's, and what draws the teacher's feature towards its prediction."""
        loss, means = self.loss_with(batch, entropy)
        if batch.adaptation is not None and batch.adaptation.error_S is not None:
            error = batch.adaptation.error_S.sum() / batch.total.sequences
            means["adaptation/regularisation"] = weight * error.item()
            if weight:
                loss = loss + weight * error
        return loss, means

    def adaptation_loss(self, batch: TokenBatch) -> tuple[torch.Tensor, dict[str, float]]:
        """The prediction's error, and the teacher's KL to the student while there is a teacher."""
        assert batch.adaptation is not None  # noqa: S101  this pass looks at nothing else
        loss, means = torch.zeros((), device=batch.logprob_N.device, requires_grad=True), {}
        if (error_S := batch.adaptation.error_S) is not None:
            error = error_S.sum() / batch.total.sequences
            loss, means["adaptation/mse"] = loss + error, error.item()
        if (kl_N := batch.adaptation.kl_N) is not None:
            kl = kl_N.sum() / batch.total.tokens
            loss, means["adaptation/kl"] = loss + kl, kl.item()
        return loss, means
