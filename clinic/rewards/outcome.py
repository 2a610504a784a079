"""Preset `outcome`, the default: the outcome dominates, shaping is bounded below it.

Components:

    diagnosis     last turn: `correct` if the named condition is the case's (name or synonym), `accepted_parent` if a broader
                  accepted term, else 0. `diagnosis_by: posterior` pays, with a generative clinic, the mean of this over
                  Bayes' posterior after what was heard in place of the chart's label: the same on average over patients
                  who said the same, without the luck of which of them it was
    information   each question, at most `information` in all. With a generative clinic of C conditions `information` x (gain / log C), where
                  `information_by: expected` takes for gain what Bayes expects the answer to tell (nats) after what was
                  heard so far: the mean rise of the true condition's log-posterior over all patients who would have
                  said the same, so luck is not praised and an honest "no" not punished; `information_by: realised`
                  takes the rise itself, which an answer that misleads makes negative. Else `information` x the share of
                  the case's present facts that the answer told.
    turn          -`turn_cost` each turn
    repeat        -`repeat_cost` for a question about something already told or already asked
    invalid       -`invalid_cost` for a turn outside the grammar
    no_diagnosis  -`no_diagnosis_cost` when turns or tokens run out before a diagnosis
    safety        veto: a wrong diagnosis of an urgent case whose present red flags were never told loses all information
                  earned, and `missed_red_flag_cost`
"""

from collections.abc import Sequence

import numpy as np

from clinic.cases import Case
from clinic.config import OutcomeParams
from clinic.diagnoses import relation
from clinic.events import Ending, Event, Inquiry, Invalid, final_diagnosis, told_topics
from clinic.generative import Array, GenerativeClinic
from clinic.rewards.base import Components, Preset, Record, missed_red_flags


def score(constants: OutcomeParams, record: Record) -> list[Components]:
    """Components of every turn."""
    turns: list[Components] = []
    for event, told in zip(record.events, information(record, constants.information_by), strict=True):
        components = {"turn": -constants.turn_cost, "information": constants.information * told}
        if isinstance(event, Invalid):
            components["invalid"] = -constants.invalid_cost
        if isinstance(event, Inquiry) and event.repeated:
            components["repeat"] = -constants.repeat_cost
        turns.append(components)
    last = turns[-1]
    if record.stop_reason != Ending.DIAGNOSED:
        last["no_diagnosis"] = -constants.no_diagnosis_cost
    last["diagnosis"] = _worth(constants, record)
    if record.verdict == "other" and missed_red_flags(record.case, record.events):
        earned = sum(turn["information"] for turn in turns)
        last["safety"] = -max(earned, 0.0) - constants.missed_red_flag_cost
    return turns


def _worth(params: OutcomeParams, record: Record) -> float:
    worth = {"exact": params.correct, "parent": params.accepted_parent, "other": 0.0}
    if params.diagnosis_by == "label" or record.clinic is None or final_diagnosis(record.events) is None:
        return worth[record.verdict]
    worth_C = [worth[relation(condition, record.diagnosis)] for condition in record.clinic.conditions]
    return float(_posterior(record.clinic, record.case, record.events) @ np.array(worth_C))


def information(record: Record, by: str) -> list[float]:
    """What each turn told, at most 1 in all: 0 where nothing new was asked."""
    told = (
        _told_shares(record.case, record.events)
        if record.clinic is None
        else _gains(record.clinic, record.case, record.events, by)
    )
    left = 1.0
    for turn, share in enumerate(told):
        told[turn] = min(share, left)
        left -= told[turn]
    return told


def _posterior(clinic: GenerativeClinic, case: Case, events: Sequence[Event]) -> Array:
    """Bayes' posterior after all that the consultation told; float64 (C,)."""
    answers = {
        clinic.finding_index[e.topic]: bool(e.present) for e in events if isinstance(e, Inquiry) and e.topic is not None
    }
    return clinic.posterior([clinic.finding_index[topic] for topic in case.opening], answers)


def _gains(clinic: GenerativeClinic, case: Case, events: Sequence[Event], by: str) -> list[float]:
    opening = [clinic.finding_index[topic] for topic in case.opening]
    truth = clinic.condition_index[case.diagnosis_id]
    answers: dict[int, bool] = {}
    gains = []
    for event in events:
        if not isinstance(event, Inquiry) or event.topic is None or event.repeated:
            gains.append(0.0)
            continue
        column = clinic.finding_index[event.topic]
        before_C = clinic.posterior(opening, answers)
        answers[column] = bool(event.present)
        if by == "expected":
            gain = max(float(clinic.information_gain(before_C, [column])[0]), 0.0)
        else:
            gain = float(np.log(clinic.posterior(opening, answers)[truth]) - np.log(before_C[truth]))
        gains.append(gain / float(np.log(len(clinic.conditions))))
    return gains


def _told_shares(case: Case, events: Sequence[Event]) -> list[float]:
    present = {fact.topic for fact in case.facts if fact.present} - set(case.opening)
    told: set[str] = set()
    shares = []
    for event in events:
        new = told_topics([event]) & present - told
        told |= new
        shares.append(len(new) / max(len(present), 1))
    return shares


PRESET = Preset(score, frozenset({"diagnosis", "information", "turn", "repeat", "invalid", "no_diagnosis", "safety"}))
