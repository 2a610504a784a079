"""The labelled questions to patients of imported cases: their form, how they are counted, and what is reached."""

import asyncio
from dataclasses import replace

import pytest

from clinic.cases import Case, Fact
from clinic.patients.base import Answer
from clinic.patients.scripted import ScriptedPatient
from doctor.calibration import CALIBRATION, read_lines
from doctor.parameters import ROOT, ParameterError, load_params
from doctor.patient_calibration import FILES, digest, load_cases_of, patient_lines, understanding

FOLDER = ROOT.parent / "shared/data/cases"
HALVES = {half: read_lines(CALIBRATION / f"patient_{half}.jsonl") for half in ("open", "sealed")}
FRESH = {half: read_lines(CALIBRATION / f"patient_{half}.jsonl") for half in ("fresh_open", "fresh_sealed")}
THIRD = read_lines(CALIBRATION / "patient_third_sealed.jsonl")
# least share understood right, most wrong, most invented, by words alone; the last three are of other hands
BOUNDS = {
    "open": (0.9, 0.03, 0.03),
    "sealed": (0.85, 0.08, 0.06),
    "fresh_open": (0.8, 0.06, 0.03),
    "fresh_sealed": (0.65, 0.09, 0.07),
    "third_sealed": (0.65, 0.07, 0.09),
}
CASE = Case(
    case_id="a",
    group_id="a",
    split="test",
    source="records",
    licence="CC0-1.0",
    language="en",
    category="unclassified",
    persona="plain",
    self_report="A cough",
    opening=(),
    facts=(Fact("History", True, "Cough for a week"), Fact("Social History", True, "Does not smoke")),
    diagnosis_id="x",
    diagnosis="x",
    synonyms=(),
    parents=(),
    recommendation="",
    urgent=False,
    red_flags=(),
    flags=(),
)


def test_the_halves_share_no_case_and_quote_no_record():
    cases = {half: {row["case_id"] for row in rows} for half, rows in HALVES.items()}
    assert not cases["open"] & cases["sealed"]
    for rows in HALVES.values():
        assert {row["source"] for row in rows} == set(FILES)
        assert all(set(row) == {"source", "case_id", "question", "answers"} for row in rows)
        assert all(len(answer) == 12 and int(answer, 16) >= 0 for row in rows for answer in row["answers"])
    everything = [row for rows in HALVES.values() for row in rows]
    assert sum(bool(row["answers"]) for row in everything) >= 300
    assert sum(not row["answers"] for row in everything) >= 100
    assert len({(row["case_id"], row["question"]) for row in everything}) == len(everything)


def test_the_third_set_asks_other_patients_of_every_source():
    seen = {row["case_id"] for rows in (HALVES | FRESH).values() for row in rows}
    assert not seen & {row["case_id"] for row in THIRD}
    assert len({(row["case_id"], row["question"]) for row in THIRD}) == len(THIRD) >= 200
    for source in FILES:
        rows = [row for row in THIRD if row["source"] == source]
        off = sum(not row["answers"] for row in rows)
        assert len(rows) >= 60
        assert 0.3 <= off / len(rows) <= 0.35
    assert all(len(answer) == 12 and int(answer, 16) >= 0 for row in THIRD for answer in row["answers"])


class Says:
    """A patient with one answer."""

    def __init__(self, answer):
        self._answer = answer

    async def answer(self, question):
        return self._answer


def counted(answer, answers):
    row = {"case_id": "a", "question": "?", "answers": answers}
    return understanding([row], {"a": CASE}, lambda case: Says(answer))


def test_what_a_model_says_is_counted_by_the_facts_that_its_words_match():
    cough, smoke = map(digest, CASE.facts)
    assert counted(Answer("I have had this cough for a week", None, None), [cough])["right"] == 1
    assert counted(Answer("I have had this cough for a week", None, None), [smoke])["wrong"] == 1
    assert counted(Answer("Purple elephants", None, None), [cough])["unplaced"] == 1
    assert counted(Answer("I don't know.", None, None), [cough])["unknown"] == 1
    assert counted(Answer("Purple elephants", None, None), [])["invented"] == 1
    assert counted(Answer("I don't know.", None, None), [])["invented"] == 0


def test_what_the_scripted_patient_says_is_counted_by_the_fact_it_told():
    rows = [
        {"case_id": "a", "question": "Do you smoke?", "answers": [digest(CASE.facts[1])]},
        {"case_id": "a", "question": "Do you smoke?", "answers": [digest(CASE.facts[0])]},
        {"case_id": "a", "question": "Are you married?", "answers": []},
    ]
    found = understanding(rows, {"a": CASE}, lambda case: ScriptedPatient(case, None))
    assert (found["right"], found["wrong"], found["invented"]) == (0.5, 0.5, 0.0)
    asked = asyncio.run(ScriptedPatient(replace(CASE, language="zh"), None).answer("?"))
    assert asked.topic is None


def test_a_folder_without_the_sets_is_one_line(tmp_path):
    with pytest.raises(ParameterError, match=r"agentclinic_medqa\.jsonl does not exist; give --cases the folder"):
        patient_lines(load_params(), tmp_path)


@pytest.mark.parametrize("half", BOUNDS)
def test_labels_fit_the_sets_and_most_questions_are_understood(half):
    if not all((FOLDER / file).exists() for _, file in FILES.values()):
        pytest.skip("the public case sets are not beside this checkout")
    cases = {case.case_id: case for source in FILES for case in load_cases_of(source, FOLDER)}
    rows = (HALVES | FRESH | {"third_sealed": THIRD})[half]
    for row in rows:
        assert set(row["answers"]) <= set(map(digest, cases[row["case_id"]].facts)), row
    found = understanding(rows, cases, lambda case: ScriptedPatient(case, None))
    right, wrong, invented = BOUNDS[half]
    assert found["right"] >= right
    assert found["wrong"] <= wrong
    assert found["invented"] <= invented
