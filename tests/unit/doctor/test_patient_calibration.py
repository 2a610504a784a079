"""The labelled questions to patients of imported cases: their form, how they are counted, and what is reached."""

import asyncio
from dataclasses import replace

import pytest

from clinic.patients.base import Answer
from clinic.patients.scripted import ScriptedPatient
from doctor.calibration import CALIBRATION, read_lines
from doctor.parameters import ROOT, ParameterError, load_params
from doctor.patient_calibration import (
    BLIND,
    FILES,
    FITTED,
    digest,
    load_cases_of,
    patient_lines,
    understanding,
    untold_case,
)

FOLDER = ROOT.parent / "shared/data/cases"
# least share understood right, most wrong, most invented, by words alone; the first six have been tuned on
BOUNDS = {
    "open": (0.95, 0.02, 0.02),
    "sealed": (0.92, 0.045, 0.02),
    "fresh_open": (0.9, 0.045, 0.02),
    "fresh_sealed": (0.89, 0.03, 0.02),
    "third_sealed": (0.7, 0.05, 0.04),
    "fourth_sealed": (0.75, 0.08, 0.04),
    "fifth_sealed": (0.65, 0.08, 0.11),
    "sixth_sealed": (0.62, 0.08, 0.14),
    "seventh_sealed": (0.67, 0.06, 0.04),
    "eighth_sealed": (0.6, 0.08, 0.1),
    "ninth_sealed": (0.6, 0.08, 0.14),
    "tenth_sealed": (0.6, 0.08, 0.14),
    "eleventh_sealed": (0.6, 0.08, 0.14),
    "twelfth_sealed": (0.6, 0.075, 0.08),
    "thirteenth_sealed": (0.5, 0.08, 0.11),
    "fourteenth_sealed": (0.5, 0.1, 0.11),
    "fifteenth_sealed": (0.45, 0.1, 0.11),
    "sixteenth_sealed": (0.45, 0.1, 0.11),
    "seventeenth_sealed": (0.45, 0.1, 0.11),
}
AGAIN = tuple(f"{hand}_sealed" for hand in ("ninth", "tenth", "eleventh"))  # they ask patients of AgentClinic again
AGAIN_BLIND = tuple(f"{hand}_sealed" for hand in BLIND)  # the last four of them ask patients of the others
WITHOUT_PRIMOCK = tuple(f"{hand}_sealed" for hand in (*FITTED[2:], *BLIND))
SETS = {name: read_lines(CALIBRATION / f"patient_{name}.jsonl") for name in BOUNDS}
CASE = untold_case(
    "a", "records", "CC0-1.0", "A cough", [("History", "Cough for a week"), ("Social History", "Does not smoke")]
)


def test_the_halves_share_no_case_and_quote_no_record():
    halves = {name: SETS[name] for name in ("open", "sealed")}
    cases = {half: {row["case_id"] for row in rows} for half, rows in halves.items()}
    assert not cases["open"] & cases["sealed"]
    for rows in halves.values():
        assert {row["source"] for row in rows} == set(FILES)
        assert all(set(row) == {"source", "case_id", "question", "answers"} for row in rows)
        assert all(len(answer) == 12 and int(answer, 16) >= 0 for row in rows for answer in row["answers"])
    everything = [row for rows in halves.values() for row in rows]
    assert sum(bool(row["answers"]) for row in everything) >= 300
    assert sum(not row["answers"] for row in everything) >= 100
    assert len({(row["case_id"], row["question"]) for row in everything}) == len(everything)


@pytest.mark.parametrize("name", [f"{hand}_sealed" for hand in (*FITTED, *BLIND)])
def test_a_later_set_asks_patients_of_whom_none_of_the_first_asks(name):
    first = ("open", "sealed", "fresh_open", "fresh_sealed")
    again = AGAIN if name not in AGAIN_BLIND else (*AGAIN, *AGAIN_BLIND)
    rows = [row for row in SETS[name] if name not in AGAIN or row["source"] != "agentclinic"]
    earlier = first if name not in WITHOUT_PRIMOCK else tuple(set(BOUNDS) - {name, *again})
    assert not {row["case_id"] for other in earlier for row in SETS[other]} & {row["case_id"] for row in rows}
    assert len({(row["case_id"], row["question"]) for row in rows}) == len(rows)
    assert all(len(answer) == 12 and int(answer, 16) >= 0 for row in rows for answer in row["answers"])
    for source in {row["source"] for row in rows} | {"mtmeddialog"}:
        asked = [row for row in rows if row["source"] == source]
        assert len(asked) >= 40
        assert 0.2 <= sum(not row["answers"] for row in asked) / len(asked) <= 0.5


def test_practice_questions_ask_no_patient_by_whom_is_measured():
    rows = read_lines(CALIBRATION / "patient_practice.jsonl")
    assert all(set(row) == {"source", "case_id", "question", "answers", "writer"} for row in rows)
    assert all(len(answer) == 12 and int(answer, 16) >= 0 for row in rows for answer in row["answers"])
    assert len({row["writer"] for row in rows}) == 44
    kept = ("seventh", "eighth", *BLIND)
    assert not {row["case_id"] for hand in kept for row in SETS[f"{hand}_sealed"]} & {row["case_id"] for row in rows}


def test_the_later_blind_hands_ask_patients_of_the_first_two_and_of_no_other():
    first, second, *later = ({row["case_id"] for row in SETS[name]} for name in AGAIN_BLIND)
    assert set().union(*later) <= first | second
    assert not first & second


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
        list(patient_lines(load_params(), tmp_path, ["lexical"]))
    base = load_params().knowledge_base.model_copy(update={"embedder": "some/other"})
    with pytest.raises(ParameterError, match=r"knowledge_base\.embedder is 'some/other'"):
        list(patient_lines(load_params().model_copy(update={"knowledge_base": base}), tmp_path, ["cross_encoder"]))
    with pytest.raises(ParameterError, match="--hands tenths: there are open, sealed"):
        list(patient_lines(load_params(), tmp_path, ["lexical"], ["open", "tenths"]))


@pytest.fixture(scope="module")
def cases():
    if not all((FOLDER / file).exists() for _, file in FILES.values()):
        pytest.skip("the public case sets are not beside this checkout")
    return {case.case_id: case for source in FILES for case in load_cases_of(source, FOLDER)}


@pytest.mark.parametrize("half", BOUNDS)
def test_labels_fit_the_sets_and_most_questions_are_understood(half, cases):
    rows = SETS[half]
    for row in rows:
        assert set(row["answers"]) <= set(map(digest, cases[row["case_id"]].facts)), row
    found = understanding(rows, cases, lambda case: ScriptedPatient(case, None))
    right, wrong, invented = BOUNDS[half]
    assert found["right"] >= right
    assert found["wrong"] <= wrong
    assert found["invented"] <= invented
