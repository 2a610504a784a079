"""Labelled orders of examinations and tests."""

import pytest

from clinic.cases import Fact
from doctor.calibration import CALIBRATION, read_lines
from doctor.order_calibration import HALVES, digest, found_by
from doctor.parameters import ROOT
from doctor.patient_calibration import cases_of, chinese_cases, untold_case

FOLDER = ROOT.parent / "shared/data/cases"
# least share right; most with a result that was not ordered, and most that came though nothing is on record
BOUNDS = {
    "open": (0.92, 0.03, 0.02),
    "third": (0.87, 0.04, 0.01),
    "fourth": (0.86, 0.06, 0.06),
    "sealed": (0.8, 0.04, 0.045),
}
SETS = {half: read_lines(CALIBRATION / f"orders_{half}.jsonl") for half in HALVES}


def test_no_two_hands_order_for_one_patient_and_no_record_is_quoted():
    patients = [{row["case_id"] for row in rows} for rows in SETS.values()]
    assert sum(map(len, patients)) == len(set().union(*patients))
    for row in (row for rows in SETS.values() for row in rows):
        assert set(row) == {"source", "case_id", "order", "answers"}
        assert all(len(answer) == 12 and int(answer, 16) >= 0 for answer in row["answers"])


def test_shares_by_hand():
    case = untold_case(
        "a", "records", "CC0-1.0", "A cough", [("Vital Signs: Pulse", "90"), ("Vital Signs: Temperature", "37")]
    )
    pulse, temperature = map(digest, case.facts)
    assert pulse == digest(Fact("Vital Signs: Pulse", True, "90")) != digest(Fact("Pulse", True, "90"))
    orders = [("vitals", [pulse, temperature]), ("pulse", [pulse]), ("heat", [temperature]), ("pulse", [temperature])]
    rows = [
        {"case_id": "a", "order": order, "answers": answers} for order, answers in [*orders, ("CBC", []), ("obs", [])]
    ]
    assert found_by(rows, {"a": case}) == {
        "on_record": 4,
        "off_record": 2,
        "right": 0.5,
        "wrong": 0.25,
        "unknown": 0.25,
        "whole": 0.5,
        "invented": 0.5,
    }


@pytest.mark.skipif(not FOLDER.exists(), reason=f"needs the public case sets in {FOLDER}")
def test_the_labelled_orders_are_understood_as_well_as_is_said():
    cases = cases_of(FOLDER)
    for half, (right, wrong, invented) in BOUNDS.items():
        found = found_by(SETS[half], cases)
        assert found["right"] >= right, (half, found)
        assert found["wrong"] <= wrong, (half, found)
        assert found["invented"] <= invented, (half, found)


@pytest.mark.parametrize(
    ("half", "right", "wrong", "invented"), [("open", 0.95, 0.02, 0.0), ("sealed", 0.75, 0.04, 0.0)]
)
def test_chinese_orders_are_understood_as_well_as_is_said(half, right, wrong, invented):
    rows, cases = read_lines(CALIBRATION / f"orders_zh_{half}.jsonl"), chinese_cases(f"third {half}")
    for row in rows:
        assert set(row["answers"]) <= set(map(digest, cases[row["case_id"]].facts))
    found = found_by(rows, cases)
    assert found["right"] >= right
    assert found["wrong"] <= wrong
    assert found["invented"] <= invented
