"""Algorithms: one file each, one line in the registry.

An algorithm says how rewards become advantages and what loss a gradient step minimises. The loop, the learner and the
rollout know none of them by name.
"""

import reprlib
from collections.abc import Mapping
from typing import Any

from rl.algorithms.base import Algorithm
from rl.algorithms.cispo import CISPO
from rl.algorithms.dapo import DAPO
from rl.algorithms.dpo import DPO
from rl.algorithms.dr_grpo import DrGRPO
from rl.algorithms.grpo import GRPO
from rl.algorithms.gspo import GSPO
from rl.algorithms.online_dpo import OnlineDPO
from rl.algorithms.ppo import PPO
from rl.algorithms.ppo_roa import PPOROA
from rl.algorithms.privileged_distillation import PrivilegedDistillation
from rl.algorithms.reinforce_pp import ReinforcePP
from rl.algorithms.rloo import RLOO
from rl.errors import TrainingError

__all__ = ["ALGORITHMS", "Algorithm", "make_algorithm"]

ALGORITHMS: Mapping[str, type[Algorithm]] = {
    "grpo": GRPO,
    "dr_grpo": DrGRPO,
    "rloo": RLOO,
    "reinforce_pp": ReinforcePP,
    "dapo": DAPO,
    "gspo": GSPO,
    "cispo": CISPO,
    "ppo": PPO,
    "ppo_roa": PPOROA,
    "privileged_distillation": PrivilegedDistillation,
    "dpo": DPO,
    "online_dpo": OnlineDPO,
}


def make_algorithm(recipe: Mapping[str, Any]) -> Algorithm:
    """Build the algorithm a recipe names.

    Raises:
        TrainingError: no algorithm of that name.
    """
    name = str(recipe.get("name"))
    if name not in ALGORITHMS:
        raise TrainingError(f"recipe: name is {reprlib.repr(name)}; known algorithms: {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name].from_recipe(recipe)
