"""Presets `model` and `human`: one score for the whole consultation, on its last turn.

Components:

    model   a sequence-classification model's output x `scale` + `offset`
    human   the score that a person gave to this very transcript
"""

from clinic.config import HumanParams, RewardModelParams
from clinic.rewards.base import Components, Preset, Record


def score_model(constants: RewardModelParams, record: Record) -> list[Components]:
    """Components of every turn."""
    return [*({} for _ in record.events[:-1]), {"model": constants.scale * record.opinion["model"] + constants.offset}]


def score_human(constants: HumanParams, record: Record) -> list[Components]:  # noqa: ARG001  one signature
    """Components of every turn."""
    return [*({} for _ in record.events[:-1]), {"human": record.opinion["human"]}]


MODEL = Preset(score_model, frozenset({"model"}), opinion="model", single_turn=True)
HUMAN = Preset(score_human, frozenset({"human"}), opinion="human", single_turn=True)
