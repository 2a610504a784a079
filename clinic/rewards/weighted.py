"""Preset `weighted`: a judge's accuracy, logic, completeness and safety, each in [0, 1], in a weighted sum on the last
turn.

Components:

    accuracy, logic, completeness, safety   last turn: weight x the judge's verdict
    invalid                                 -`invalid_cost` for a turn outside the grammar
"""

from clinic.config import WeightedParams
from clinic.events import Invalid
from clinic.rewards.base import Components, Preset, Record

CRITERIA = ("accuracy", "logic", "completeness", "safety")


def score(weights: WeightedParams, record: Record) -> list[Components]:
    """Components of every turn."""
    turns: list[Components] = [
        {"invalid": -weights.invalid_cost} if isinstance(event, Invalid) else {} for event in record.events
    ]
    turns[-1] |= {name: getattr(weights, name) * record.opinion[name] for name in CRITERIA}
    return turns


PRESET = Preset(score, frozenset({*CRITERIA, "invalid"}), opinion="judge", criteria=CRITERIA, single_turn=True)
