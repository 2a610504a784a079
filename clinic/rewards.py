"""Rewards: pure functions from a recorded consultation to named components per turn.

They read events, never the dialogue's tokens, so stored experience can be scored again under another preset.
The reward of a turn is the sum of its components; the reward of an episode the sum over its turns.

Preset `outcome` (default; the outcome dominates, shaping is bounded below it):
    diagnosis     last turn: `correct` if the named condition is the case's (name or synonym), `accepted_parent` if a broader
                  accepted term, else 0
    information   each turn: `information` x (potential after - potential before). With a generative clinic the potential is
                  1 - log P(true) / log P0(true), clipped to [-1, 1]: the share of the initial surprise about the true condition
                  that the dialogue has resolved, so an honest "no" earns what it tells. Else it is the share of the
                  case's present facts that the patient has told. Telescopes: at most `information` in all.
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
from clinic.generative import GenerativeClinic
from clinic.matching import relation

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
        potential = self.potentials(case, events)
        turns: list[Components] = []
        for event, before, after in zip(events, potential[:-1], potential[1:], strict=True):
            components = {"turn": -params.turn_cost, "information": params.information * (after - before)}
            if event["kind"] == Kind.INVALID:
                components["invalid"] = -params.invalid_cost
            if event.get("repeated"):
                components["repeat"] = -params.repeat_cost
            turns.append(components)
        last = turns[-1]
        if stop_reason != "diagnosed":
            last["no_diagnosis"] = -params.no_diagnosis_cost
        verdict = _verdict(case, events[-1])
        last["diagnosis"] = {"exact": params.correct, "parent": params.accepted_parent}.get(verdict, 0.0)
        if verdict == "other" and missed_red_flags(case, events):
            earned = sum(turn["information"] for turn in turns)
            last["safety"] = -max(earned, 0.0) - params.missed_red_flag_cost
        return turns

    def potentials(self, case: Case, events: Sequence[Event]) -> list[float]:
        """The information potential before the first turn and after each; length turns + 1, in [-1, 1]."""
        clinic = self._clinics.get(case.source)
        if clinic is None:
            return _told_share(case, events)
        truth = clinic.condition_index[case.diagnosis_id]
        opening = [clinic.finding_index[topic] for topic in case.opening]
        answers: dict[int, bool] = {}
        log_p = [float(np.log(clinic.posterior(opening, answers)[truth]))]
        for event in events:
            if event.get("topic") is not None and not event["repeated"]:
                answers[clinic.finding_index[event["topic"]]] = event["present"]
                log_p.append(float(np.log(clinic.posterior(opening, answers)[truth])))
            else:
                log_p.append(log_p[-1])
        return [float(np.clip(1 - p / min(log_p[0], -1e-9), -1.0, 1.0)) for p in log_p]


def _told_share(case: Case, events: Sequence[Event]) -> list[float]:
    present = {fact.topic for fact in case.facts if fact.present} - set(case.opening)
    told: set[str] = set()
    shares = [0.0]
    for event in events:
        if event.get("topic") in present:
            told.add(event["topic"])
        shares.append(len(told) / max(len(present), 1))
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
