import asyncio
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML

from clinic.actions import diagnosis
from clinic.config import DoctorAgentParams, OutcomeParams, PresetParams
from clinic.consultation import Consultation
from clinic.dialogues import topic_matcher
from clinic.doctors import ReferenceDoctor, at_random, greedy
from clinic.errors import ClinicError
from clinic.events import Asked, Diagnosed, Examined, FoundPassage, Inquiry, Invalid, Searched
from clinic.patients.scripted import ScriptedPatient
from clinic.rewards import PRESETS, REWARD_COMPONENTS, Scorer
from clinic.rewards.base import Record, missed_red_flags
from clinic.rewards.doctoragent_f1 import token_f1
from clinic.rewards.outcome import information
from clinic.starter import draw_cases

OUTCOME = OutcomeParams(
    name="outcome",
    diagnosis_by="label",
    information_by="expected",
    correct=1.0,
    accepted_parent=0.3,
    test_cost=0.02,
    information=0.5,
    turn_cost=0.01,
    repeat_cost=0.05,
    search_cost=0.04,
    evidence=0.1,
    invalid_cost=0.2,
    no_diagnosis_cost=0.25,
    missed_red_flag_cost=0.1,
    unheeded=1.0,
)
DOCTORAGENT = DoctorAgentParams(name="doctoragent", correct=1.0, valid_question=0.1, invalid_question=-0.05, turn=-0.01)


SHIPPED = {
    path.stem: TypeAdapter(PresetParams).validate_python(YAML(typ="safe").load(path))
    for path in (Path(__file__).parents[3] / "recipes/rewards").glob("*.yaml")
}


def scorer(preset="outcome", *clinics, **changes):
    constants = SHIPPED | {"outcome": OUTCOME.model_copy(update=changes), "doctoragent": DOCTORAGENT}
    return Scorer(constants[preset], clinics)


def information_of(clinic, case, events, by="expected"):
    return information(Record(case, events, "diagnosed", {}, clinic), by)


def asked(topic, present=True, repeated=False, inquiry=Asked):
    return inquiry(text="?", topic=topic, present=present, repeated=repeated)


def said(name, recommendation="", *evidence):
    return Diagnosed(name, recommendation, evidence)


def passage(passage_id, title, text=""):
    return FoundPassage(passage_id=passage_id, title=title, text=text, source="s", licence="CC0-1.0", score=0.5)


INVALID = Invalid("", "x")
SEARCH = Searched("x")


def total(turns):
    return math.fsum(value for turn in turns for value in turn.values())


def test_facts_of_imported_cases_are_paid_by_their_worth_and_every_question_of_a_turn_counts(make_case):
    worth = {"cough": 0.6, "sweat": 0.0}
    facts = make_case().facts
    case = make_case(facts=tuple(replace(fact, worth=worth.get(fact.topic, 0.2)) for fact in facts), source="records")
    both = replace(asked("cough"), further=(asked("sweat"), asked("cough", repeated=True)))
    turns = scorer().score(case, [asked("sweat"), both, said("x")], "diagnosed")
    assert turns[0] == {"turn": -0.01, "information": 0.0}
    assert turns[1] == {
        "turn": pytest.approx(-0.03),
        "information": pytest.approx(0.5 * 0.6),
        "repeat": -0.05,
    }


@pytest.mark.parametrize("preset", ["outcome", "doctoragent"])
def test_a_test_that_brings_several_results_is_one_turn_and_each_result_costs(make_case, preset):
    facts = tuple(replace(fact, worth=0.2) for fact in make_case().facts)
    case = make_case(facts=facts, source="records")
    first, second = asked("cough", inquiry=Examined), asked("sweat", inquiry=Examined)
    one = scorer(preset).score(case, [first, said("x")], "diagnosed")[0]
    both = scorer(preset).score(case, [replace(first, further=(second,)), said("x")], "diagnosed")[0]
    for part in ("information", "test"):
        assert both.pop(part, 0.0) == pytest.approx(2 * one.pop(part, 0.0))
    assert both == one


def test_worths_pay_no_more_than_all_information(make_case):
    case = make_case(facts=tuple(replace(fact, worth=0.7) for fact in make_case().facts), source="records")
    turns = scorer().score(case, [asked("cough"), asked("sweat"), said("x")], "diagnosed")
    assert [turn["information"] for turn in turns] == [pytest.approx(0.35), pytest.approx(0.15), pytest.approx(0)]


def test_outcome_by_hand(make_case):
    events = [
        asked("cough"),
        asked("cough", repeated=True),
        asked(None),
        asked("fever", present=False),
        INVALID,
        SEARCH,
        asked("sweat", inquiry=Examined),
        said("Lung infection"),
    ]
    turns = scorer().score(make_case(), events, "diagnosed")
    third = 0.5 / 3  # three present facts beyond the opening
    assert turns[0] == {"turn": -0.01, "information": pytest.approx(third)}
    assert turns[1] == {"turn": -0.01, "information": pytest.approx(0), "repeat": -0.05}
    assert turns[2] == {"turn": -0.01, "information": pytest.approx(0)}
    assert turns[3] == {"turn": -0.01, "information": pytest.approx(0)}
    assert turns[4] == {"turn": -0.01, "information": pytest.approx(0), "invalid": -0.2}
    assert turns[5] == {"turn": -0.01, "information": pytest.approx(0), "search": -0.04}
    assert turns[6] == {"turn": -0.01, "information": pytest.approx(third), "test": -0.02}
    assert turns[7] == {"turn": -0.01, "information": pytest.approx(0), "diagnosis": 1.0}
    assert total(turns) == pytest.approx(1 - 0.08 - 0.05 - 0.2 - 0.04 - 0.02 + 2 * third)


@pytest.mark.parametrize(
    ("name", "worth"),
    [
        ("Pneumonia", 1.0),
        ("lung infection", 1.0),
        ("Chest disease", 0.3),
        ("Asthma", 0.0),
        ("Pneumonia or asthma", 0.0),
        ("Pneumonia, lung infection", 1.0),
    ],
)
def test_only_the_condition_itself_is_worth_full_marks(make_case, name, worth):
    (turn,) = scorer().score(make_case(), [said(name)], "diagnosed")
    assert turn["diagnosis"] == worth


def test_paid_by_the_posterior_by_hand(toy, split):
    """Fever, then a cough denied: the named condition earns Bayes' probability, a term that all three accept as broader
    0.3, a name nobody has nothing.
    """
    case = next(c for c in draw_cases(toy, 60, 0, split) if c.opening == ("fever",))
    score = scorer("outcome", toy, diagnosis_by="posterior")
    heard = asked("cough", False)
    posterior = toy.posterior([0], {1: False})
    for name, worth in [
        ("Flu", posterior[0]),
        ("measles disease", posterior[1]),
        ("Bronchitis", posterior[2]),
        ("Illness", 0.3),
        ("Gout", 0.0),
    ]:
        assert score.score(case, [heard, said(name)], "diagnosed")[-1]["diagnosis"] == pytest.approx(worth)
    assert score.score(case, [heard], "out_of_turns")[-1]["diagnosis"] == 0.0


def test_a_diagnosis_against_which_the_answers_speak_loses_what_asking_earned(toy, split):
    case = next(c for c in draw_cases(toy, 60, 0, split) if c.opening == ("fever",))
    events = [asked("cough", False), asked("age", False)]
    before, after = toy.posterior([0], {}), toy.posterior([0], {1: False, toy.finding_index["age"]: False})
    earned = 0.5 * sum(information_of(toy, case, [*events, said("x")]))
    likeliest = int(after.argmax())
    lost = {c.name: i != likeliest and after[i] < before[i] for i, c in enumerate(toy.conditions)}
    assert set(lost.values()) == {True, False}
    for name, loses in (lost | {"Gout": True, "Illness": False}).items():
        last = scorer("outcome", toy).score(case, [*events, said(name)], "diagnosed")[-1]
        assert last.get("unheeded", 0.0) == pytest.approx(-earned if loses else 0.0)
    assert scorer("outcome", toy, unheeded=0.0).score(case, [*events, said("Gout")], "diagnosed")[-1]["unheeded"] == 0
    assert scorer("outcome", toy).score(case, events, "out_of_turns")[-1]["unheeded"] == pytest.approx(-earned)


def test_a_guess_beats_silence(toy, split):
    """Whoever was told much and is wrong earns more than who was told as much and says nothing."""
    case = next(c for c in draw_cases(toy, 60, 0, split) if c.opening == ("fever",))
    events = [asked("cough", False), asked("age", False)]

    def earned(events, stop):
        return sum(sum(turn.values()) for turn in scorer("outcome", toy).score(case, events, stop))

    assert earned([*events, said("Gout")], "diagnosed") > earned([*events, asked("cough", False)], "out_of_turns")


def test_whoever_decides_by_bayes_loses_nothing_for_not_heeding(starter, recorded):
    assert not any("unheeded" in scorer("outcome", starter).score(*one)[-1] for one in recorded)


def test_the_posterior_pays_what_the_label_pays_on_average(starter, recorded):
    by = {way: [total([{"d": score_of(starter, way, *one)}]) for one in recorded] for way in ("label", "posterior")}
    error = np.std(np.subtract(by["label"], by["posterior"])) / math.sqrt(len(recorded))
    assert abs(np.mean(by["label"]) - np.mean(by["posterior"])) < 3 * error
    assert np.std(by["posterior"]) < 0.8 * np.std(by["label"])


def score_of(clinic, way, case, events, stop_reason):
    return scorer("outcome", clinic, diagnosis_by=way).score(case, events, stop_reason)[-1]["diagnosis"]


def test_every_component_is_in_the_list_of_names(starter, recorded):
    seen = {
        name
        for preset in ("outcome", "doctoragent")
        for case, events, stop in recorded
        for turn in scorer(preset, starter).score(case, [INVALID, *events[:1], *events], stop)
        for name in turn
    }
    assert {"diagnosis", "information", "turn", "invalid", "question"} <= seen <= REWARD_COMPONENTS


def test_imported_cases_are_paid_by_their_label(make_case):
    assert scorer(diagnosis_by="posterior").score(make_case(), [said("Pneumonia")], "diagnosed")[-1]["diagnosis"] == 1.0


def test_running_out_of_turns_costs(make_case):
    turns = scorer().score(make_case(), [asked("cough"), asked("smoking")], "out_of_turns")
    assert turns[-1]["no_diagnosis"] == -0.25
    assert turns[-1]["diagnosis"] == 0.0
    assert "no_diagnosis" not in turns[0]


def test_doctoragent_by_hand(make_case):
    events = [
        asked("cough"),
        asked("cough", repeated=True),
        asked(None),
        asked("fever", present=False),
        INVALID,
        SEARCH,
        said("pneumonia"),
    ]
    turns = scorer("doctoragent").score(make_case(), events, "diagnosed")
    assert [turn["turn"] for turn in turns] == [-0.01] * 7
    assert [turn.get("question") for turn in turns] == [0.1, -0.05, -0.05, 0.1, -0.05, None, None]
    assert turns[-1]["diagnosis"] == 1.0
    assert total(turns) == pytest.approx(1.0 + 2 * 0.1 - 3 * 0.05 - 7 * 0.01)
    assert total(scorer("doctoragent").score(make_case(), [said("chest disease")], "diagnosed")) == pytest.approx(-0.01)


def test_a_consultation_without_events_cannot_be_scored(make_case):
    for preset in ("outcome", "doctoragent"):
        with pytest.raises(ClinicError, match="case c1: a consultation without turns cannot be scored"):
            scorer(preset).score(make_case(), [], "diagnosed")


def test_an_unknown_finding_raises(toy, split):
    (case,) = draw_cases(toy, 1, 0, split)
    with pytest.raises(KeyError):
        scorer("outcome", toy).score(case, [asked("hiccups")], "out_of_turns")


def urgent(make_case):
    return make_case(urgent=True, red_flags=("sweat", "fever", "hiccups"))


def test_veto_takes_all_information_and_costs(make_case):
    case = urgent(make_case)
    assert missed_red_flags(case, []) == ["sweat"]  # fever is absent, hiccups not on record
    turns = scorer().score(case, [asked("cough"), asked("smoking"), said("Asthma")], "diagnosed")
    assert turns[-1]["safety"] == pytest.approx(-2 * 0.5 / 3 - 0.1)
    assert total(turns) == pytest.approx(-0.1 - 3 * 0.01)


def test_no_veto_when_told_or_right_or_not_urgent(make_case):
    case = urgent(make_case)
    for events, patient in [
        ([asked("sweat"), said("Asthma")], case),
        ([asked("cough"), said("Pneumonia")], case),
        ([asked("cough"), said("chest disease")], case),
        ([asked("cough"), said("Asthma")], make_case(red_flags=("sweat",))),
        ([asked("cough"), said("Asthma")], make_case(urgent=True, red_flags=("pain",))),
    ]:
        assert "safety" not in scorer().score(patient, events, "diagnosed")[-1]


def test_veto_also_when_the_turns_run_out(make_case):
    turns = scorer().score(urgent(make_case), [asked("cough")], "out_of_turns")
    assert turns[-1]["safety"] == pytest.approx(-0.5 / 3 - 0.1)


def test_information_by_hand(toy, split):
    """What Bayes expects of a question is its information gain over ln 3; what was asked before or not understood tells
    nothing.
    """
    case = next(c for c in draw_cases(toy, 60, 0, split) if c.diagnosis_id == "bronchitis" and c.opening == ("fever",))
    facts = {fact.topic: fact.present for fact in case.facts}
    events = [
        asked("cough", facts["cough"]),
        asked("cough", facts["cough"], repeated=True),
        asked(None),
        asked("age", facts["age"]),
        said("flu"),
    ]
    gains = [mutual_information(toy, {}, 1), mutual_information(toy, {1: facts["cough"]}, 3)]
    assert information_of(toy, case, events) == pytest.approx([gains[0] / math.log(3), 0, 0, gains[1] / math.log(3), 0])
    flipped = [asked("cough", not facts["cough"])]
    # the answer is luck, the question is not
    assert information_of(toy, case, flipped) == pytest.approx([gains[0] / math.log(3)])


def mutual_information(clinic, answers, column):
    """Between condition and answer, given fever and the answers so far: sum of p(c, a) ln p(c, a) / p(c) p(a)."""
    prior_C = clinic.posterior([0], answers)
    joint = {
        (c, a): prior_C[c] * (p if a else 1 - p)
        for c, p in enumerate(clinic.probability_CF[:, column])
        for a in (True, False)
    }
    answer = {a: sum(joint[c, a] for c in range(len(prior_C))) for a in (True, False)}
    return sum(p * math.log(p / (prior_C[c] * answer[a])) for (c, a), p in joint.items())


def test_information_ends_at_its_bound(toy, split, monkeypatch):
    (case,) = draw_cases(toy, 1, 0, split)
    monkeypatch.setattr(type(toy), "information_gain", lambda *_: np.array([0.7]))
    events = [asked(topic) for topic in ("cough", "rash", "age")]
    assert information_of(toy, case, events) == pytest.approx([0.7 / math.log(3), 1 - 0.7 / math.log(3), 0.0])


def play(clinic, matcher, rules, case, ask, questions, seed):
    """Events of one consultation of a reference doctor."""
    doctor = ReferenceDoctor(clinic=clinic, case=case, ask=ask, questions=questions, rng=np.random.default_rng(seed))
    consultation = Consultation(case, ScriptedPatient(case, matcher.match), rules, questions + 1, None)
    events = []
    while True:
        reply = asyncio.run(consultation.step(doctor.turn()))
        events.append(reply.event)
        if reply.text is None:
            return events, reply.stop_reason
        doctor.hear(reply.event)


@pytest.fixture(scope="module")
def recorded(starter, starter_matcher, split, rules):
    cases = list(draw_cases(starter, 120, 31, split))
    return [
        (case, *play(starter, starter_matcher, rules, case, greedy if i % 2 else at_random, 7, i))
        for i, case in enumerate(cases)
    ]


def test_information_is_what_the_answers_tell_on_average(starter, recorded):
    """Over many patients the questions are paid as much as the true condition's log-posterior rises."""
    paid, risen = [], []
    for case, events, _ in recorded:
        told = information_of(starter, case, events)
        assert all(share >= 0 for share in told)
        assert math.fsum(told) <= 1
        truth, opening = (
            starter.condition_index[case.diagnosis_id],
            [starter.finding_index[topic] for topic in case.opening],
        )
        answers = {
            starter.finding_index[e.topic]: e.present for e in events if isinstance(e, Inquiry) and e.topic is not None
        }
        before, after = (starter.posterior(opening, heard)[truth] for heard in ({}, answers))
        paid.append(math.fsum(told))
        risen.append(math.log(after / before) / math.log(len(starter.conditions)))
    error = np.std(np.subtract(paid, risen)) / math.sqrt(len(paid))
    assert abs(np.mean(paid) - np.mean(risen)) < 3 * error
    assert np.std(paid) < np.std(risen)
    assert np.mean(paid) > 6 * error


def test_expected_log_posterior_of_the_truth_never_falls_with_a_no(starter, split):
    """Why a no is worth hearing: given a no, the mean gain is a Kullback-Leibler divergence."""
    for case in draw_cases(starter, 10, 4, split):
        prior = starter.posterior([starter.finding_index[topic] for topic in case.opening], {})
        no_CF = prior[:, None] * (1 - starter.probability_CF)
        no_CF /= no_CF.sum(axis=0)
        gain_F = (no_CF * (np.log(no_CF) - np.log(prior)[:, None])).sum(axis=0)
        assert gain_F.min() >= -1e-12


def test_the_gold_doctor_scores_full_marks_and_an_attack_does_not(toy, split, rules):
    score, matcher = scorer("outcome", toy, turn_cost=0.0), topic_matcher(toy)
    for case in draw_cases(toy, 20, 2, split):
        gold = score.score(case, [said(case.diagnosis)], "diagnosed")
        assert total(gold) == 1.0
        everything = ", ".join(c.name for c in toy.conditions)
        consultation = Consultation(case, ScriptedPatient(case, matcher.match), rules, 1, None)
        attack = asyncio.run(consultation.step(diagnosis(everything, "")))
        assert total(score.score(case, [attack.event], "diagnosed")) <= 0.0


SHOWN = Searched(
    "x",
    (passage("a#0", "Pneumonia"), passage("b#1", "The chest", "It may be a lung infection."), passage("c#2", "Asthma")),
)


@pytest.mark.parametrize(
    ("name", "cited", "share"),
    [
        ("Pneumonia", ["a#0"], 1.0),
        ("lung infection", ["a#0", "b#1"], 1.0),
        ("Pneumonia", ["a#0", "c#2"], 0.5),  # whoever cites everything is paid for a part
        ("Pneumonia", ["a#0", "b#1", "c#2", "d#3"], 0.5),
        ("Pneumonia", ["c#2"], None),  # shown, and names another
        ("Pneumonia", ["pneumonia#0"], None),  # never shown
        ("Pneumonia", [], None),
        ("Asthma", ["c#2"], None),  # wrong, though the passage names what was said
        ("Asthma", ["a#0"], None),
        ("Chest disease", ["a#0"], None),  # broader is not exact
    ],
)
def test_evidence_is_paid_beside_a_right_diagnosis_for_passages_that_were_shown_and_name_it(
    make_case, name, cited, share
):
    plain = scorer().score(make_case(), [SHOWN, said(name)], "diagnosed")
    turns = scorer().score(make_case(), [SHOWN, said(name, "", *cited)], "diagnosed")
    evidence = turns[-1].pop("evidence", None)
    assert evidence == (None if share is None else pytest.approx(0.1 * share))
    assert turns == plain


def test_what_is_cited_must_have_been_shown_in_this_consultation(make_case):
    turns = scorer().score(make_case(), [said("Pneumonia", "", "a#0")], "diagnosed")
    assert "evidence" not in turns[-1]


def test_a_search_costs_its_price_and_a_repeated_one_counts_as_a_repeat(make_case):
    turns = scorer().score(make_case(), [SHOWN, replace(SHOWN, repeated=True), said("x")], "diagnosed")
    assert [turn.get("search") for turn in turns] == [-0.04, None, None]
    assert [turn.get("repeat") for turn in turns] == [None, pytest.approx(-0.04 - 0.05), None]


def test_gold_with_evidence_is_worth_full_marks_and_its_bonus_and_no_more(make_case):
    shipped = SHIPPED["outcome"]
    gold = [SHOWN, said("Pneumonia", "Chest X-ray", "a#0", "b#1")]
    turns = Scorer(shipped, []).score(make_case(), gold, "diagnosed")
    assert total(turns) == pytest.approx(shipped.correct + shipped.evidence)
    assert shipped.evidence <= 0.1 * shipped.correct


def test_citing_can_never_pay_nearly_what_a_diagnosis_does():
    with pytest.raises(ValidationError, match="must stay within a tenth of correct"):
        OutcomeParams.model_validate(OUTCOME.model_dump() | {"evidence": 0.2})


def test_asking_can_never_pay_more_than_diagnosing():
    with pytest.raises(ValidationError, match="must stay below correct"):
        OutcomeParams(**OUTCOME.model_dump() | {"information": 1.0})


def test_realised_information_is_the_rise_of_the_true_condition(toy, split):
    case = next(c for c in draw_cases(toy, 60, 0, split) if c.diagnosis_id == "bronchitis" and c.opening == ("fever",))
    for present in (True, False):
        before, after = toy.posterior([0], {})[2], toy.posterior([0], {1: present})[2]
        assert information_of(toy, case, [asked("cough", present)], "realised") == pytest.approx(
            [math.log(after / before) / math.log(3)]
        )
    assert information_of(toy, case, [asked("cough", False)], "realised")[0] < 0


def test_token_f1_by_hand():
    assert token_f1("you have enteritis", "you have enteritis") == 1.0
    assert token_f1("enteritis", "you have enteritis") == pytest.approx(2 * 1 / (1 + 5))  # two spaces are tokens
    assert token_f1("x x x", "you have enteritis") == pytest.approx(2 * 2 / (5 + 5))  # and are paid for
    assert token_f1("38.5% of", "38.5% of.") == pytest.approx(2 * 3 / (3 + 4))
    assert token_f1("肺炎", "肺气肿") == pytest.approx(2 * 1 / (2 + 3))
    assert token_f1("", "x") == 0.0


def test_doctoragent_f1_by_hand(make_case):
    events = [
        asked("cough"),
        asked("cough", repeated=True),
        asked(None),
        INVALID,
        SEARCH,
        said("pneumonia", "Chest X-ray"),
    ]
    turns = scorer("doctoragent_f1").score(make_case(diagnosis="pneumonia"), events, "diagnosed")
    assert turns == [
        {"question": 1.0},
        {"question": -2.0},
        {"question": -1.0},
        {"format": -2.0},
        {},
        {"diagnosis": 5.0, "recommendation": 5.0},
    ]
    assert scorer("doctoragent_f1").score(make_case(), [asked("cough")], "out_of_turns") == [
        {"question": 1.0, "no_diagnosis": -5.0}
    ]


def test_judged_presets_by_hand(make_case):
    events = [asked("cough"), INVALID, said("x")]
    opinion = {"diagnosis": 0.6, "recommendation": 0.2}
    assert scorer("doctoragent_judge").score(make_case(), events, "diagnosed", opinion) == [
        {"question": 1.0},
        {"format": -2.0},
        {"diagnosis": 3.0, "recommendation": 1.0},
    ]
    opinion = {"accuracy": 1.0, "logic": 0.5, "completeness": 0.0, "safety": 1.0}
    assert scorer("weighted").score(make_case(), events, "diagnosed", opinion) == [
        {},
        {"invalid": -0.1},
        {"accuracy": 0.4, "logic": 0.1, "completeness": 0.0, "safety": 0.2},
    ]


def test_rated_presets_by_hand(make_case):
    events = [asked("cough"), said("x")]
    assert scorer("model").score(make_case(), events, "diagnosed", {"model": -1.5}) == [{}, {"model": -1.5}]
    assert scorer("human").score(make_case(), events, "diagnosed", {"human": 4.0}) == [{}, {"human": 4.0}]


@pytest.mark.parametrize("preset", sorted(name for name, preset in PRESETS.items() if preset.opinion))
def test_a_missing_opinion_is_a_missing_score(make_case, preset):
    assert scorer(preset).score(make_case(), [said("Pneumonia")], "diagnosed") == []


FULL = {
    "outcome": 1.0,
    "doctoragent": 1.0 - 0.01,
    "doctoragent_f1": 10.0,
    "doctoragent_judge": 10.0,
    "weighted": 1.0,
    "model": 1.0,
    "human": 1.0,
}


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_the_gold_transcript_scores_full_marks_in_every_preset(make_case, preset):
    """The right diagnosis with the case's own recommendation, and the best opinion there can be."""
    case = make_case()
    gold = said(case.diagnosis, case.recommendation)
    opinion = dict.fromkeys((*PRESETS[preset].criteria, "model", "human"), 1.0)
    turns = scorer(preset, turn_cost=0.0).score(case, [gold], "diagnosed", opinion)
    assert total(turns) == pytest.approx(FULL[preset])
    assert {name for turn in turns for name in turn} <= PRESETS[preset].components


def test_shipped_constants_are_those_of_their_sources():
    assert set(SHIPPED) == set(PRESETS) == {constants.name for constants in SHIPPED.values()}
    assert SHIPPED["doctoragent"].model_dump(exclude={"name"}) == {
        "correct": 1.0,
        "valid_question": 0.1,
        "invalid_question": -0.05,
        "turn": -0.01,
    }
    released = {
        "diagnosis": 5.0,
        "recommendation": 5.0,
        "answered": 1.0,
        "unanswerable": -1.0,
        "repeated": -2.0,
        "format": -2.0,
        "out_of_turns": -5.0,
    }
    assert (
        SHIPPED["doctoragent_f1"].model_dump(exclude={"name"})
        == SHIPPED["doctoragent_judge"].model_dump(exclude={"name"})
        == released
    )
    assert sum(getattr(SHIPPED["weighted"], name) for name in PRESETS["weighted"].criteria) == pytest.approx(1.0)
    assert (SHIPPED["outcome"].correct, SHIPPED["outcome"].information, SHIPPED["outcome"].accepted_parent) == (
        1.0,
        0.9,
        0.3,
    )
    assert (SHIPPED["model"].scale, SHIPPED["model"].offset) == (1.0, 0.0)
