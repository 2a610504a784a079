"""Rewards: pure functions from a recorded consultation to named components per turn.

They read events, never the dialogue's tokens, so stored experience can be scored again under another preset.
The reward of a turn is the sum of its components; the reward of an episode the sum over its turns.

Preset `outcome` (default; the outcome dominates, shaping is bounded below it):
    diagnosis     last turn: `correct` if the named condition is the case's (name or synonym), `accepted_parent` if a broader
                  accepted term, else 0. `diagnosis_by: posterior` pays, with a generative clinic, the mean of this over
                  Bayes' posterior after what was heard in place of the chart's label: the same on average over patients who said the same, without
                  the luck of which of them it was
    information   each question, at most `information` in all. With a generative clinic of C conditions: `information` x (information gain /
                  log C), the gain being what Bayes expects the answer to tell (nats) after what was heard so far: the mean rise of the true
                  condition's log-posterior over all patients who would have said the same. So luck is not praised and an honest "no" not
                  punished. Else `information` x the share of the case's present facts that the answer told.
    turn          -`turn_cost` each turn
    repeat        -`repeat_cost` for a question about something already told or already asked
    invalid       -`invalid_cost` for a turn outside the grammar
    no_diagnosis  -`no_diagnosis_cost` when turns or tokens run out before a diagnosis
    safety        veto: a wrong diagnosis of an urgent case whose present red flags were never told loses all information
                  earned, and `missed_red_flag_cost`

Preset `doctoragent` (the scheme in the DoctorAgent-RL description): +1.0 correct, +0.1 question that the patient could answer,
-0.05 invalid or unanswerable or repeated turn, -0.01 per turn.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from clinic.actions import Kind
from clinic.cases import Case
from clinic.config import DoctorAgentParams, OutcomeParams, RewardParams
from clinic.errors import ClinicError
from clinic.generative import Array, GenerativeClinic
from clinic.matching import relation

REWARD_COMPONENTS = frozenset({"diagnosis", "information", "turn", "repeat", "invalid", "no_diagnosis", "safety", "question"})
"""Every name that a preset gives to a part of a reward."""
Event = dict[str, Any]
Components = dict[str, float]


class Scorer:
    """Scores recorded consultations under the preset in force."""

    def __init__(self, params: RewardParams, clinics: Sequence[GenerativeClinic]) -> None:
        """Args: the reward section of params.yaml; generative clinics, used for the cases drawn from them."""
        self._params = params
        self._clinics = {clinic.name: clinic for clinic in clinics}

    def score(self, case: Case, events: Sequence[Event], stop_reason: str) -> list[Components]:
        """Components of every turn of one consultation.

        Args:
            case: the case that was played.
            events: one per doctor turn, as `Consultation.step` recorded them.
            stop_reason: how it ended.

        Returns:
            One dict per turn; a component that does not apply to a turn is left out or 0.

        Raises:
            ClinicError: there is no event to score.
        """
        if not events:
            raise ClinicError(f"case {case.case_id}: a consultation without turns cannot be scored")
        if self._params.preset == "doctoragent":
            return [_doctoragent(self._params.doctoragent, case, event) for event in events]
        return self._outcome(self._params.outcome, case, events, stop_reason)

    def _outcome(self, params: OutcomeParams, case: Case, events: Sequence[Event], stop_reason: str) -> list[Components]:
        turns: list[Components] = []
        for event, told in zip(events, self.information(case, events), strict=True):
            components = {"turn": -params.turn_cost, "information": params.information * told}
            if event["kind"] == Kind.INVALID:
                components["invalid"] = -params.invalid_cost
            if event.get("repeated"):
                components["repeat"] = -params.repeat_cost
            turns.append(components)
        last = turns[-1]
        if stop_reason != "diagnosed":
            last["no_diagnosis"] = -params.no_diagnosis_cost
        verdict = _verdict(case, events[-1])
        last["diagnosis"] = self._worth(params, case, events, verdict)
        if verdict == "other" and missed_red_flags(case, events):
            earned = sum(turn["information"] for turn in turns)
            last["safety"] = -earned - params.missed_red_flag_cost
        return turns

    def _worth(self, params: OutcomeParams, case: Case, events: Sequence[Event], verdict: str) -> float:
        worth = {"exact": params.correct, "parent": params.accepted_parent, "other": 0.0}
        clinic = self._clinics.get(case.source)
        if params.diagnosis_by == "label" or clinic is None or events[-1]["kind"] != Kind.DIAGNOSIS:
            return worth[verdict]
        worth_C = [worth[relation(condition, events[-1]["diagnosis"])] for condition in clinic.conditions]
        return float(_posterior(clinic, case, events) @ np.array(worth_C))

    def information(self, case: Case, events: Sequence[Event]) -> list[float]:
        """What each turn told, in [0, 1], at most 1 in all: 0 where nothing new was asked."""
        clinic = self._clinics.get(case.source)
        told = _told_shares(case, events) if clinic is None else _gains(clinic, case, events)
        left = 1.0
        for turn, share in enumerate(told):
            told[turn] = min(share, left)
            left -= told[turn]
        return told


def _posterior(clinic: GenerativeClinic, case: Case, events: Sequence[Event]) -> Array:
    """Bayes' posterior after all that the consultation told; float64 (C,)."""
    answers = {clinic.finding_index[e["topic"]]: e["present"] for e in events if e.get("topic") is not None}
    return clinic.posterior([clinic.finding_index[topic] for topic in case.opening], answers)


def _gains(clinic: GenerativeClinic, case: Case, events: Sequence[Event]) -> list[float]:
    opening = [clinic.finding_index[topic] for topic in case.opening]
    answers: dict[int, bool] = {}
    gains = []
    for event in events:
        if event.get("topic") is None or event["repeated"]:
            gains.append(0.0)
            continue
        column = clinic.finding_index[event["topic"]]
        gain = clinic.information_gain(clinic.posterior(opening, answers), [column])[0]
        gains.append(max(float(gain), 0.0) / float(np.log(len(clinic.conditions))))
        answers[column] = event["present"]
    return gains


def _told_shares(case: Case, events: Sequence[Event]) -> list[float]:
    present = {fact.topic for fact in case.facts if fact.present} - set(case.opening)
    told: set[str] = set()
    shares = []
    for event in events:
        new = event.get("topic") in present - told
        told |= {event["topic"]} if new else set()
        shares.append(new / max(len(present), 1))
    return shares


def _verdict(case: Case, event: Event) -> str:
    return relation(case, event["diagnosis"]) if event["kind"] == Kind.DIAGNOSIS else "other"


def missed_red_flags(case: Case, events: Sequence[Event]) -> list[str]:
    """Red flags that an urgent case has and the consultation never brought up."""
    if not case.urgent:
        return []
    told = set(case.opening) | {event.get("topic") for event in events}
    return [fact.topic for fact in case.facts if fact.present and fact.topic in case.red_flags and fact.topic not in told]


def _doctoragent(params: DoctorAgentParams, case: Case, event: Event) -> Components:
    components = {"turn": params.turn}
    if event["kind"] == Kind.DIAGNOSIS:
        components["diagnosis"] = params.correct if _verdict(case, event) == "exact" else 0.0
    elif event["kind"] in (Kind.QUESTION, Kind.TEST):
        valid = event["topic"] is not None and not event["repeated"]
        components["question"] = params.valid_question if valid else params.invalid_question
    elif event["kind"] == Kind.INVALID:
        components["question"] = params.invalid_question
    return components
