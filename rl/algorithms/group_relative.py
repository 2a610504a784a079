"""What algorithms have in common that compare the members of a group: the group is the baseline, no critic.

    A = (R - mean_group R) / (s + eps)                     credit: episode (the paper's outcome supervision)
    A_k = (R_k - mean_group R_k) / (s + eps)               credit: turn (R_k: return from turn k on)
        + own_turn_weight (o_k - mean_group o_k) / (s_o + eps)     o_k: components that only the turn itself can have earned

The second mean is of the turns k of one kind (`own_turn_kinds`): a search, which tells nothing of the patient, is no bad
question. Every token of a turn carries its turn's advantage. Source: arXiv:2402.03300; returns and own-turn components normalised
apart as rewards are in GDPO, arXiv:2601.05242.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest
from typing import Literal

import numpy as np
from pydantic import Field

from rl.algorithms.advantages import ROUNDING, Array, deviation, group_centred, turn_returns
from rl.algorithms.base import TokenRecord
from rl.algorithms.policy_gradient import PolicyGradient, PolicyGradientRecipe

Values = Sequence[Sequence[float]]
Kinds = Sequence[Sequence[int]]


class GroupRelativeRecipe(PolicyGradientRecipe):
    """Numbers of the algorithms that compare the members of a group."""

    group_size: int = Field(ge=2)
    discount: float = Field(ge=0, le=1)  # per turn; used with turn credit
    # reward components that credit the turn that earned them and no earlier one; used with turn credit
    own_turn: tuple[str, ...]
    own_turn_weight: float = Field(ge=0, allow_inf_nan=False)
    # reward components that mark a turn as of another kind: on own_turn's it is compared with turns of that kind alone
    own_turn_kinds: tuple[str, ...]
    # deviation over the group (the paper) or over all groups of the rollout step
    divide_by_std: Literal["none", "group", "step"]
    eps: float = Field(gt=0, allow_inf_nan=False)


class GroupRelative(PolicyGradient):
    """A return of each trajectory or turn, compared within its group."""

    recipe: GroupRelativeRecipe
    against_the_group: Callable[[Values, Kinds], Values] = staticmethod(group_centred)

    def __init__(self, recipe: GroupRelativeRecipe) -> None:
        """Take over the recipe's numbers.

        Args:
            recipe: as `recipe_class` parsed it.
        """
        super().__init__(recipe)
        self.reward_components = (*recipe.own_turn, *recipe.own_turn_kinds)

    def turn_rewards(self, record: TokenRecord) -> list[float]:
        """Without the components that credit their own turn only: those come in at `advantages`."""
        if self.recipe.credit == "episode":
            return record.scores.turn_rewards
        return [sum(v for name, v in turn.items() if name not in self.recipe.own_turn) for turn in record.scores.turns]

    def advantages(
        self, records: Sequence[TokenRecord], rewards: Sequence[Array]
    ) -> tuple[list[Array], None, dict[str, float]]:
        """Group-relative advantages, spread over each turn's tokens; counts groups whose members all scored the same."""
        members: dict[str, list[int]] = defaultdict(list)
        for i, record in enumerate(records):
            members[record.group_id].append(i)
        groups = [group for group in members.values() if len(group) > 1]  # else the others failed
        returns = self._relative(
            groups, [self._returns(r, reward_A) for r, reward_A in zip(records, rewards, strict=True)]
        )
        own = self._relative(groups, [self._own(r) for r in records], [self._kinds(r) for r in records])
        advantage = [np.zeros(record.size) for record in records]
        silent = len(members) - len(groups)
        for group in groups:
            turns = {
                i: [r + self.recipe.own_turn_weight * o for r, o in zip_longest(returns[i], own[i], fillvalue=0.0)]
                for i in group
            }
            silent += all(abs(value) < ROUNDING for values in turns.values() for value in values)
            for i, values in turns.items():
                advantage[i] = np.array([values[min(int(turn), len(values) - 1)] for turn in records[i].turn_A])
        return advantage, None, {"groups": float(len(members)), "groups_without_signal": float(silent)}

    def _returns(self, record: TokenRecord, reward_A: Array) -> list[float]:
        if self.recipe.credit == "episode":
            return [float(reward_A.sum())]
        turns = np.bincount(record.turn_A.astype(np.int64), weights=reward_A)
        return turn_returns([float(reward) for reward in turns], self.recipe.discount)

    def _own(self, record: TokenRecord) -> list[float]:
        if self.recipe.credit == "episode":
            return []
        return [sum(turn.get(name, 0.0) for name in self.recipe.own_turn) for turn in record.scores.turns]

    def _kinds(self, record: TokenRecord) -> list[int]:
        """Of each turn; the n-th name has bit n."""
        if self.recipe.credit == "episode":
            return []
        names = self.recipe.own_turn_kinds
        return [sum(1 << bit for bit, name in enumerate(names) if name in turn) for turn in record.scores.turns]

    def _relative(
        self,
        groups: Sequence[Sequence[int]],
        values: Values,
        kinds: Kinds = (),
    ) -> dict[int, list[float]]:
        """Centred on the group, or on its turns of a kind, and divided as the recipe says, by record."""
        centred = [
            self.against_the_group([values[i] for i in group], [kinds[i] for i in group] if kinds else ())
            for group in groups
        ]
        step = deviation(chain.from_iterable(centred))
        relative: dict[int, list[float]] = {}
        for group, rows in zip(groups, centred, strict=True):
            by = {"none": 1.0, "group": deviation(rows) + self.recipe.eps, "step": step + self.recipe.eps}[
                self.recipe.divide_by_std
            ]
            relative |= {i: [value / by for value in row] for i, row in zip(group, rows, strict=True)}
        return relative
