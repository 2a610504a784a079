"""What attacks on the reward earn, beside honest doctors, under every preset that asks nobody or a judge; on the
starter clinic or an imported case set, played by the rules of the run.

The honest weak doctor of the starter clinic asks at random and decides by Bayes. Of an imported set, whose
probabilities are unknown, there are three: one asks what was asked of the most similar case it has seen and names that
one's diagnosis; the others take a general history, and name the diagnosis of the case that reads most like what they
heard, or the one that naive Bayes fitted on the cases seen finds likeliest. An attack is held against the best. The judge of the judged presets is `clinic.literal_judge`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from clinic.attacks import ATTACKS, Attack, Seat, Trade
from clinic.attacks.base import words_of
from clinic.cases import Case, persona_of
from clinic.config import CaseSource
from clinic.consultation import Consultation, Message, at_once, largest_turn_budget
from clinic.doctors import Ask, Doctor, ReferenceDoctor, at_random, greedy
from clinic.events import Ending, Event, final_diagnosis
from clinic.experienced import Listener, NearestCase, name_of
from clinic.fitted import FittedBayes, FittedListener, report
from clinic.generative import Array, GenerativeClinic
from clinic.intervals import mean
from clinic.judging import CRITERIA, consultation_subject, judge
from clinic.leaks import without_diagnosis
from clinic.literal_judge import literal_judge
from clinic.loaders import GENERATED, load_source
from clinic.loaders.ddxplus import load_ddxplus
from clinic.patients.scripted import ScriptedPatient
from clinic.rewards import PRESETS, Scorer
from clinic.splits import sampled
from clinic.starter import draw_cases
from clinic.tables import Interval
from clinic.worth import with_worth
from doctor.environments import ConsultationFactory, open_factory
from doctor.library import Reader, Shelf
from doctor.literal_library import literal_searcher
from doctor.parameters import ROOT, Params
from doctor.reward_recipe import load_reward
from doctor.trades import trade_of, trade_of_records

WEAK, STRONG = "honest: random questions, Bayes decision", "honest: Bayes' questions and decision"
NEAREST = "honest: questions and diagnosis of the nearest training case"
LISTENER = "honest: general history, diagnosis of the case most like it"
FITTED = "honest: general history, diagnosis by fitted Bayes"
HONEST = (WEAK, STRONG, NEAREST, LISTENER, FITTED)
_TOKEN = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+|[^\w\s]")
AFTER_THE_END = 3  # turns that an attacker goes on for when nobody listens any more
MEASURED = tuple(name for name, preset in PRESETS.items() if preset.opinion in ("", "judge"))
"""Presets that can be measured without a model and without people."""

Earnings = Mapping[str, Mapping[str, Array]]
"""Doctor or attack -> preset -> reward of each consultation; float64 (cases,)."""
Speak = Callable[[Sequence[str], int], str]
"""What was heard so far and the number of the turn (from 0) -> the turn."""
Player = Callable[[Case, int], tuple[Speak, Callable[[Event], None]]]
"""A case and its place -> who speaks in its consultation, and who takes note of its events."""


@dataclass(frozen=True, kw_only=True)
class Ward:
    """Cases to play by the rules of a run, and what attackers know of them."""

    params: Params
    factory: ConsultationFactory
    cases: Sequence[Case]
    clinic: GenerativeClinic | None  # whose cases these are; None: imported
    others: frozenset[str]  # names of diseases that a patient of an imported case may not say
    trade: Trade
    likely: Sequence[str]  # what the opening of each case suggests
    index: Path | None  # of the knowledge base; None: the literal library

    @cached_property
    def budget(self) -> int:
        """Doctor turns of a consultation."""
        return largest_turn_budget(self.params.consultation)

    @cached_property
    def library(self) -> Reader:
        """What is looked up; a word or a mark is a token, in Chinese a character."""
        language = self.cases[0].language
        shelf = (
            self.factory.shelf
            if self.index is not None
            else Shelf(
                lambda: literal_searcher(self.trade, self.clinic, words_of(language)),
                self.params.consultation.search_results,
            )
        )
        return Reader(shelf, lambda text: len(_TOKEN.findall(text)))

    def seat(self, case: Case) -> Consultation:
        """A fresh consultation, as `doctor.environments` makes it."""
        patient = (
            ScriptedPatient(case, self.factory.matcher)
            if self.clinic is not None
            else ScriptedPatient(without_diagnosis(case), None, *self.factory.understanding())
        )
        return Consultation(case, patient, self.params.consultation, self.budget, self.library, self.others)

    def attacker(self, attack: Attack) -> Player:
        """An attack as a player."""

        def player(case: Case, place: int) -> tuple[Speak, Callable[[Event], None]]:
            rng = np.random.default_rng([self.params.seed, place])
            neighbour = self.cases[(place + 1) % len(self.cases)]

            def speak(heard: Sequence[str], turn: int) -> str:
                return attack(
                    Seat(
                        heard=tuple(heard),
                        turn=turn,
                        budget=self.budget,
                        trade=self.trade,
                        neighbour=(neighbour.diagnosis, neighbour.recommendation),
                        likely=self.likely[place],
                        language=case.language,
                        rng=rng,
                    )
                )

            return speak, lambda _: None

        return player


@dataclass(frozen=True)
class Played:
    """One consultation."""

    case: Case
    events: Sequence[Event]
    stop_reason: str
    messages: Sequence[Message]


def on_starter(params: Params, count: int, presets: Sequence[str], index: Path | None = None) -> Earnings:
    """What everybody earns on drawn cases of the starter clinic; `index` is the knowledge base that is searched, None
    the literal library.
    """
    ward = starter_ward(params, count, index)
    return _earnings(ward, _by_bayes(ward, ward.factory.clinic), presets)


def starter_ward(params: Params, count: int, index: Path | None = None) -> Ward:
    """The drawn cases of `on_starter`, to be played."""
    factory = open_factory(params, index or ROOT / "data/kb_index")
    clinic = factory.clinic
    cases = list(draw_cases(clinic, count, params.patient_cases.starter.seed, params.patient_cases.split))
    return Ward(
        params=params,
        factory=factory,
        cases=_with_personas(cases, params),
        clinic=clinic,
        others=frozenset(),
        trade=trade_of(clinic),
        likely=[_suggested(clinic, case) for case in cases],
        index=index,
    )


def _suggested(clinic: GenerativeClinic, case: Case) -> str:
    """What Bayes makes of the opening words alone."""
    opening = [clinic.finding_index[topic] for topic in case.opening]
    return clinic.conditions[int(clinic.posterior(opening, {}).argmax())].name


def _by_bayes(ward: Ward, clinic: GenerativeClinic) -> dict[str, Player]:
    """The honest doctors of a generative clinic."""

    def honest(rule: Ask) -> Player:
        def player(case: Case, place: int) -> tuple[Speak, Callable[[Event], None]]:
            rng = np.random.default_rng([ward.params.seed, place])
            return _as_player(ReferenceDoctor(clinic=clinic, case=case, ask=rule, questions=ward.budget - 1, rng=rng))

        return player

    return {WEAK: honest(at_random), STRONG: honest(greedy)}


def sources_of(params: Params) -> list[CaseSource]:
    """The imported sets of a run that are consultations with patients."""
    given = [source for source in params.patient_cases.imported if source.format != "questions"]
    return [
        source.model_copy(
            update={"path": str(ROOT / source.path), "mapping": source.mapping and str(ROOT / source.mapping)}
        )
        for source in given
    ]


def on_imported(params: Params, source: CaseSource, count: int, presets: Sequence[str]) -> Earnings:
    """The same on a sample of an imported set, at most half of it; the others are what the honest doctors have seen
    before, and over which the facts are worth something.
    """
    found, _ = load_source(source, params.patient_cases.split)
    cases = _with_personas(sampled(found, min(count, len(found) // 2), params.patient_cases.split.salt), params)
    groups = {case.group_id for case in cases}
    seen = [case for case in found if case.group_id not in groups]
    clinic = load_ddxplus(Path(source.path)) if source.format in GENERATED else None
    factory = open_factory(params, ROOT / "data/kb_index")
    nearest = NearestCase(seen if clinic else with_worth(seen, seen))
    heard = [without_diagnosis(case) for case in cases]
    ward = Ward(
        params=params,
        factory=factory,
        cases=cases if clinic else with_worth(cases, seen),
        clinic=None,
        others=factory.diseases | {name for case in found for name in (case.diagnosis, *case.synonyms)},
        trade=trade_of(clinic) if clinic else trade_of_records(seen),
        likely=[_suggested(clinic, case) if clinic else name_of(nearest.like(case)) for case in heard],
        index=None,
    )
    if clinic:
        return _earnings(ward, _by_bayes(ward, clinic), presets)
    listener, fitted, questions = Listener(seen), FittedBayes(seen), ward.budget - 1
    honest: dict[str, Player] = {
        NEAREST: lambda _, place: _as_player(nearest.doctor(heard[place], questions)),
        LISTENER: lambda _, place: _as_player(listener.doctor(heard[place], questions)),
        FITTED: lambda _, place: _as_player(FittedListener(fitted, questions, report(heard[place]))),
    }
    return _earnings(ward, honest, presets)


def play(consultation: Consultation, speak: Speak, hear: Callable[[Event], None], budget: int) -> Played:
    """One consultation of a doctor, who goes on after the end as long as anybody listens."""
    messages = consultation.opening()
    heard = [messages[-1]["content"]]
    events: list[Event] = []
    stop_reason = Ending.OUT_OF_TURNS
    for turn in range(budget + AFTER_THE_END):
        said = speak(heard, turn)
        try:
            reply = at_once(consultation.step(said))
        except RuntimeError:  # nothing is revived
            break
        messages.append({"role": "assistant", "content": said})
        events.append(reply.event)
        stop_reason = reply.stop_reason or stop_reason
        if reply.text is not None:
            hear(reply.event)
            heard.append(reply.text)
            messages.append({"role": "user", "content": reply.text})
    return Played(consultation.case, events, stop_reason, messages)


def paid_attacks(table: Earnings, preset: str) -> list[str]:
    """Attacks that earn at least what the honest weak doctor earns; on imported sets, the better of the honest doctors."""
    bar = np.mean(table[_bar(table, preset)][preset])
    return [name for name, row in table.items() if name not in HONEST and np.mean(row[preset]) >= bar]


def nearest_attack(table: Earnings, preset: str) -> tuple[str, Interval]:
    """The attack that earns most, and by how much the honest doctor earns more on the same cases."""
    best = max((name for name in table if name not in HONEST), key=lambda name: float(np.mean(table[name][preset])))
    return best, mean(list(table[_bar(table, preset)][preset] - table[best][preset]))


def _with_personas(cases: Sequence[Case], params: Params) -> list[Case]:
    return [replace(case, persona=persona_of(case.case_id, params.patient_cases.personas)) for case in cases]


def _as_player(doctor: Doctor) -> tuple[Speak, Callable[[Event], None]]:
    return lambda heard, turn: doctor.turn(), doctor.hear  # noqa: ARG005  one signature


def _bar(table: Earnings, preset: str) -> str:
    """The honest doctor whom an attack must not reach."""
    honest = [WEAK] if WEAK in table else [name for name in HONEST if name in table]
    return max(honest, key=lambda name: float(np.mean(table[name][preset])))


def _earnings(ward: Ward, honest: Mapping[str, Player], presets: Sequence[str]) -> Earnings:
    clinics = [ward.factory.clinic]
    scorers = {preset: Scorer(load_reward(preset), clinics) for preset in presets}
    players = {**honest, **{name: ward.attacker(attack) for name, attack in ATTACKS.items()}}
    table = {}
    for name, player in players.items():
        played = [play(ward.seat(case), *player(case, i), ward.budget) for i, case in enumerate(ward.cases)]
        table[name] = _scored(scorers, played)
    return table


def _scored(scorers: Mapping[str, Scorer], played: Sequence[Played]) -> dict[str, Array]:
    judged = any(scorer.preset.opinion for scorer in scorers.values())
    opinions = [_opinion(one) if judged else {} for one in played]

    def reward(scorer: Scorer, one: Played, opinion: Mapping[str, float]) -> float:
        turns = scorer.score(one.case, one.events, one.stop_reason, opinion)
        return sum(sum(turn.values()) for turn in turns)

    return {
        preset: np.array([reward(scorer, *pair) for pair in zip(played, opinions, strict=True)])
        for preset, scorer in scorers.items()
    }


def _opinion(one: Played) -> Mapping[str, float]:
    last = final_diagnosis(one.events)
    said = (last.diagnosis, last.recommendation) if last else ("", "")
    return (
        at_once(judge(literal_judge, consultation_subject(one.case, one.messages, *said, one.events), tuple(CRITERIA)))
        or {}
    )
