"""The starter clinic in Chinese: nothing in the clinic assumes spaces between words."""

import re

import numpy as np
import pytest
from ruamel.yaml import YAML

from clinic.consultation import at_once
from clinic.contamination import overlaps
from clinic.diagnoses import relation
from clinic.dialogues import chart_dialogue, checklist, hurried, resident_dialogue, topic_matcher
from clinic.doctors import ReferenceDoctor, greedy, resident
from clinic.errors import ClinicError
from clinic.experienced import NearestCase
from clinic.leaks import LeakFilter
from clinic.starter import check_articles, check_worth_learning, draw_cases, load_starter


@pytest.fixture(scope="module")
def clinic_zh(starter_folder):
    return load_starter(starter_folder, 0.8, "zh")


def test_it_is_a_clinic_worth_learning(clinic_zh, starter, starter_folder):
    assert [c.condition_id for c in clinic_zh.conditions] == [c.condition_id for c in starter.conditions]
    assert [f.finding_id for f in clinic_zh.findings] == [f.finding_id for f in starter.findings]
    assert np.array_equal(clinic_zh.probability_CF, starter.probability_CF)
    check_articles(starter_folder, clinic_zh)
    check_worth_learning(clinic_zh, 2000, 11)
    for condition in clinic_zh.conditions:
        english = starter.conditions[starter.condition_index[condition.condition_id]]
        assert condition.findings.items() <= english.findings.items()
        assert (condition.prevalence, condition.urgent, condition.icd10) == (
            english.prevalence,
            english.urgent,
            english.icd10,
        )
    words = [text for f in clinic_zh.findings for w in (f.patient, f.denial, f.doctor) for text in w.train + w.test]
    assert not any(re.search(r"[A-Za-z\s]", text) for text in words)


def test_every_doctor_wording_finds_its_own_finding(clinic_zh):
    match = topic_matcher(clinic_zh).match
    assert [
        (f.finding_id, text)
        for f in clinic_zh.findings
        for text in f.doctor.train + f.doctor.test
        if match(text) != f.finding_id
    ] == []
    assert match("您养了几只猫？") is None


def test_a_consultation_is_chinese_from_the_first_word_to_the_last(clinic_zh, rules, split):
    rng = np.random.default_rng(0)
    matcher = topic_matcher(clinic_zh)
    for case in draw_cases(clinic_zh, 20, 5, split):
        ask = resident(0.5, aloud=True, typicality=np.inf)
        messages = [
            *resident_dialogue(clinic_zh, case, matcher, rules, ask, rng, to_the_end=True),
            *chart_dialogue(case, rules),
            *checklist(clinic_zh, clinic_zh.conditions[0], rules, np.inf, rng),
            *hurried(
                resident_dialogue(clinic_zh, case, matcher, rules, ask, rng, to_the_end=True), 0.3, rng, clinic_zh.words
            ),
        ]
        assert not any(
            re.search(r"[A-Za-z]", re.sub(r"</?(?:answer|think)>", "", message["content"])) for message in messages
        )
        assert (
            sum(LeakFilter(case).clean(text)[1] for text in (case.self_report, *(fact.text for fact in case.facts)))
            == 0
        )
        assert relation(case, f"{case.diagnosis}。") == "exact"


def test_the_reference_doctor_and_the_nearest_case_play_in_chinese(clinic_zh, rules, split):
    from clinic.consultation import Consultation
    from clinic.patients.scripted import ScriptedPatient

    cases = list(draw_cases(clinic_zh, 30, 5, split))
    case, match = cases[0], topic_matcher(clinic_zh).match
    doctor = ReferenceDoctor(clinic=clinic_zh, case=case, ask=greedy, questions=3, rng=np.random.default_rng(0))
    consultation = Consultation(case, ScriptedPatient(case, match), rules, 4, None)
    replies = [at_once(consultation.step(doctor.turn()))]
    doctor.hear(replies[0].event)
    assert replies[0].event.topic is not None
    assert replies[0].text.endswith("（还剩3轮）")
    assert NearestCase(cases[1:]).doctor(case, 0).turn().startswith("<answer>诊断：")


def test_generated_chinese_cases_do_not_contaminate(clinic_zh, split):
    assert overlaps(list(draw_cases(clinic_zh, 500, 3, split)), {"starter"}, 0.5) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda e: e[0].update(id="nonsense"), "'nonsense' is not among the clinic's"),
        (lambda e: e[0].pop("name"), "lacks name; add it"),
        (lambda e: e.append(e[0]), "is used twice"),
    ],
)
def test_a_mistake_in_the_texts_is_one_line(starter_folder, tmp_path, change, told):
    import shutil

    shutil.copytree(starter_folder, tmp_path / "starter")
    path = tmp_path / "starter/zh/findings.yaml"
    entries = YAML(typ="safe").load(path)
    change(entries)
    YAML().dump(entries, path)
    with pytest.raises(ClinicError, match=told):
        load_starter(tmp_path / "starter", 0.8, "zh")


def test_a_language_that_has_no_texts_is_one_line(starter_folder):
    with pytest.raises(ClinicError, match="language 'fr' is not spoken here"):
        load_starter(starter_folder, 0.8, "fr")
