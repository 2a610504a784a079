"""Loaders on planted records: what is sound becomes a case, what is not is rejected with line and reason."""

import copy
import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest

from clinic.cases import OPENING_STATES_DIAGNOSIS, Fact, read_cases, write_cases
from clinic.config import CaseSource
from clinic.errors import ClinicError
from clinic.loaders import LOADERS, load_source
from clinic.loaders.ddxplus import load_ddxplus, statements
from clinic.loaders.mtmeddialog import short_name
from clinic.splits import split_of

OSCE = {
    "case_id": "AC1",
    "group": "g1",
    "correct_diagnosis": "Chronic lymphocytic leukemia (CLL)",
    "OSCE_Examination": {
        "Objective_for_Doctor": "Find the leukemia.",
        "Patient_Actor": {
            "Demographics": "75-year-old male",
            "History": "He is tired. He sweats at night.",
            "Symptoms": {"Primary_Symptom": "Fatigue.", "Secondary_Symptoms": ["Night sweats", "Weight loss"]},
            "Social_History": "N/A",
        },
        "Physical_Examination_Findings": {
            "Vital_Signs": {"Heart_Rate": "80 bpm", "Within_Normal_Limits": True, "Weight": 71.5, "Height": None}
        },
        "Test_Results": {"Flow_Cytometry": {"Findings": "Suggests CLL."}},
        "Correct_Diagnosis": "Chronic lymphocytic leukemia (CLL)",
    },
}
TALK = {
    "case_id": "M1",
    "self_report": "My belly hurts (male, 30)",
    "diagnosis": "Based on your symptoms, you likely have gastritis, possibly acute.",
    "recommendation": "Eat little.",
    "dialogue": [
        {"doctor": ["Since when?"], "patient": ["Two days.", "It comes and goes."]},
        {"doctor": ["Fever?"], "patient": []},
        {"doctor": [], "patient": ["And I burp."]},
        {"doctor": ["Since when?"], "patient": ["As I said."]},
    ],
}
EVIDENCE = {"evidence": "E_1", "fr_key": "x", "question_en": "Do you have a cough?", "data_type": "B", "p_train": 0.5}
CONDITION = {
    "condition": "Bronchitis",
    "icd10": "j40",
    "severity": 4,
    "n_train_patients": 30,
    "symptoms": [EVIDENCE],
    "antecedents": [EVIDENCE | {"evidence": "E_2", "question_en": "Do you smoke?", "p_train": 0.8}],
}


def changed(record, *path, to=None, drop=False):
    record = copy.deepcopy(record)
    place = record
    for key in path[:-1]:
        place = place[key]
    if drop:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return record


def write(path, *records):
    lines = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wb") as file:
        file.write(b"\n".join(lines) + b"\n")
    return path


def source(name, path, cases=0):
    return CaseSource(format=name, path=str(path), cases=cases, licence="MIT")


def reasons(rejected, path):
    assert {r.path for r in rejected} <= {str(path)}
    return {r.line: r.reason for r in rejected}


def test_every_format_of_the_configuration_has_a_loader():
    assert set(LOADERS) == set(CaseSource.model_fields["format"].annotation.__args__)


@pytest.mark.parametrize("name", sorted(set(LOADERS) - {"own"}))
def test_a_missing_or_unreadable_file_is_one_line(name, tmp_path, split):
    path = tmp_path / "absent.jsonl.gz"
    with pytest.raises(
        ClinicError, match=r"absent\.jsonl\.gz does not exist; correct its path under patient_cases\.imported"
    ) as caught:
        load_source(source(name, path), split)
    assert "\n" not in str(caught.value)
    path.write_bytes(b"neither gzip\nnor parquet")
    with pytest.raises(ClinicError, match=r"absent\.jsonl\.gz cannot be read \(") as caught:
        load_source(source(name, path), split)
    assert "\n" not in str(caught.value)


def test_a_truncated_gzip_is_one_line(tmp_path, split):
    path = write(tmp_path / "cases.jsonl.gz", *[changed(TALK, "case_id", to=f"M{i}") for i in range(200)])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ClinicError, match="cannot be read"):
        load_source(source("mtmeddialog_cases", path), split)


def test_agentclinic_becomes_a_case(tmp_path, split):
    (case,), rejected = load_source(source("agentclinic", write(tmp_path / "a.jsonl", OSCE)), split)
    assert rejected == []
    assert (case.case_id, case.group_id, case.split, case.source, case.licence) == (
        "AC1",
        "g1",
        split_of("g1", split),
        "agentclinic",
        "MIT",
    )
    assert case.self_report == "Fatigue (75-year-old male)"
    assert case.opening == ("Demographics", "Symptoms: Primary Symptom")
    assert case.facts == tuple(
        Fact(topic, True, text)
        for topic, text in [
            ("Demographics", "75-year-old male"),
            ("History (1)", "He is tired."),
            ("History (2)", "He sweats at night."),
            ("Symptoms: Primary Symptom", "Fatigue."),
            ("Symptoms: Secondary Symptoms (1)", "Night sweats"),
            ("Symptoms: Secondary Symptoms (2)", "Weight loss"),
            ("Vital Signs: Heart Rate", "80 bpm"),
            ("Vital Signs: Within Normal Limits", "yes"),
            ("Vital Signs: Weight", "71.5"),
            ("Flow Cytometry: Findings", "Suggests CLL."),
        ]
    )
    assert (case.diagnosis_id, case.diagnosis) == ("chronic_lymphocytic_leukemia", "Chronic lymphocytic leukemia (CLL)")
    assert case.synonyms == ("Chronic lymphocytic leukemia", "CLL")


def test_bad_agentclinic_records_are_rejected_by_line(tmp_path, split):
    actor = ("OSCE_Examination", "Patient_Actor")
    path = write(
        tmp_path / "a.jsonl",
        OSCE,
        b"{not json",
        b"",
        b'"text"',
        changed(OSCE, "correct_diagnosis", to=" "),
        changed(OSCE, "case_id", to="AC6") | {"group": None},
        changed(OSCE, *actor, "Symptoms", "Primary_Symptom", drop=True),
        changed(OSCE, *actor, "Demographics", to=75),
        OSCE,
        b'{"case_id": "\\ud800"}',
        b"\xff\xfe",
        changed(OSCE, "correct_diagnosis", to="?!"),
        changed(OSCE, "OSCE_Examination", drop=True),
        {
            "case_id": "AC14",
            "group": "g",
            "correct_diagnosis": "Flu",
            "OSCE_Examination": {"Patient_Actor": {"Demographics": "a man", "Symptoms": {"Primary_Symptom": "pain"}}},
        },
        b"[" * 100000,
        changed(OSCE, "case_id", to="AC16"),
    )
    cases, rejected = load_source(source("agentclinic", path), split)
    assert [case.case_id for case in cases] == ["AC1", "AC16"]
    found = reasons(rejected, path)
    assert set(found) == set(range(2, 16)) - {3}
    expected = {
        2: "not valid JSON",
        4: "field case_id is missing",
        5: "field correct_diagnosis is empty",
        6: "field group is no text",
        7: "field OSCE_Examination.Patient_Actor.Symptoms.Primary_Symptom is missing",
        8: "field OSCE_Examination.Patient_Actor.Demographics is no text",
        9: "case id 'AC1' is used twice, first in line 1",
        10: "not valid JSON",
        11: "not valid JSON",
        12: "diagnosis '?!' has no words",
        13: "field OSCE_Examination is missing",
        14: "the record holds no answer of the patient",
        15: "not valid JSON",
    }
    assert {line: reason for line, reason in found.items() if not reason.startswith(expected[line])} == {}
    assert not any("\n" in reason for reason in found.values())


def test_headings_that_come_twice_stay_apart(tmp_path, split):
    record = changed(
        OSCE,
        "OSCE_Examination",
        "Test_Results",
        to={"Blood": {"WBC": "1"}, "Blood (1)": "odd", "Vital_Signs": {"Heart_Rate": "90 bpm"}, "": "x"},
    )
    (case,), _ = load_source(source("agentclinic", write(tmp_path / "a.jsonl", record)), split)
    topics = [fact.topic for fact in case.facts]
    assert len(set(topics)) == len(topics)
    assert {"Vital Signs: Heart Rate (1)", "Vital Signs: Heart Rate (2)", "Blood (1)", "Blood: WBC"} <= set(topics)


def test_mtmeddialog_becomes_a_case(tmp_path, split):
    (case,), rejected = load_source(source("mtmeddialog_cases", write(tmp_path / "m.jsonl.gz", TALK)), split)
    assert rejected == []
    assert (case.source, case.self_report, case.diagnosis, case.recommendation) == (
        "mtmeddialog",
        TALK["self_report"],
        TALK["diagnosis"],
        "Eat little.",
    )
    assert (case.diagnosis_id, case.synonyms, case.opening, case.flags) == ("gastritis", ("gastritis",), (), ())
    assert case.facts == (
        Fact("Since when? (1)", True, "Two days. It comes and goes."),
        Fact("Unasked", True, "And I burp."),
        Fact("Since when? (2)", True, "As I said."),
    )


def test_same_self_report_is_one_group_and_one_split(tmp_path, split):
    records = [
        changed(TALK, "case_id", to=f"M{i}") | {"self_report": text}
        for i, text in enumerate(["My belly hurts.", "my  belly HURTS", "My belly hurts a lot"])
    ]
    (a, b, c), _ = load_source(source("mtmeddialog_cases", write(tmp_path / "m.jsonl", *records)), split)
    assert (a.group_id, a.split) == (b.group_id, b.split)
    assert a.group_id != c.group_id


def test_bad_mtmeddialog_records_are_rejected_by_line(tmp_path, split):
    bad = {
        "field self_report is empty": changed(TALK, "self_report", to=""),
        "field diagnosis is missing": changed(TALK, "diagnosis", drop=True),
        "field diagnosis is empty": changed(TALK, "diagnosis", to=" \n"),
        "field recommendation is no text": changed(TALK, "recommendation", to=None),
        "the record holds no answer of the patient": changed(
            TALK, "dialogue", to=[{"doctor": ["Fever?"], "patient": [" ", ""]}]
        ),
        "field dialogue is no list": changed(TALK, "dialogue", to="hello"),
        "field patient is missing": changed(TALK, "dialogue", to=[{"doctor": []}]),
        "a turn of the dialogue is no text": changed(TALK, "dialogue", to=[{"doctor": [1], "patient": ["x"]}]),
        "not valid JSON": b"[1,",
        "field dialogue is missing": [TALK],
        "case id 'M1' is used twice, first in line 1": TALK,
    }
    path = write(tmp_path / "m.jsonl", TALK, *bad.values())
    cases, rejected = load_source(source("mtmeddialog_cases", path), split)
    assert len(cases) == 1
    found = reasons(rejected, path)
    assert [found[line][: len(reason)] for line, reason in enumerate(bad, start=2)] == list(bad)


def turn_rows(record, rows=2, **changes):
    row = {
        "case_id": record["case_id"],
        "prompt": [
            {"role": "system", "content": "Be a doctor."},
            {
                "role": "user",
                "content": f"Patient's description: {record['self_report']}\nDecide next action:\nAlways output: <think>",
            },
        ],
        "reward_model": {
            "ground_truth": {"diagnosis": record["diagnosis"], "recommendation": record["recommendation"]},
            "patient_information": [
                {"doctor_question": t["doctor"], "patient_response": t["patient"] or None} for t in record["dialogue"]
            ],
        },
    }
    return [copy.deepcopy(row | changes) for _ in range(rows)]


def write_turns(path, rows):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def test_turns_and_regrouped_cases_are_the_same_cases(tmp_path, split):
    talks = [
        changed(TALK, "case_id", to=f"M{i}") | {"self_report": f"My belly hurts.\nDay {i} (male, 30)"} for i in range(3)
    ]
    turns = write_turns(tmp_path / "t.parquet", [row for talk in talks for row in turn_rows(talk)])
    assert load_source(source("mtmeddialog_turns", turns), split) == load_source(
        source("mtmeddialog_cases", write(tmp_path / "m.jsonl", *talks)), split
    )


def test_bad_turns_are_rejected_at_their_first_row(tmp_path, split):
    other = changed(TALK, "case_id", to="M2")
    rows = [
        *turn_rows(TALK),
        *turn_rows(other, 1),
        *turn_rows(other | {"diagnosis": "Flu"}, 1),
        *turn_rows(changed(TALK, "case_id", to="M3"), prompt=None),
        *turn_rows(changed(TALK, "case_id", to="M4"), prompt=[{"role": "user", "content": "Hello"}]),
        *turn_rows(TALK, 1, case_id=None),
        *turn_rows(changed(TALK, "case_id", to="M5"), reward_model=None),
        *turn_rows(changed(TALK, "case_id", to="M6") | {"self_report": " "}),
    ]
    path = write_turns(tmp_path / "t.parquet", rows)
    cases, rejected = load_source(source("mtmeddialog_turns", path), split)
    assert [case.case_id for case in cases] == ["M1"]
    assert reasons(rejected, path) == {
        3: "the rows of this consultation disagree about its truth",
        5: "field prompt is no list",
        7: 'the prompt holds no self-report ("Patient\'s description: ...")',
        9: "field case_id is no text",
        10: "field ground_truth is missing",
        12: 'the prompt holds no self-report ("Patient\'s description: ...")',
    }


def test_a_parquet_without_the_columns_is_one_line(tmp_path, split):
    with pytest.raises(ClinicError, match=r"t\.parquet cannot be read \(") as caught:
        load_source(source("mtmeddialog_turns", write_turns(tmp_path / "t.parquet", [{"case_id": "x"}])), split)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("sentence", "name"),
    [
        ("Based on your symptoms, you likely have gastritis, possibly acute.", "gastritis"),
        ("Based on your symptoms, it appears you may be experiencing constipation.", "constipation"),
        (
            "Based on the symptoms described, your grandmother is likely suffering from chronic constipation, which hurts.",
            "chronic constipation",
        ),
        ("The diagnosis is appendicitis.", "appendicitis"),
        ("The likely diagnosis is a stomach ulcer.", "stomach ulcer"),
        ("You likely have irritable bowel syndrome (IBS), often linked to stress.", "irritable bowel syndrome (IBS)"),
        ("You have enteritis (intestinal inflammation).", "enteritis"),
        ("I diagnose you with gastritis and enteritis.", "gastritis and enteritis"),
        ("This appears to be a case of gastritis.", "gastritis"),
        ("Based on your symptoms, it is likely a gastric ulcer.", "gastric ulcer"),
        ("You likely have a cold or stomach flu.", ""),
        ("You may be experiencing gastritis, esophagitis, or cholecystitis.", ""),
        ("Constipation", ""),
        ("It appears you are experiencing side effects from your new medication.", ""),
        ("It is highly unlikely that you have liver cirrhosis.", ""),
        ("It seems you might be experiencing appendicitis-related discomfort.", ""),
        ("You have a history of appendicitis.", ""),
        ("", ""),
    ],
)
def test_short_names_of_diagnosis_sentences(sentence, name):
    assert short_name(sentence) == name


def test_without_a_sure_name_the_sentence_is_the_diagnosis(tmp_path, split):
    records = [
        changed(TALK, "diagnosis", to="You likely have a cold or flu."),
        changed(TALK, "diagnosis", to="You have irritable bowel syndrome (IBS).") | {"case_id": "M2"},
    ]
    (unsure, named), _ = load_source(source("mtmeddialog_cases", write(tmp_path / "m.jsonl", *records)), split)
    assert (unsure.synonyms, unsure.diagnosis_id) == ((), "you_likely_have_a_cold_or_flu")
    assert (named.synonyms, named.diagnosis_id) == (("irritable bowel syndrome", "IBS"), "irritable_bowel_syndrome")


def test_an_opening_that_states_the_diagnosis_is_flagged(tmp_path, split):
    (case,), _ = load_source(
        source("mtmeddialog_cases", write(tmp_path / "m.jsonl", TALK | {"self_report": "Gastritis again"})), split
    )
    assert case.flags == (OPENING_STATES_DIAGNOSIS,)
    (case,), _ = load_source(
        source("agentclinic", write(tmp_path / "a.jsonl", changed(OSCE, "correct_diagnosis", to="Fatigue"))), split
    )
    assert case.flags == (OPENING_STATES_DIAGNOSIS,)


def test_a_number_of_cases_keeps_a_sample_that_order_does_not_change(tmp_path, split):
    records = [changed(TALK, "case_id", to=f"M{i}") for i in range(40)]
    kept = {}
    for name, given in (("first", records), ("turned", records[::-1])):
        path = write(tmp_path / f"{name}.jsonl", *given, b"{")
        cases, rejected = load_source(source("mtmeddialog_cases", path, cases=8), split)
        kept[name] = {case.case_id for case in cases}
        assert (len(cases), len(rejected)) == (8, 1)
    assert kept["first"] == kept["turned"] != {f"M{i}" for i in range(8)}
    other, _ = load_source(source("mtmeddialog_cases", path, cases=8), split.model_copy(update={"salt": "another"}))
    assert {case.case_id for case in other} != kept["first"]


def test_ddxplus_becomes_a_clinic(tmp_path):
    value = EVIDENCE | {"evidence": "E_9", "question_en": "Where?", "data_type": "M", "p_train": 1.0}
    rare = EVIDENCE | {"evidence": "E_3", "question_en": "Do you have a rash?", "p_train": 0.0}
    other = CONDITION | {
        "condition": "Croup",
        "icd10": "J05.0",
        "severity": 2,
        "n_train_patients": 10,
        "symptoms": [EVIDENCE | {"p_train": 0.9}, rare, value],
    }
    clinic = load_ddxplus(write(tmp_path / "d.jsonl", CONDITION, other))
    assert [f.finding_id for f in clinic.findings] == ["E_1", "E_2", "E_3"]
    assert [f.complaint for f in clinic.findings] == [1.0, 0.0, 1.0]
    assert clinic.prior_C.tolist() == [0.75, 0.25]
    assert clinic.probability_CF.tolist() == [[0.5, 0.8, 1e-4], [0.9, 0.8, 1e-4]]
    assert [(c.specialty, c.icd10, c.urgent, c.next_steps) for c in clinic.conditions] == [
        ("respiration", "J40", False, ("See a doctor for examination and tests",)),
        ("respiration", "J05.0", True, ("Emergency care now",)),
    ]
    cough = clinic.findings[0]
    assert (cough.patient.train, cough.denial.train, cough.doctor.train) == (
        ("I have a cough",),
        ("I do not have a cough",),
        ("Do you have a cough?",),
    )
    assert not {*cough.patient.train, *cough.denial.train, *cough.doctor.train} & {
        *cough.patient.test,
        *cough.denial.test,
        *cough.doctor.test,
    }


def test_what_many_drawn_patients_have_is_worth_little(tmp_path, split):
    antecedent = EVIDENCE | {"evidence": "E_4", "question_en": "Do you smoke?", "p_train": 0.9}
    common = CONDITION | {"antecedents": [antecedent, antecedent | {"evidence": "E_5", "p_train": 0.2}]}
    cases, _ = load_source(source("ddxplus", write(tmp_path / "d.jsonl", common), cases=4), split)
    told = [
        (sum(f.present and f.topic not in case.opening for f in case.facts), {f.topic: f.worth for f in case.facts})
        for case in cases
    ]
    assert all(worth["E_4"] == pytest.approx(0.01 / (n or 1), abs=1e-4) for n, worth in told)
    assert all(worth["E_5"] == pytest.approx(0.64 / (n or 1), abs=1e-4) for n, worth in told)


def test_bad_ddxplus_lines_and_evidences_with_values_are_rejected(tmp_path, split):
    value = EVIDENCE | {"evidence": "E_9", "question_en": "Where?", "data_type": "M", "p_train": 1.0}
    bad = {
        "not valid JSON": b"{",
        "condition Bronchitis is defined twice": CONDITION,
        "P(E_1) = 1.2 must lie in [0, 1]": changed(CONDITION, "symptoms", 0, "p_train", to=1.2),
        "field p_train is no number": changed(CONDITION, "symptoms", 0, "p_train", to="often"),
        "has no yes/no symptom to open with": CONDITION | {"symptoms": []},
        "field icd10 is missing": changed(CONDITION, "icd10", drop=True),
        "field antecedents is no list": CONDITION | {"antecedents": {}},
        "n_train_patients = 0 must be positive": CONDITION | {"n_train_patients": 0},
        "field severity is no number": CONDITION | {"severity": True},
    }
    renamed = [
        r if isinstance(r, bytes) or "twice" in reason else r | {"condition": f"C{i}"}
        for i, (reason, r) in enumerate(bad.items())
    ]
    path = write(tmp_path / "d.jsonl", CONDITION | {"symptoms": [EVIDENCE, value]}, *renamed)
    cases, rejected = load_source(source("ddxplus", path, cases=2), split)
    assert len(cases) == 2
    assert rejected[0].line == 1
    assert rejected[0].reason.startswith("evidence E_9 (Where?) takes values")
    assert [r.line for r in rejected[1:]] == list(range(2, len(bad) + 2))
    assert [reason for r, reason in zip(rejected[1:], bad, strict=True) if reason not in r.reason] == []
    with pytest.raises(ClinicError, match="holds no condition; give the path of DDXPlus"):
        load_ddxplus(write(tmp_path / "e.jsonl", b"{"))


@pytest.mark.parametrize(
    ("question", "yes", "no"),
    [
        ("Do you smoke cigarettes?", "I smoke cigarettes", "I do not smoke cigarettes"),
        (
            "Have you ever had fluid in your lungs?",
            "I have had fluid in my lungs",
            "I have never had fluid in my lungs",
        ),
        (
            "Have you had any vaginal discharge?",
            "I have had some vaginal discharge",
            "I have not had any vaginal discharge",
        ),
        ("Are you immunosuppressed?", "I am immunosuppressed", "I am not immunosuppressed"),
        ("Did you lose consciousness?", "I did lose consciousness", "I did not lose consciousness"),
        (
            "Are you feeling nauseous or do you feel like vomiting?",
            "I am feeling nauseous or I feel like vomiting",
            "it is not true that I am feeling nauseous or I feel like vomiting",
        ),
        (
            "Do you have bouts of choking that wake you up at night?",
            "I have bouts of choking that wake me up at night",
            "I do not have bouts of choking that wake me up at night",
        ),
        (
            "Is your skin much paler than usual?",
            "my skin is much paler than usual",
            "it is not true that my skin is much paler than usual",
        ),
        (
            "Where does it hurt?",
            "the answer to 'Where does it hurt' is yes",
            "the answer to 'Where does it hurt' is no",
        ),
    ],
)
def test_questions_turn_into_statements(question, yes, no):
    assert statements(question) == (yes, no)


def test_imported_cases_survive_parquet(tmp_path, split):
    cases = [
        *load_source(source("agentclinic", write(tmp_path / "a.jsonl", OSCE)), split)[0],
        *load_source(source("mtmeddialog_cases", write(tmp_path / "m.jsonl", TALK)), split)[0],
        *load_source(source("ddxplus", write(tmp_path / "d.jsonl", CONDITION), cases=1), split)[0],
    ]
    write_cases(cases, tmp_path / "cases.parquet")
    assert read_cases(tmp_path / "cases.parquet") == cases
