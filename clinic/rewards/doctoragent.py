"""Preset `doctoragent`: the scheme in the DoctorAgent-RL description.

Components:

    diagnosis   last turn: `correct` if the named condition is the case's
    question    `valid_question` for a question or test that the patient could answer and had not yet answered,
                `invalid_question` for any other and for a breach of grammar
    turn        `turn` each turn

Source: Feng et al., DoctorAgent-RL, arXiv:2505.19630, README.
"""

from clinic.config import DoctorAgentParams
from clinic.events import Diagnosed, Inquiry, Invalid, inquiries
from clinic.rewards.base import Components, Preset, Record


def score(constants: DoctorAgentParams, record: Record) -> list[Components]:
    """Components of every turn."""
    turns: list[Components] = []
    for event in record.events:
        components = {"turn": constants.turn}
        if isinstance(event, Diagnosed):
            components["diagnosis"] = constants.correct if record.verdict == "exact" else 0.0
        elif isinstance(event, Inquiry):
            components["question"] = sum(
                constants.valid_question if one.topic is not None and not one.repeated else constants.invalid_question
                for one in inquiries(event)
            )
        elif isinstance(event, Invalid):
            components["question"] = constants.invalid_question
        turns.append(components)
    return turns


PRESET = Preset(score, frozenset({"diagnosis", "question", "turn"}))
