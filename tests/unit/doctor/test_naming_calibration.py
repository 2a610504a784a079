"""The labelled sets of names and leaks, held to what the documentation says of them."""

from collections import Counter

import pytest

from clinic.vocabulary import Term, Vocabulary
from doctor.calibration import CALIBRATION, read_lines
from doctor.naming_calibration import HALVES, case_of, hearing, hearing_lines, naming, naming_lines
from doctor.parameters import load_params


@pytest.mark.parametrize("half", HALVES)
def test_names_are_matched_as_the_labels_say(half):
    found = naming(read_lines(CALIBRATION / f"diagnoses_{half}.jsonl"), None)
    assert found["recall"] >= 0.95
    assert found["precision"] >= 0.99


@pytest.mark.parametrize("half", HALVES)
def test_whole_answers_are_read_as_the_labels_say(half):
    found = naming(read_lines(CALIBRATION / f"answers_{half}.jsonl"), None)
    assert found["recall"] >= 0.8
    assert found["precision"] >= 0.99


@pytest.mark.parametrize("half", HALVES)
def test_leaks_of_each_kind_are_heard(half):
    found = hearing(read_lines(CALIBRATION / f"leaks_{half}.jsonl"))
    left, clean = found.pop("none")
    assert clean - left <= 1
    assert all(caught >= 0.9 * told for caught, told in found.values())
    assert len(found) == 12


def test_a_truth_is_in_one_half_alone():
    truths = [{row["truth"] for row in read_lines(CALIBRATION / f"diagnoses_{half}.jsonl")} for half in HALVES]
    assert truths[0].isdisjoint(truths[1])
    rows = [row for half in HALVES for row in read_lines(CALIBRATION / f"diagnoses_{half}.jsonl")]
    kinds = Counter(row["kind"] for row in rows)
    assert set(kinds) == {"same", "sibling", "broader", "narrower", "list"}
    assert 0.4 < 1 - kinds["same"] / len(rows) < 0.6


def test_recall_and_precision_are_counted_over_the_labels():
    rows = [
        {"truth": "Gout", "answer": "podagra", "kind": "same"},
        {"truth": "Gout", "answer": "toe trouble", "kind": "same"},
        {"truth": "Gout", "answer": "gouty arthritis", "kind": "sibling"},
        {"truth": "Gout", "answer": "asthma", "kind": "sibling"},
    ]
    assert naming(rows, None) == {"pairs": 4, "recall": 0.5, "precision": 0.5, "unplaced": 0.25}
    knowing = Vocabulary([Term("D:1", "gout", ("toe trouble",), ())])
    assert naming(rows, knowing)["recall"] == 1.0


def test_a_case_of_a_diagnosis_has_its_acronym():
    assert case_of("Chronic lymphocytic leukemia (CLL)").synonyms == ("Chronic lymphocytic leukemia", "CLL")


def test_the_command_has_a_line_for_each_half():
    assert [line.split()[:2] for line in naming_lines(load_params())] == [
        [half, file] for half in HALVES for file in ("diagnoses,", "answers,")
    ]
    assert [line.split()[0] for line in hearing_lines()] == list(HALVES)
