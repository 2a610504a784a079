"""Online DPO: preference pairs mined from each step's own rollout. Source: arXiv:2402.04792."""

from typing import Literal

from rl.algorithms.preference import PreferenceLearning, PreferenceRecipe


class OnlineDPORecipe(PreferenceRecipe):
    """Every number of `recipes/online_dpo.yaml`."""

    name: Literal["online_dpo"]


class OnlineDPO(PreferenceLearning):
    """See the module docstring."""

    recipe_class = OnlineDPORecipe
