"""Privileged self-distillation: GRPO, and a teacher who is what the policy was, with the patient's chart in the prompt.

    loss = GRPO + coefficient D / tokens, summed over the student's tokens in the turns that are taught, the teacher stopped
    D    = KL(teacher || student)   divergence: forward
           KL(student || teacher)   divergence: reverse
    after a training phase   teacher <- (1 - tau) teacher + tau student

The student acts; the teacher only reads what it said, and says what it would have said there. Both are over the whole
vocabulary, weighed as GRPO's `aggregation` says.
Source: on-policy self-distillation (OPSD), arXiv:2602.04942, in reverse and with tau 1; GRPO as in `grpo.py`.
"""

from dataclasses import replace
from typing import Literal

import torch

from rl.algorithms.adaptation import DistillationParams
from rl.algorithms.base import Part, Pass, TokenBatch
from rl.algorithms.grpo import GRPO, GRPORecipe
from rl.algorithms.losses import token_shares
from rl.parts import POLICY, TEACHER


class PrivilegedDistillationRecipe(GRPORecipe):
    """Every number of `recipes/privileged_distillation.yaml`."""

    name: Literal["privileged_distillation"]  # type: ignore[assignment]  # another algorithm's
    distillation: DistillationParams


class PrivilegedDistillation(GRPO):
    """See the module docstring."""

    recipe_class = PrivilegedDistillationRecipe  # type: ignore[assignment]  # with more numbers
    recipe: PrivilegedDistillationRecipe

    def __init__(self, recipe: PrivilegedDistillationRecipe) -> None:
        """Take over the recipe's numbers.

        Args:
            recipe: as `recipe_class` parsed it.
        """
        super().__init__(recipe)
        self.distillation = recipe.distillation

    @property
    def parts(self) -> tuple[Part, ...]:
        """The policy, and a teacher that follows it, which is never updated by a gradient. One that stays what the policy
        began as is nothing to keep.
        """
        return (*super().parts, *([Part(TEACHER, None, 0)] if self.recipe.distillation.tau else []))

    def passes(self, policy_version: int) -> list[Pass]:
        """GRPO's, of the policy alone."""
        return [replace(one, parts=(POLICY,)) for one in super().passes(policy_version)]

    def loss(self, batch: TokenBatch) -> tuple[torch.Tensor, dict[str, float]]:
        """GRPO's, and the divergence from the teacher."""
        loss, means = super().loss(batch)
        assert batch.adaptation is not None and batch.adaptation.kl_N is not None  # noqa: S101, PT018  such a policy gives it
        share_N = token_shares(batch.sequence_N, self.recipe.aggregation, batch.total, self.recipe.constant_length)
        kl = (share_N * batch.adaptation.kl_N).sum()
        return loss + self.recipe.distillation.coefficient * kl, means | {"distillation/kl": kl.item()}
