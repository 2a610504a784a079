"""Loaders on the real files of the data bundle, where it is at hand."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from clinic.actions import Kind, parse, question
from clinic.cases import OPENING_STATES_DIAGNOSIS, flag_opening
from clinic.config import CaseSource
from clinic.dialogues import topic_matcher
from clinic.leaks import LeakFilter
from clinic.loaders import load_source
from clinic.loaders.ddxplus import load_ddxplus
from clinic.patients.scripted import ScriptedPatient
from clinic.splits import split_of
from clinic.starter import bayes_accuracy

CASES = Path(__file__).parents[4] / "shared" / "data" / "cases"
pytestmark = pytest.mark.skipif(
    not CASES.is_dir(), reason=f"the data bundle is not at {CASES}; it is no part of the repository"
)
FILES = {
    "agentclinic": "agentclinic_medqa.jsonl",
    "mtmeddialog_cases": "mtmeddialog_sft_cases.jsonl.gz",
    "mtmeddialog_turns": "mtmeddialog_sft_turns.parquet",
    "ddxplus": "ddxplus/conditions_en.jsonl",
}


@pytest.fixture(scope="module")
def loaded(split):
    sizes = {"ddxplus": 300}
    return {
        name: load_source(CaseSource(format=name, path=str(CASES / file), cases=sizes.get(name, 0), licence="x"), split)
        for name, file in FILES.items()
    }


def test_nothing_is_dropped_silently(loaded):
    assert {name: (len(cases), len(rejected)) for name, (cases, rejected) in loaded.items()} == {
        "agentclinic": (151, 1),
        "mtmeddialog_cases": (695, 0),
        "mtmeddialog_turns": (695, 0),
        "ddxplus": (300, 15),
    }
    (lost,) = loaded["agentclinic"][1]
    assert (lost.line, lost.reason) == (93, "field OSCE_Examination.Patient_Actor.Symptoms.Primary_Symptom is missing")
    assert all("takes values" in rejected.reason for rejected in loaded["ddxplus"][1])


@pytest.mark.parametrize("name", FILES)
def test_every_case_is_sound(loaded, split, name):
    cases = loaded[name][0]
    assert len({case.case_id for case in cases}) == len(cases)
    for case in cases:
        topics = [fact.topic for fact in case.facts]
        assert len(set(topics)) == len(topics) > len(case.opening)
        assert set(case.opening) <= set(topics)
        assert all(
            text.strip()
            for text in (
                case.self_report,
                case.diagnosis,
                case.diagnosis_id,
                *topics,
                *(fact.text for fact in case.facts),
            )
        )
        assert case.split == split_of(case.group_id, split)
        assert flag_opening(case) == case
        if name != "ddxplus":
            assert case.diagnosis not in case.self_report


def test_both_formats_of_mtmeddialog_give_the_same_cases(loaded):
    assert {c.case_id: c for c in loaded["mtmeddialog_cases"][0]} == {
        c.case_id: c for c in loaded["mtmeddialog_turns"][0]
    }


def test_openings_that_state_the_diagnosis(loaded):
    flagged = {
        name: sum(OPENING_STATES_DIAGNOSIS in case.flags for case in cases) for name, (cases, _) in loaded.items()
    }
    assert flagged == {"agentclinic": 0, "mtmeddialog_cases": 103, "mtmeddialog_turns": 103, "ddxplus": 0}


def test_most_diagnosis_sentences_have_a_short_name(loaded):
    named = [case for case in loaded["mtmeddialog_cases"][0] if case.synonyms]
    assert len(named) > 0.9 * 695
    common = Counter(case.diagnosis_id for case in named).most_common(4)
    assert [name for name, _ in common] == ["gastritis", "constipation", "gastritis_and_enteritis", "enteritis"]
    assert all(case.synonyms[0].lower() in case.diagnosis.lower() for case in named)


def test_agentclinic_names_tests_and_examinations(loaded):
    cases = {case.case_id: case for case in loaded["agentclinic"][0]}
    patient = ScriptedPatient(cases["AC002"], None)
    [answer] = asyncio.run(patient.examine("Barium enema"))
    text, leaks = LeakFilter(cases["AC002"]).clean(answer.text)
    assert (answer.topic, leaks) == ("Barium Enema: Findings", 1)
    assert "Hirschsprung" not in text
    assert [one.text for one in asyncio.run(patient.examine("heart rate"))] == ["120 bpm (normal for age)"]
    assert asyncio.run(patient.answer("What is the heart rate?")).topic is None
    assert cases["AC146"].diagnosis_id == cases["AC087"].diagnosis_id


def test_ddxplus_is_a_clinic_that_understands_its_own_questions():
    clinic = load_ddxplus(CASES / FILES["ddxplus"])
    assert (len(clinic.conditions), len(clinic.findings)) == (49, 208)
    match = topic_matcher(clinic).match
    for finding in clinic.findings:
        for text in (*finding.doctor.train, *finding.doctor.test):
            assert match(text) == finding.finding_id
            assert parse(question(text)).kind is Kind.QUESTION
        assert "the answer to" not in finding.patient.train[0]
        assert not {"you", "your"} & {
            word.strip(",.") for word in finding.denial.train[0].replace("height as you", "").split()
        }
    accuracy = bayes_accuracy(clinic, 200, 0)
    assert accuracy["no_questions"] < 0.5
    assert accuracy["full_information"] > 0.9
