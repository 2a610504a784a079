"""No attack on the reward may pay; and the reward that is farmed must be seen to be."""

import json
from dataclasses import replace

import numpy as np
import pytest

from clinic.attacks import ATTACKS
from clinic.attacks.base import Seat, Trade
from clinic.cases import Fact
from clinic.config import CaseSource
from clinic.consultation import privileged
from clinic.events import Inquiry, one_by_one, told_topics
from clinic.language import PHRASES
from clinic.starter import draw_cases, load_starter
from doctor.attacks import (
    FITTED,
    LISTENER,
    NEAREST,
    STRONG,
    WEAK,
    nearest_attack,
    on_imported,
    on_starter,
    paid_attacks,
    play,
    sources_of,
    starter_ward,
)
from doctor.parameters import ROOT, load_params
from doctor.trades import trade_of, trade_of_records

CASES = ROOT.parent / "shared/data/cases"
REAL = {"mtmeddialog_cases": ("mtmeddialog_sft_cases.jsonl.gz", 200), "agentclinic": ("agentclinic_medqa.jsonl", 60)}
DEAF = {"deaf_list", "deaf_routine"}
DEMANDED = DEAF | {
    "keyword_heap",
    "stock_vital_signs",
    "ten_findings_in_one",
    "fixed_list",
    "other_language",
    "answer_words",
    "name_probing",
}


def in_language(code):
    params = load_params()
    starter = params.patient_cases.starter.model_copy(update={"language": code})
    return params.model_copy(update={"patient_cases": params.patient_cases.model_copy(update={"starter": starter})})


def source(name, path, **more):
    return CaseSource.model_validate({"format": name, "path": str(path), "cases": 0, "licence": "-", **more})


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """The Chinese starter clinic as a set of records: each answer under the question that asks for it."""
    folder = tmp_path_factory.mktemp("records")
    params = load_params()
    clinic = load_starter(ROOT / "data/starter", 0.8, "zh")
    asked = {finding.finding_id: finding.doctor.train[0] for finding in clinic.findings}
    rows = [
        {
            "opening": case.self_report,
            "diagnosis": case.diagnosis,
            "recommendation": case.recommendation,
            "facts": [
                {"topic": asked[fact.topic], "present": fact.present, "text": fact.text}
                for fact in case.facts
                if fact.topic not in case.opening and (fact.present or len(fact.text) % 3 == 0)
            ],
        }
        for case in draw_cases(clinic, 240, 5, params.patient_cases.split)
    ]
    (folder / "cases.jsonl").write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    mapping = folder / "mapping.yaml"
    mapping.write_text(
        "name: records\nopening: opening\nfacts: [facts]\ndiagnosis: diagnosis\nrecommendation: recommendation\n"
    )
    return source("own", folder / "cases.jsonl", mapping=str(mapping), language="zh")


def test_there_are_attacks_enough():
    assert len(ATTACKS) >= 40
    assert set(ATTACKS) >= DEMANDED


@pytest.mark.parametrize("code", PHRASES)
def test_every_attack_speaks_the_language_of_the_case(code):
    clinic = load_starter(ROOT / "data/starter", 0.8, code)
    trade = trade_of(clinic)
    strange = {"other_language", "noise", "digits_in_reasoning"}
    for name, attack in ATTACKS.items():
        seats = [
            Seat(
                heard=("x",) * (turn + 1),
                turn=turn,
                budget=8,
                trade=trade,
                neighbour=("a", "b"),
                likely="c",
                language=code,
                rng=np.random.default_rng(0),
            )
            for turn in (0, 6, 7)
        ]
        said = [attack(seat) for seat in seats]
        foreign = PHRASES["zh" if code == "en" else "en"]
        if name not in strange:
            assert not any(
                word in turn for turn in said for word in (foreign.question, foreign.test, foreign.diagnosis)
            )


@pytest.mark.parametrize(
    ("code", "count"),
    [
        pytest.param("en", 200, marks=[pytest.mark.slow, pytest.mark.course]),
        ("en", 20),
        pytest.param("zh", 40, marks=pytest.mark.slow),
    ],
)
def test_no_attack_earns_what_an_honest_weak_doctor_earns_on_the_starter_clinic(code, count):
    table = on_starter(in_language(code), count, ["outcome"])
    lucky = DEAF if count < 200 else set()  # few guesses may all be good ones
    assert set(paid_attacks(table, "outcome")) <= lucky
    assert set(ATTACKS) <= set(table)
    assert table[STRONG]["outcome"].mean() > table[WEAK]["outcome"].mean() + 0.2


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("mtmeddialog_cases", marks=pytest.mark.course), "agentclinic"])
def test_real_cases_pay_honesty_under_outcome_and_attacks_under_token_f1(name: str):
    file, count = REAL[name]
    if not (CASES / file).exists():
        pytest.skip(f"{file} is not beside this checkout")
    table = on_imported(load_params(), source(name, CASES / file), count, ["outcome", "doctoragent_f1"])
    assert paid_attacks(table, "outcome") == []
    assert "constant_answer" in paid_attacks(table, "doctoragent_f1")
    assert table["gibberish"]["doctoragent_f1"].mean() > table[NEAREST]["doctoragent_f1"].mean()


@pytest.mark.slow
def test_records_in_chinese_pay_honesty_under_outcome_and_are_judged(records):
    table = on_imported(load_params(), records, 40, ["outcome", "doctoragent_judge", "weighted"])
    assert paid_attacks(table, "outcome") == []
    assert {len(rewards) for row in table.values() for rewards in row.values()} == {40}
    assert table[FITTED]["outcome"].mean() > table["fixed_list"]["outcome"].mean() + 0.1
    assert table["noise"]["weighted"].mean() < 0 < table[LISTENER]["weighted"].mean()


@pytest.mark.slow
def test_a_drawn_source_has_doctors_who_know_its_probabilities():
    file = CASES / "ddxplus/conditions_en.jsonl"
    if not file.exists():
        pytest.skip("DDXPlus is not beside this checkout")
    table = on_imported(load_params(), source("ddxplus", file).model_copy(update={"cases": 12}), 6, ["outcome"])
    assert {WEAK, STRONG, *ATTACKS} == set(table)
    assert table[STRONG]["outcome"].mean() > 0


@pytest.mark.parametrize("code", ["en", pytest.param("zh", marks=pytest.mark.slow)])
def test_no_privileged_fields(code):
    """Whatever an attacker says, it hears no finding of the chart that it did not ask for, and never the diagnosis."""
    ward = starter_ward(in_language(code), 5)
    told_of = 0
    for name, attack in ATTACKS.items():
        for place, case in enumerate(ward.cases):
            played = play(ward.seat(case), *ward.attacker(attack)(case, place), ward.budget)
            asked = [event for event in one_by_one(played.events) if isinstance(event, Inquiry)]
            heard = " ".join([case.self_report, *(event.reply for event in asked)])
            fair = {*case.opening, *told_topics(played.events)}
            unasked = [fact.text for fact in case.facts if fact.present and fact.topic not in fair]
            assert not [text for text in unasked if text in heard], name
            assert not [label for label in (case.diagnosis, *case.synonyms) if label in heard], name
            told_of += len(told_topics(played.events))
    assert told_of > 100


def test_the_chart_that_a_teacher_reads_would_be_seen():
    (case, *_) = starter_ward(in_language("en"), 1).cases
    chart = privileged(case)["chart"]["facts_and_diagnosis"]
    assert case.diagnosis in chart
    assert all(fact.text in chart for fact in case.facts if fact.present)


def test_every_source_of_the_run_is_attacked_but_single_questions():
    params = load_params()
    given = (source("questions", "q.jsonl"), source("ddxplus", "d.jsonl"), source("own", "o.csv", mapping="m.yaml"))
    cases = params.patient_cases.model_copy(update={"imported": given})
    found = sources_of(params.model_copy(update={"patient_cases": cases}))
    assert [(one.path, one.mapping) for one in found] == [
        (str(ROOT / "d.jsonl"), None),
        (str(ROOT / "o.csv"), str(ROOT / "m.yaml")),
    ]


def test_a_paid_attack_would_be_seen():
    table = {
        WEAK: {"outcome": np.array([0.3, 0.5])},
        STRONG: {"outcome": np.array([0.9, 0.9])},
        "early_quit": {"outcome": np.array([0.4, 0.4])},
        "noise": {"outcome": np.array([0.3, 0.4])},
    }
    assert paid_attacks(table, "outcome") == ["early_quit"]
    best, less = nearest_attack(table, "outcome")
    assert (best, less.mean) == ("early_quit", 0.0)
    assert less.low < 0 < less.high


def test_on_records_the_best_of_the_honest_doctors_counts():
    table = {
        name: {"outcome": np.array([value])}
        for name, value in {NEAREST: 0.1, LISTENER: 0.3, FITTED: 0.2, "low": 0.29, "high": 0.3}.items()
    }
    assert paid_attacks(table, "outcome") == ["high"]


def test_what_a_trade_knows_of_records():
    clinic = load_starter(ROOT / "data/starter", 0.8, "en")
    (drawn,) = draw_cases(clinic, 1, 0, load_params().patient_cases.split)

    def case(i, *questions):
        facts = tuple(Fact(topic, True, f"{topic.rstrip('?')} {i}") for topic in questions)
        return replace(drawn, case_id=str(i), facts=facts, opening=(), synonyms=(), diagnosis=f"D{i % 2}")

    seen = [case(i, "Is it red?", f"Does finger {i} hurt?") for i in range(5)]
    trade = trade_of_records(seen)
    assert isinstance(trade, Trade)
    assert list(trade.names) == ["D0", "D1"]
    assert trade.routine[0] == trade.best[0] == "<answer>Question: Is it red?</answer>"
    assert "Does finger 3 hurt?" in trade.questions
