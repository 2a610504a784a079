"""What attacks on the reward earn, beside honest doctors, under every preset that asks nobody; on the starter clinic or
an imported case set.

The honest weak doctor of the starter clinic asks at random and decides by Bayes. Of an imported set, whose
probabilities are unknown, there are two: one asks what was asked of the most similar case it has seen and names that
one's diagnosis, the other takes a general history and names the diagnosis of the case that reads most like what it
heard; an attack is held against the better.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from clinic.attacks import ATTACKS, Attack, Seat
from clinic.cases import Case
from clinic.config import CaseSource
from clinic.consultation import Consultation, largest_turn_budget
from clinic.dialogues import at_once
from clinic.doctors import Ask, Doctor, Listener, NearestCase, ReferenceDoctor, at_random, greedy
from clinic.events import Ending, Event
from clinic.generative import GenerativeClinic
from clinic.loaders import GENERATED, load_source
from clinic.patients.base import Matcher
from clinic.patients.scripted import ScriptedPatient
from clinic.rewards import Scorer
from clinic.starter import draw_cases
from clinic.worth import with_worth
from doctor.environments import open_factory
from doctor.parameters import ROOT, Params
from doctor.reward_recipe import load_reward

WEAK, STRONG = "honest: random questions, Bayes decision", "honest: Bayes' questions and decision"
NEAREST = "honest: questions and diagnosis of the nearest training case"
LISTENER = "honest: general history, diagnosis of the case most like it"
HONEST = (WEAK, STRONG, NEAREST, LISTENER)
Consulted = tuple[list[Event], str]
Player = Callable[[Case, Consultation, int], Consulted]


def on_starter(params: Params, count: int, presets: Sequence[str]) -> dict[str, dict[str, float]]:
    """Doctor or attack -> preset -> mean reward over drawn cases of the starter clinic."""
    factory = open_factory(params, ROOT / "data/kb_index")
    cases = list(draw_cases(factory.clinic, count, params.patient_cases.starter.seed, params.patient_cases.split))

    def honest(rule: Ask) -> Player:
        def consult(case: Case, consultation: Consultation, i: int) -> Consulted:
            rng = np.random.default_rng([params.seed, i])
            return _consult(
                ReferenceDoctor(
                    clinic=factory.clinic,
                    case=case,
                    ask=rule,
                    questions=largest_turn_budget(params.consultation) - 1,
                    rng=rng,
                ),
                consultation,
            )

        return consult

    players = {WEAK: honest(at_random), STRONG: honest(greedy)}
    return _earnings(
        params,
        cases,
        factory.matcher,
        [factory.clinic],
        players | _attackers(params, cases, trade_of(factory.clinic)),
        presets,
    )


def sources_of(params: Params) -> list[CaseSource]:
    """The imported sets of a run that are consultations with patients on record."""
    given = [source for source in params.patient_cases.imported if source.format not in GENERATED | {"questions"}]
    return [source.model_copy(update={"path": str(ROOT / source.path)}) for source in given]


def on_imported(params: Params, source: CaseSource, count: int, presets: Sequence[str]) -> dict[str, dict[str, float]]:
    """The same on the last `count` cases of an imported set, at most half of it; the others are what the honest doctors have seen before, and
    over what is rare among them the facts are worth.
    """
    found, _ = load_source(source, params.patient_cases.split)
    first = max(len(found) - count, len(found) // 2)
    seen, cases = found[:first], with_worth(found[first:], found[:first])
    common = Counter(case.synonyms[0] if case.synonyms else case.diagnosis for case in seen)
    questions = [
        question
        for question in dict.fromkeys(fact.topic for case in seen for fact in case.facts)
        if question.count("?") == 1
    ] or [f"{f.topic}?" for f in seen[0].facts]
    trade = {
        "names": [name for name, _ in common.most_common()],
        "broader": ["inflammation", "infection"],
        "questions": questions,
    }

    def honest(colleague: NearestCase | Listener) -> Player:
        def consult(case: Case, consultation: Consultation, i: int) -> Consulted:  # noqa: ARG001  one signature
            return _consult(colleague.doctor(case, largest_turn_budget(params.consultation) - 1), consultation)

        return consult

    players = {NEAREST: honest(NearestCase(seen)), LISTENER: honest(Listener(seen))}
    return _earnings(params, cases, None, [], players | _attackers(params, cases, trade), presets)


def _attackers(params: Params, cases: Sequence[Case], trade: Mapping[str, Any]) -> dict[str, Player]:
    def player(attack: Attack) -> Player:
        def consult(case: Case, consultation: Consultation, i: int) -> Consulted:  # noqa: ARG001  one signature
            neighbour = cases[(i + 1) % len(cases)]
            known = {**trade, "neighbour": (neighbour.diagnosis, neighbour.recommendation)}
            return play(
                attack,
                consultation,
                largest_turn_budget(params.consultation),
                known,
                np.random.default_rng([params.seed, i]),
            )

        return consult

    return {name: player(attack) for name, attack in ATTACKS.items()}


def _earnings(
    params: Params,
    cases: Sequence[Case],
    matcher: Matcher | None,
    clinics: Sequence[GenerativeClinic],
    players: Mapping[str, Player],
    presets: Sequence[str],
) -> dict[str, dict[str, float]]:
    scorers = {preset: Scorer(load_reward(preset), clinics) for preset in presets}
    table = {}
    for name, player in players.items():
        played = []
        for i, case in enumerate(cases):
            consultation = Consultation(
                case,
                ScriptedPatient(case, matcher),
                params.consultation,
                largest_turn_budget(params.consultation),
                None,
            )
            played.append((case, *player(case, consultation, i)))
        table[name] = {preset: _mean(scorer, played) for preset, scorer in scorers.items()}
    return table


def play(
    attack: Attack, consultation: Consultation, budget: int, known: Mapping[str, Any], rng: np.random.Generator
) -> tuple[list[Event], Ending]:
    """One consultation of an attacker, who goes on after the end as long as anybody listens; events and stop reason."""
    heard = [consultation.opening()[1]["content"]]
    events: list[Event] = []
    stop_reason = Ending.OUT_OF_TURNS
    for turn in range(budget + 3):
        try:
            reply = at_once(
                consultation.step(attack(Seat(heard=tuple(heard), turn=turn, budget=budget, rng=rng, **known)))
            )
        except RuntimeError:  # nothing is revived
            break
        events.append(reply.event)
        stop_reason = reply.stop_reason or stop_reason
        if reply.text is not None:
            heard.append(reply.text)
    return events, stop_reason


def paid_attacks(table: Mapping[str, Mapping[str, float]], preset: str) -> list[str]:
    """Attacks that earn at least what the honest weak doctor earns; on imported sets, the better of the honest doctors."""
    honest = table[WEAK][preset] if WEAK in table else max(table[name][preset] for name in HONEST if name in table)
    return [name for name, row in table.items() if name not in HONEST and row[preset] >= honest]


def trade_of(clinic: GenerativeClinic) -> dict[str, Any]:
    """What anybody in the trade knows of a clinic: names by how common they are, broader terms by how many they cover,
    questions.
    """
    by_prevalence = sorted(clinic.conditions, key=lambda condition: -condition.prevalence)
    weight: dict[str, float] = {}
    for condition in clinic.conditions:
        for parent in condition.parents:
            weight[parent] = weight.get(parent, 0.0) + condition.prevalence
    return {
        "names": [condition.name for condition in by_prevalence],
        "broader": sorted(weight, key=lambda term: -weight[term]),
        "questions": [finding.doctor.train[0] for finding in clinic.findings],
    }


def _consult(doctor: Doctor, consultation: Consultation) -> Consulted:
    events = []
    while True:
        reply = at_once(consultation.step(doctor.turn()))
        events.append(reply.event)
        if reply.text is None:
            return events, reply.stop_reason or ""
        doctor.hear(reply.event)


def _mean(scorer: Scorer, played: Sequence[tuple[Case, list[Event], str]]) -> float:
    return float(
        np.mean([sum(sum(turn.values()) for turn in scorer.score(case, events, stop)) for case, events, stop in played])
    )
