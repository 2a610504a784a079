"""Evaluation tables as they are stored, and back."""

import json
import math
from pathlib import Path

from clinic.tables import Comparison, DoctorTable, Evaluation, Interval, McNemar, Summary

COMMITTED = Path(__file__).parents[3] / "metrics" / "evaluate_doctor.json"
HALF = Interval(0.5, 0.4, 0.6)
SUMMARY = Summary(3, {"accuracy": HALF, "tokens": None})
STORED_SUMMARY = {"cases": 3, "accuracy": {"mean": 0.5, "low": 0.4, "high": 0.6}, "tokens": None}
EVALUATION = Evaluation(
    {
        "trained": DoctorTable(SUMMARY, {"skin": SUMMARY}),
        "trained@questions": DoctorTable(Summary(1, {"accuracy": None}), {}),
    },
    {
        "trained minus warm_start": Comparison({"accuracy": HALF, "turns": HALF}, McNemar(3, 1, 0.625)),
        "by nothing": Comparison({}, None),
    },
    {"trained": {"patient/conflict": 0.25, "leaks": 2}},
)
STORED = {
    "trained": {"overall": STORED_SUMMARY, "skin": STORED_SUMMARY},
    "trained@questions": {"overall": {"cases": 1, "accuracy": None}},
    "trained minus warm_start": {
        "accuracy": {"mean": 0.5, "low": 0.4, "high": 0.6, "only_first": 3, "only_second": 1, "p": 0.625},
        "turns": {"mean": 0.5, "low": 0.4, "high": 0.6},
    },
    "by nothing": {},
    "patients of trained": {"patient/conflict": 0.25, "leaks": 2},
}


def test_what_is_stored_reads_back():
    assert EVALUATION.to_json() == STORED
    assert EVALUATION.to_json() == STORED  # writing changes nothing
    assert Evaluation.from_json(STORED) == EVALUATION


def test_the_committed_evaluation_reads_and_writes_as_it_is():
    stored = json.loads(COMMITTED.read_text())
    read = Evaluation.from_json(stored)
    assert json.dumps(read.to_json(), sort_keys=True) == json.dumps(stored, sort_keys=True)
    assert read.comparisons["trained minus warm_start"].mcnemar is not None


def test_means_and_accuracies_where_there_are_any():
    assert EVALUATION.accuracies == {"trained": HALF}
    assert SUMMARY.mean("accuracy") == 0.5
    assert math.isnan(SUMMARY.mean("tokens"))
    assert math.isnan(SUMMARY.mean("no measure"))


def test_tables_are_joined_and_the_later_one_stands():
    whole = Evaluation() | Evaluation({"trained": DoctorTable(Summary(1, {}), {})}) | EVALUATION
    assert whole == EVALUATION


def test_what_is_missing_is_stored_by_name_and_reason_and_reads_back():
    summary = Summary(3, {"accuracy": None}, {"a": "without a turn", "b": "failed"})
    stored = {"cases": 3, "missing": {"a": "without a turn", "b": "failed"}, "accuracy": None}
    assert summary.to_json() == stored
    assert Summary.from_json(stored) == summary
    assert summary.withheld == "n/a: 33.3% failed, 33.3% without a turn"
    assert Summary(3, {"accuracy": HALF}, {"a": "failed"}).withheld is None
    assert Summary(3, {"accuracy": None}).withheld is None  # nothing to diagnose


def test_a_few_cases_are_called_few_by_those_that_were_played():
    assert [Summary(cases, {}).few for cases in (1, 19, 20, 21)] == [True, True, False, False]
    assert Summary(20, {}, {"a": "failed"}).few
