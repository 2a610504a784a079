"""Preset `doctoragent_f1`: what DoctorAgent-RL's released code pays.

Kept to compare with, and to show what it pays for (docs/rewards.md).

    diagnosis       `diagnosis` (5) x F1 of the tokens of the diagnosis given and true
    recommendation  `recommendation` (5) x F1 of the tokens of the recommendations, where there is a true one
    question        `answered` (+1) for an answered question or test, `unanswerable` (-1), `repeated` (-2)
    format          `format` (-2) for a breach of grammar
    no_diagnosis    `out_of_turns` (-5) when turns or tokens run out

Tokens are those of `jieba.lcut` on Latin text: words, numbers, every space and every mark, which is what makes it pay
for spaces. Differences: a Chinese character is a token of its own (there: a word); consultations end when the turns do
(there: they were revived).

Source: the released environment `env_patient_llm`, DoctorAgent-RL commit 9db6377.
"""

import re
from collections import Counter

from clinic.config import ReleasedParams
from clinic.events import Ending, Event, Inquiry, Invalid, inquiries
from clinic.rewards.base import Components, Preset, Record

_TOKEN = re.compile(r"[A-Za-z0-9]+(?:\.\d+)?%?|\s|.", re.DOTALL)
COMPONENTS = frozenset({"diagnosis", "recommendation", "question", "format", "no_diagnosis"})


def token_f1(given: str, true: str) -> float:
    """F1 of two bags of tokens, in [0, 1]; 0 if either is empty."""
    ours, theirs = Counter(_TOKEN.findall(given)), Counter(_TOKEN.findall(true))
    common = sum((ours & theirs).values())
    return 2 * common / (ours.total() + theirs.total()) if common else 0.0


def turn_component(constants: ReleasedParams, event: Event) -> Components:
    """What one turn before the diagnosis is paid."""
    if isinstance(event, Invalid):
        return {"format": constants.format}
    if not isinstance(event, Inquiry):
        return {}
    return {
        "question": sum(
            constants.repeated
            if one.repeated
            else (constants.answered if one.topic is not None else constants.unanswerable)
            for one in inquiries(event)
        )
    }


def with_agreement(
    constants: ReleasedParams, record: Record, diagnosis: float, recommendation: float
) -> list[Components]:
    """All turns, with how well diagnosis and recommendation agree with the truth, each in [0, 1]."""
    turns = [turn_component(constants, event) for event in record.events]
    if record.stop_reason != Ending.DIAGNOSED:
        turns[-1]["no_diagnosis"] = constants.out_of_turns
    else:
        turns[-1] |= {
            "diagnosis": constants.diagnosis * diagnosis,
            "recommendation": constants.recommendation * recommendation,
        }
    return turns


def score(constants: ReleasedParams, record: Record) -> list[Components]:
    """Components of every turn."""
    case = record.case
    return with_agreement(
        constants,
        record,
        token_f1(record.diagnosis, case.diagnosis),
        token_f1(record.recommendation, case.recommendation),
    )


PRESET = Preset(score, COMPONENTS)
