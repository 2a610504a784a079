"""DPO, offline: all groups are sampled by the warm start before the first update, or the pairs are read from a JSONL
file. Source: arXiv:2305.18290.
"""

from typing import Literal

from rl.algorithms.preference import PreferenceLearning, PreferenceRecipe


class DPORecipe(PreferenceRecipe):
    """Every number of `recipes/dpo.yaml`."""

    name: Literal["dpo"]
    pairs: str  # rollout: sampled by the warm start; or a JSONL file of prompt, chosen, rejected


class DPO(PreferenceLearning):
    """See the module docstring."""

    recipe_class = DPORecipe
    on_policy = False
