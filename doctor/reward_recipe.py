"""The constants of the chosen reward preset. Apart from the algorithm's recipe, so that who only scores depends on no
algorithm.
"""

from pathlib import Path

from pydantic import TypeAdapter

from clinic.config import HumanParams, PresetParams, RewardModelParams
from doctor.mistakes import read_yaml, validated
from doctor.parameters import ROOT, ParameterError


def reward_path(preset: str) -> Path:
    """Where the constants of a reward preset are."""
    return ROOT / "recipes" / "rewards" / f"{preset}.yaml"


def load_reward(preset: str) -> PresetParams:
    """Parse `recipes/rewards/<preset>.yaml`.

    Raises:
        ParameterError: a mistake in it, the constants of another preset, or the path that it needs is missing.
    """
    path = reward_path(preset)
    reward: PresetParams = validated(read_yaml(path), path, TypeAdapter(PresetParams).validate_python)
    if reward.name != preset:
        raise ParameterError(
            f"recipes/rewards/{path.name}: name is {reward.name!r}; it must be that of the file, {preset!r}"
        )
    if isinstance(reward, RewardModelParams | HumanParams) and reward.path is None:
        kind = (
            "a folder or Hugging Face id of a sequence-classification model"
            if reward.name == "model"
            else "a JSONL file of ratings"
        )
        raise ParameterError(
            f"recipes/rewards/{path.name}: path is null, but reward.preset {preset} needs one; name {kind}"
        )
    return reward
