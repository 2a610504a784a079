"""Reference doctors fitted on training cases: on patients whose probabilities are known, and on imported ones."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clinic.actions import Kind, parse
from clinic.cases import Fact
from clinic.config import CaseSource, SplitParams
from clinic.consultation import Consultation, at_once
from clinic.diagnoses import relation
from clinic.events import Asked, Diagnosed
from clinic.experienced import inquiry, name_of
from clinic.fitted import Commonest, FittedBayes, FittedDoctor, chart, commonest, report, said
from clinic.language import phrases
from clinic.loaders import load_source
from clinic.patients.scripted import ScriptedPatient

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "cases"
HEADINGS = ("How is your knee?", "How is your skin?", "How is your ear?")
SIGNS = {"gout": "swollen and red", "scabies": "itching at night", "otitis": "painful and running"}


@pytest.fixture
def told(make_case):
    """A patient with one telling fact, under a heading of its disease; the others are normal."""

    def build(disease: str, i: int = 0, report: str = "I feel unwell"):
        facts = tuple(
            Fact(heading, True, sign if disease == name else "fine as ever")
            for heading, (name, sign) in zip(HEADINGS, SIGNS.items(), strict=True)
        )
        given = {"diagnosis": disease, "diagnosis_id": disease, "synonyms": (), "parents": (), "opening": ()}
        return make_case(case_id=f"{disease}-{i}", source="records", self_report=report, facts=facts, **given)

    return build


@pytest.fixture
def seen(told):
    return [told(name, i) for name, count in (("gout", 6), ("scabies", 4), ("otitis", 3)) for i in range(count)]


def events_of(case, doctor, rules):
    consultation = Consultation(case, ScriptedPatient(case, None), rules, rules.turn_budget, None)
    events = []
    while True:
        reply = at_once(consultation.step(doctor.turn()))
        events.append(reply.event)
        if reply.text is None:
            return events
        doctor.hear(reply.event)


def test_without_a_word_it_names_the_commonest_diagnosis(seen):
    fitted = FittedBayes(seen)
    assert fitted.count_C.tolist() == [6, 4, 3]
    assert (
        FittedDoctor(fitted, 0, ()).ranking() == Commonest(commonest(seen)).ranking() == ["gout", "scabies", "otitis"]
    )
    assert "gout" in Commonest(commonest(seen)).turn()
    assert fitted.posterior(()).tolist() == pytest.approx([6 / 13, 4 / 13, 3 / 13])


def test_what_is_told_decides(seen, told):
    fitted = FittedBayes(seen)
    for disease in SIGNS:
        assert FittedDoctor(fitted, 0, chart(told(disease, 99))).ranking()[0] == disease


def test_a_question_is_worth_what_its_answers_tell(seen):
    """Every answer under a heading that is the same for all is worth nothing."""
    same = [replace(case, facts=(*case.facts, Fact("How old are you?", True, "old enough"))) for case in seen]
    fitted = FittedBayes(same)
    worth = dict(zip(fitted.headings, fitted.worth(fitted.posterior(())), strict=True))
    assert worth["How old are you?"] == pytest.approx(0.0, abs=0.02)
    assert min(worth[heading] for heading in HEADINGS) > 0.05


def test_it_asks_in_the_words_of_the_record_hears_and_names_what_it_heard(seen, told, rules):
    fitted = FittedBayes(seen)
    for disease in SIGNS:
        case = told(disease, 99)
        events = events_of(case, FittedDoctor(fitted, 3, report(case)), rules)
        assert [event.topic for event in events[:-1] if isinstance(event, Asked)]
        assert len({event.text for event in events[:-1]}) == 3
        assert isinstance(events[-1], Diagnosed)
        assert events[-1].diagnosis == disease


def test_it_asks_nothing_that_the_opening_told_and_stops_when_all_is_asked(seen, told, rules):
    doctor = FittedDoctor(FittedBayes(seen), 7, (), opening=HEADINGS[:2])
    events = events_of(told("gout"), doctor, rules)
    assert [event.text for event in events[:-1]] == [HEADINGS[2]]


def test_what_a_patient_does_not_have_is_another_word():
    assert said("night cough", present=False).isdisjoint(said("night cough"))


def test_chinese_is_heard_by_its_characters(told, rules):
    """Records in Chinese: the same word in another place of the sentence counts."""
    texts = {"痛风": "膝盖又红又肿", "疥疮": "夜里皮肤很痒", "中耳炎": "耳朵流脓"}
    seen = [
        replace(told(name, i), self_report="不舒服", language="zh", facts=(Fact("怎么不舒服？", True, text),))
        for name, text in texts.items()
        for i in range(3)
    ]
    stranger = replace(seen[3], case_id="new", facts=(Fact("怎么不舒服？", True, "皮肤夜里痒"),))
    events = events_of(stranger, FittedDoctor(FittedBayes(seen), 1, report(stranger)), rules)
    assert events[0].topic == "怎么不舒服？"
    assert events[-1].diagnosis == "疥疮"


def test_the_diagnosis_is_never_read_from_the_patients_own_words(told):
    assert "gout" not in report(told("gout", report="I think it is gout"))
    case = told("gout")
    assert "gout" not in chart(replace(case, facts=(Fact("Told", True, "They said gout"),)))


@pytest.mark.parametrize(
    ("heading", "kind", "asked"),
    [
        ("How long?", Kind.QUESTION, "How long?"),
        ("Vital Signs: Pulse", Kind.TEST, "Vital Signs: Pulse"),
        ("Pain? Fever?", Kind.QUESTION, "Pain Fever?"),
        ("哪里痛？", Kind.QUESTION, "哪里痛?"),
    ],
)
def test_a_heading_is_asked_with_one_question_mark_or_ordered(heading, kind, asked):
    action = parse(inquiry(Fact(heading, True, "so and so"), phrases("en")))
    assert (action.kind, action.text) == (kind, asked)


def test_a_heading_that_is_a_code_is_asked_in_words():
    action = parse(inquiry(Fact("E_53", True, "I have pain somewhere"), phrases("en")))
    assert (action.kind, action.text) == (Kind.QUESTION, "Do you have this: I have pain somewhere?")


def exact(case, name):
    return relation(case, name) == "exact"


@pytest.mark.skipif(not DATA.is_dir(), reason="the imported case sets are not here")
@pytest.mark.parametrize(
    ("format_", "file", "count"),
    [
        ("mtmeddialog_cases", "mtmeddialog_sft_cases.jsonl.gz", 0),
        pytest.param("ddxplus", "ddxplus/conditions_en.jsonl", 300, marks=pytest.mark.slow),
    ],
)
def test_on_imported_cases_it_beats_the_commonest_diagnosis(format_, file, count, rules):
    source = CaseSource.model_validate({"format": format_, "path": str(DATA / file), "cases": count, "licence": "-"})
    cases, _ = load_source(source, SplitParams(salt="anamnesis", validation=0.1, test=0.15))
    rules = rules.model_copy(update={"turn_budget": 8})
    fitted = FittedBayes([case for case in cases if case.split == "train"])
    held_out = [case for case in cases if case.split == "test"]
    common = [exact(case, name_of(fitted.examples[0])) for case in held_out]
    asks = [
        exact(case, events_of(case, FittedDoctor(fitted, 7, report(case), case.opening), rules)[-1].diagnosis)
        for case in held_out
    ]
    assert np.mean(asks) > np.mean(common) + 0.05
