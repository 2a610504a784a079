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
                  takes the rise itself, which an answer that misleads makes negative. Else `information` x the worth
                  (`clinic.worth`) of the present facts that the answer told.
    test          -`test_cost` for each result of an examination or test, on cases of no generative clinic
    turn          -`turn_cost` each turn
    repeat        -`repeat_cost` for a question about something already told or already asked; for a search repeated beside
                  `search_cost`
    search        -`search_cost` for each other search
    evidence      last turn, beside a right diagnosis: `evidence` x the share of the cited passages that a search of the
                  doctor's own showed and that, as shown, name the condition
    invalid       -`invalid_cost` for a turn outside the grammar
    no_diagnosis  -`no_diagnosis_cost` when turns or tokens run out before a diagnosis
    safety        veto: a wrong diagnosis of an urgent case whose present red flags were never told loses all information
                  earned, and `missed_red_flag_cost`
    unheeded      with a generative clinic: a diagnosis that the answers made less likely than it was after the opening, and
                  that is not the likeliest, or one of no condition, or none, loses `unheeded` x all information earned,
                  unless the veto did; else a fixed list of questions and a guess from the opening earn what they never
                  used, and who asks and says nothing earns more than who dares to be wrong
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from clinic.cases import Case
from clinic.config import OutcomeParams
from clinic.diagnoses import relation
from clinic.events import (
    Ending,
    Event,
    Examined,
    Inquiry,
    Invalid,
    Searched,
    final_diagnosis,
    inquiries,
    one_by_one,
    told_topics,
)
from clinic.generative import Array, GenerativeClinic
from clinic.rewards.base import Components, Preset, Record, missed_red_flags


def score(constants: OutcomeParams, record: Record) -> list[Components]:
    """Components of every turn."""
    turns: list[Components] = []
    for event, told in zip(record.events, information(record, constants.information_by), strict=True):
        components = {"turn": -constants.turn_cost, "information": constants.information * told}
        if isinstance(event, Invalid):
            components["invalid"] = -constants.invalid_cost
        if isinstance(event, Searched) and not event.repeated:
            components["search"] = -constants.search_cost
        asked = [event] if isinstance(event, Searched) else inquiries(event)
        if len(asked) > 1:
            components["turn"] *= len(asked)
        if any(one.repeated for one in asked):
            components["repeat"] = -sum(_repeat_cost(constants, one) for one in asked)
        if record.clinic is None and isinstance(event, Examined):
            components["test"] = -constants.test_cost * (1 + len(event.further))
        turns.append(components)
    last = turns[-1]
    if record.stop_reason != Ending.DIAGNOSED:
        last["no_diagnosis"] = -constants.no_diagnosis_cost
    last["diagnosis"] = _worth(constants, record)
    if record.verdict == "exact" and (share := record.evidence):
        last["evidence"] = constants.evidence * share
    last |= _taken_back(constants, record, sum(turn["information"] for turn in turns))
    return turns


def _taken_back(constants: OutcomeParams, record: Record, earned: float) -> Components:
    """What the veto, or else a diagnosis against the answers or none, takes of all information earned."""
    if record.verdict == "other" and missed_red_flags(record.case, record.events):
        return {"safety": -max(earned, 0.0) - constants.missed_red_flag_cost}
    return {} if _heeds(record) else {"unheeded": -constants.unheeded * max(earned, 0.0)}


def _heeds(record: Record) -> bool:
    """Whether the diagnosis goes by the answers, as far as that is known: what it names is Bayes' likeliest condition, or no
    less likely than it was before the first question.
    """
    if record.clinic is None:
        return True
    if final_diagnosis(record.events) is None:
        return False
    named_C = np.array([verdict != "other" for verdict in _verdicts(record.clinic, record.diagnosis)])
    before_C = record.clinic.posterior(_opening(record.clinic, record.case), {})
    after_C = _posterior(record.clinic, record.case, record.events)
    return bool(named_C[after_C.argmax()] or after_C[named_C].sum() >= before_C[named_C].sum() > 0)


def _repeat_cost(constants: OutcomeParams, one: Inquiry | Searched) -> float:
    return one.repeated * (constants.repeat_cost + (constants.search_cost if isinstance(one, Searched) else 0.0))


def _worth(params: OutcomeParams, record: Record) -> float:
    worth = {"exact": params.correct, "parent": params.accepted_parent, "other": 0.0}
    if params.diagnosis_by == "label" or record.clinic is None or final_diagnosis(record.events) is None:
        return worth[record.verdict]
    worth_C = [worth[verdict] for verdict in _verdicts(record.clinic, record.diagnosis)]
    return float(_posterior(record.clinic, record.case, record.events) @ np.array(worth_C))


@lru_cache(maxsize=4096)
def _verdicts(clinic: GenerativeClinic, diagnosis: str) -> tuple[str, ...]:
    """How a named diagnosis relates to each condition; doctors say the same names again and again."""
    return tuple(relation(condition, diagnosis) for condition in clinic.conditions)


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
        clinic.finding_index[e.topic]: bool(e.present)
        for e in one_by_one(events)
        if isinstance(e, Inquiry) and e.topic is not None
    }
    return clinic.posterior(_opening(clinic, case), answers)


def _opening(clinic: GenerativeClinic, case: Case) -> tuple[int, ...]:
    return tuple(clinic.finding_index[topic] for topic in case.opening)


def _gains(clinic: GenerativeClinic, case: Case, events: Sequence[Event], by: str) -> list[float]:
    opening, truth = _opening(clinic, case), clinic.condition_index[case.diagnosis_id]
    answers: dict[int, bool] = {}
    gains = [0.0] * len(events)
    for turn, inquiry in ((turn, one) for turn, event in enumerate(events) for one in one_by_one([event])):
        if not isinstance(inquiry, Inquiry) or inquiry.topic is None or inquiry.repeated:
            continue
        column, heard = clinic.finding_index[inquiry.topic], tuple(answers.items())
        answers[column] = bool(inquiry.present)
        if by == "expected":
            gain = _expected_gain(clinic, opening, heard, column)
        else:
            before_C, after_C = clinic.posterior(opening, dict(heard)), clinic.posterior(opening, answers)
            gain = float(np.log(after_C[truth]) - np.log(before_C[truth]))
        gains[turn] += gain / float(np.log(len(clinic.conditions)))
    return gains


@lru_cache(maxsize=65536)
def _expected_gain(
    clinic: GenerativeClinic, opening: tuple[int, ...], heard: tuple[tuple[int, bool], ...], column: int
) -> float:
    """What asking for a finding is expected to tell, in nats; consultations of one case begin alike."""
    return max(float(clinic.information_gain(clinic.posterior(opening, dict(heard)), [column])[0]), 0.0)


def _told_shares(case: Case, events: Sequence[Event]) -> list[float]:
    """The worth of the facts that each turn told, at most 1 in all; facts without a worth count alike."""
    present = [fact for fact in case.facts if fact.present and fact.topic not in case.opening]
    worth = {fact.topic: 1 / len(present) if fact.worth is None else fact.worth for fact in present}
    told: set[str] = set()
    shares = []
    for event in events:
        new = told_topics([event]) & worth.keys() - told
        told |= new
        shares.append(sum(worth[topic] for topic in new))
    return shares


PRESET = Preset(
    score,
    frozenset(
        {
            "diagnosis",
            "evidence",
            "information",
            "test",
            "turn",
            "search",
            "repeat",
            "invalid",
            "no_diagnosis",
            "safety",
            "unheeded",
        }
    ),
)
