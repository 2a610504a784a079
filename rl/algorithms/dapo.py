"""DAPO: GRPO with four changes.

    clip-higher        clip(r, 1 - .2, 1 + .28): room for unlikely tokens to grow
    dynamic sampling   groups whose members all scored the same are dropped and others drawn in their place, up to `max_num_gen_batches` rollouts
    token-level loss   one denominator: the sampled tokens of the mini-batch
    overlong shaping   sampled tokens beyond max_tokens - buffer_tokens cost penalty x (excess / buffer_tokens), at most `penalty`;
                       filter: an episode that a token limit cut does not enter the loss

No KL. Source: arXiv:2503.14476, equations 8 to 13 (their lengths are of one answer, ours the sampled tokens of the
episode). Turn credit, own-turn components and the choice of the deviation as in `grpo.py`.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rl.algorithms.advantages import Array
from rl.algorithms.base import TokenRecord
from rl.algorithms.group_relative import GroupRelative, GroupRelativeRecipe
from rl.algorithms.sampling import DynamicSamplingParams


class OverlongParams(BaseModel):
    """Section `overlong` of the recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    max_tokens: int = Field(ge=1)  # sampled tokens of an episode
    buffer_tokens: int = Field(ge=1)  # the last of them, over which the penalty grows
    penalty: float = Field(ge=0, allow_inf_nan=False)  # reward units, at max_tokens
    filter: bool  # leave episodes that a token limit cut out of the loss

    @model_validator(mode="after")
    def _buffer_inside(self) -> "OverlongParams":
        if self.buffer_tokens > self.max_tokens:
            raise ValueError(f"buffer_tokens {self.buffer_tokens} is more than max_tokens {self.max_tokens}; lower it")
        return self


def overlong_penalty(tokens: int, params: OverlongParams) -> float:
    """0 up to max_tokens - buffer_tokens, then linear, `penalty` from max_tokens on; reward units."""
    excess = tokens - (params.max_tokens - params.buffer_tokens)
    return params.penalty * min(max(excess / params.buffer_tokens, 0.0), 1.0)


class DAPORecipe(GroupRelativeRecipe):
    """Every number of `recipes/dapo.yaml`."""

    name: Literal["dapo"]
    aggregation: Literal["token"]
    dynamic_sampling: DynamicSamplingParams
    overlong: OverlongParams


class DAPO(GroupRelative):
    """See the module docstring."""

    recipe_class = DAPORecipe
    recipe: DAPORecipe

    def __init__(self, recipe: DAPORecipe) -> None:
        """Take over the recipe's numbers.

        Args:
            recipe: as `recipe_class` parsed it.
        """
        super().__init__(recipe)
        self.dynamic_sampling = recipe.dynamic_sampling

    def token_rewards(self, record: TokenRecord) -> Array:
        """As in the family, less the penalty on the last token."""
        reward_A = super().token_rewards(record)
        reward_A[-1] -= overlong_penalty(record.size, self.recipe.overlong)
        return reward_A

    def teaches(self, record: TokenRecord) -> bool:
        """Not if a limit cut it and `filter` is on."""
        return not (self.recipe.overlong.filter and record.truncated)

    def advantages(
        self, records: Sequence[TokenRecord], rewards: Sequence[Array]
    ) -> tuple[list[Array], None, dict[str, float]]:
        """As in GRPO, and how much was overlong."""
        advantage, target, metrics = super().advantages(records, rewards)
        share = 1 / max(len(records), 1)
        overlong = {
            "overlong_penalty": share * sum(overlong_penalty(record.size, self.recipe.overlong) for record in records),
            "overlong_filtered": share * sum(not self.teaches(record) for record in records),
        }
        return advantage, target, metrics | overlong
