"""Evaluation on held-out cases: every doctor on the same ones, tables that say what was played."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clinic.cases import read_cases, write_cases
from clinic.doctors import at_random, greedy
from clinic.starter import draw_cases
from clinic.tables import DoctorTable, Evaluation, Interval, Summary
from doctor.environments import open_factory
from doctor.evaluation import EvaluationSet, comparison, open_evaluation_sets, policy_table
from doctor.evaluation_text import (
    closed_distance,
    headline,
    table_text,
    told,
    trajectories_of_note,
    write_accuracy_plot,
)
from doctor.parameters import ROOT, load_params
from doctor.references import COMMONEST, fitted_tables, full_information_table, reference_table
from doctor.report_texts import texts
from rl.experience import Scores, read_scores, read_trajectories

COUNT = 40


@pytest.fixture(scope="module")
def params():
    found = load_params()
    small = found.evaluate_doctor.model_copy(update={"cases": COUNT})
    return found.model_copy(update={"evaluate_doctor": small})


@pytest.fixture(scope="module")
def cases(params, tmp_path_factory):
    """A folder of cases of all splits."""
    folder = tmp_path_factory.mktemp("cases")
    clinic = open_factory(params, Path("unused")).clinic
    write_cases(list(draw_cases(clinic, 500, 3, params.patient_cases.split)), folder / "cases.parquet")
    return folder


@pytest.fixture
def test_set(params, cases) -> EvaluationSet:
    (found,) = open_evaluation_sets(params, cases, Path("unused"))
    return found


def nobody(done, total):
    """A bar that nobody looks at."""


def test_the_set_holds_test_cases_only_and_as_many_as_asked_for(test_set):
    assert len(test_set.cases) == COUNT
    assert {case.split for case in test_set.cases} == {"test"}
    assert (test_set.first, test_set.generative, test_set.consultations) == (True, True, True)
    assert test_set.label("trained") == "trained"
    assert test_set.budget == test_set.params.consultation.turn_budget


def test_a_random_budget_is_evaluated_at_its_largest(params, cases):
    random = params.model_copy(update={"consultation": params.consultation.model_copy(update={"turn_budget": -1})})
    assert open_evaluation_sets(random, cases, Path("unused"))[0].budget == 10


def test_asking_well_beats_asking_at_random_beats_nothing_and_the_chart_beats_all(test_set):
    tables = (
        reference_table(test_set, "optimal", greedy, 7)
        | reference_table(test_set, "random", at_random, 7)
        | reference_table(test_set, "none", greedy, 0)
        | full_information_table(test_set)
    )
    by = {name: accuracy.mean for name, accuracy in tables.accuracies.items()}
    assert by["bayes_full_information"] > by["optimal"] > by["none"]
    assert by["optimal"] >= by["random"]
    assert tables.doctors["none"].overall.mean("turns") == 1
    assert tables.doctors["optimal"].overall.mean("valid_question_rate") == 1
    assert tables.doctors["bayes_full_information"].overall.measures["reward"] is None
    assert set(test_set.rows) == {"optimal", "random", "none", "bayes_full_information"}


def test_the_same_reference_doctor_is_the_same_twice(test_set):
    assert (
        reference_table(test_set, "a", at_random, 5).doctors["a"]
        == reference_table(test_set, "b", at_random, 5).doctors["b"]
    )


def test_two_doctors_are_compared_case_by_case(test_set):
    reference_table(test_set, "optimal", greedy, 7)
    reference_table(test_set, "none", greedy, 0)
    ((name, found),) = comparison(test_set, "optimal", "none").comparisons.items()
    assert name == "optimal minus none"
    rows = [
        (a["accuracy"], b["accuracy"]) for a, b in zip(test_set.rows["optimal"], test_set.rows["none"], strict=True)
    ]
    assert found.measures["accuracy"].mean == pytest.approx(np.mean([a - b for a, b in rows]))
    assert found.mcnemar.only_first == sum(a > b for a, b in rows)
    assert found.mcnemar.only_second == sum(a < b for a, b in rows)
    ((_, itself),) = comparison(test_set, "none", "none").comparisons.items()
    assert itself.mcnemar.p == 1


def test_a_policy_plays_every_case_and_what_it_played_is_kept(test_set, tmp_path):
    test_set.cases = test_set.cases[:6]
    base = ROOT / "models/base"
    table = policy_table(test_set, "base", base, 3, "", tmp_path / "kept", nobody)
    overall = table.doctors["base"].overall
    assert overall.cases == 6
    assert 1 <= overall.mean("turns") <= 3
    played = read_trajectories(tmp_path / "kept" / "rollout.parquet")
    scores = read_scores(tmp_path / "kept" / "scores.parquet")
    assert [t.case_id for t in played] == [case.case_id for case in test_set.cases]
    assert overall.mean("reward") == pytest.approx(np.mean([score.reward for score in scores]), abs=1e-4)
    again = policy_table(test_set, "again", base, 3, "", None, nobody)
    assert again.doctors["again"] == table.doctors["base"]
    assert table.patients == {}


def test_with_the_chart_a_policy_has_one_turn_and_top3_is_at_least_accuracy(test_set):
    test_set.cases = test_set.cases[:12]
    table = policy_table(test_set, "chart", ROOT / "models/base", 1, "chart", None, nobody).doctors["chart"].overall
    assert table.mean("turns") == 1
    assert table.mean("top3") >= table.mean("accuracy")


def evaluation(**means) -> Evaluation:
    def doctor(mean):
        measures = {"accuracy": Interval(mean, mean - 0.1, mean + 0.1), "turns": Interval(3.0, 3.0, 3.0)}
        return DoctorTable(Summary(100, measures | dict.fromkeys(("top3", "reward", "fact_recall"))), {})

    return Evaluation(doctors={name: doctor(mean) for name, mean in means.items()})


def records(cases, count):
    """As if they had been imported: of no clinic, told by their headings."""
    kept = {split: [case for case in cases if case.split == split][:count] for split in ("train", "test")}
    return [replace(case, source="records", case_id=f"r-{case.case_id}") for split in kept.values() for case in split]


@pytest.fixture(scope="module")
def two_sources(params, cases, tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    table = read_cases(cases / "cases.parquet")
    write_cases([*table, *records(table, 300)], folder / "cases.parquet")
    return open_evaluation_sets(params, folder, Path("unused"))


@pytest.mark.slow
def test_every_source_is_beaten_by_something_better_than_the_commonest_diagnosis(two_sources):
    starter, imported = two_sources
    assert [one.first for one in two_sources] == [True, False]
    assert {case.split for case in imported.seen} == {"train"}
    assert {case.source for case in imported.seen} == {"records"}
    assert set(fitted_tables(starter).doctors) == {COMMONEST}
    tables = fitted_tables(imported)
    by = {name.removesuffix("@records"): table.overall for name, table in tables.doctors.items()}
    assert set(by) == {COMMONEST, *(f"fitted_bayes{rest}" for rest in ("", "_no_questions", "_full_information"))}
    assert by["fitted_bayes"].mean("accuracy") > by[COMMONEST].mean("accuracy")
    assert by["fitted_bayes_full_information"].mean("accuracy") > by["fitted_bayes_no_questions"].mean("accuracy")
    assert by["fitted_bayes"].mean("turns") > by["fitted_bayes_no_questions"].mean("turns") == 1
    assert by["fitted_bayes_full_information"].measures["reward"] is None
    assert all(summary.mean("top3") >= summary.mean("accuracy") for summary in by.values())


def test_without_training_cases_there_is_no_fitted_doctor(two_sources):
    two_sources[1].seen, seen = (), two_sources[1].seen
    assert fitted_tables(two_sources[1]) == Evaluation()
    two_sources[1].seen = seen


def test_a_chart_that_does_not_fit_gives_no_accuracy_but_a_reason(params, cases):
    short = params.model_copy(update={"rollout": params.rollout.model_copy(update={"max_episode_tokens": 60})})
    (test_set,) = open_evaluation_sets(short, cases, Path("unused"))
    test_set.cases = test_set.cases[:4]
    overall = policy_table(test_set, "chart", ROOT / "models/base", 1, "chart", None, nobody).doctors["chart"].overall
    assert overall.withheld == "n/a: 100% without a turn"
    assert overall.missing == {case.case_id: "without a turn" for case in test_set.cases}
    assert overall.accuracy is None
    assert told(overall) == "n/a: 100% without a turn"
    test_set.rows["other"] = test_set.rows["chart"]
    assert comparison(test_set, "chart", "other").comparisons["chart minus other"].mcnemar is None


def test_the_test_cases_are_a_sample_that_no_seed_changes(params, cases, test_set):
    assert list(test_set.cases) != read_cases(cases / "cases.parquet", "test")[:COUNT]
    other = params.model_copy(update={"seed": params.seed + 1})
    assert open_evaluation_sets(other, cases, Path("unused"))[0].cases == test_set.cases


@pytest.mark.parametrize(
    ("means", "closed"),
    [
        ({"trained": 0.5, "warm_start": 0.3, "bayes_optimal": 0.7}, 0.5),
        ({"trained": 0.2, "warm_start": 0.3, "bayes_optimal": 0.7}, -0.25),
        ({"trained": 0.5, "warm_start": 0.7, "bayes_optimal": 0.7}, math.nan),
        ({"trained": 0.5, "warm_start": 0.3}, math.nan),
    ],
)
def test_closed_distance(means, closed):
    assert closed_distance(evaluation(**means)) == pytest.approx(closed, nan_ok=True)


def test_the_headline_leaves_out_what_nobody_measured():
    assert headline(evaluation(trained=0.5, warm_start=0.25, **{"trained@mine": 0.75})) == {
        "trained": 0.5,
        "trained@mine": 0.75,
        "trained_high": 0.6,
        "trained_low": 0.4,
        "turns": 3.0,
        "warm_start": 0.25,
    }
    assert headline(evaluation(**{"trained@mine": 0.75, "warm_start@mine": 0.5, "trained@others": 0.25})) == {
        "trained@mine": 0.75,
        "trained@others": 0.25,
        "trained_high": 0.85,
        "trained_low": 0.65,
        "turns": 3.0,
        "warm_start@mine": 0.5,
    }
    stored = json.loads((ROOT / "metrics/evaluate_doctor.json").read_text())
    shipped = headline(Evaluation.from_json(stored))
    assert shipped["trained"] == stored["trained"]["overall"]["accuracy"]["mean"]
    assert {"reward", "top3", "red_flags_missed", "p_against_warm_start", "closed"} < set(shipped)
    assert len(shipped) <= 12


def test_the_table_says_what_is_missing_with_a_dash(tmp_path):
    lines = table_text(evaluation(trained=0.5, warm_start=0.25), texts("en")).splitlines()
    assert lines[1].split() == ["trained", "0.500", "[0.400,", "0.600]", "-", "-", "3.00", "-"]
    write_accuracy_plot(evaluation(trained=0.5), tmp_path / "plots" / "a.csv")
    with (tmp_path / "plots" / "a.csv").open() as file:
        assert list(csv.DictReader(file)) == [
            {"doctor": "trained", "accuracy": "0.5", "low": "0.4", "high": "0.6", "turns": "3.0"}
        ]


def test_the_table_says_what_is_missing_few_or_unknown():
    measures = {"accuracy": Interval(0.5, 0.4, 0.6), "unplaced": Interval(0.25, 0.1, 0.4)}
    doctors = {
        "whole": Summary(600, measures | {"unplaced": Interval(0.0, 0.0, 0.1)}),
        "small": Summary(12, measures, {"a": "failed"}),
        "chart@records": Summary(50, {"accuracy": None}, dict.fromkeys(map(str, range(6)), "without a turn")),
        "asked@questions": Summary(5, {"accuracy": None}),
    }
    text = table_text(
        Evaluation(doctors={name: DoctorTable(summary, {}) for name, summary in doctors.items()}), texts("en")
    )
    _, whole, small, chart, unplaced = text.splitlines()
    assert whole.split() == ["whole", "0.500", "[0.400,", "0.600]", "-", "-", "-", "-"]
    assert small.endswith("n = 11, below 20  1 missing")
    assert chart.split(maxsplit=1) == ["chart@records", "n/a: 12% without a turn"]
    assert unplaced == "small: 25.0% of answers are names that no rule knows"


def test_what_is_looked_at_is_the_best_the_worst_and_the_first_ones():
    scores = [Scores(str(i), ({"r": value},)) for i, value in enumerate([0.2, 0.9, -1.0, 0.3, 0.4])]
    chosen, kept = trajectories_of_note(["a", "b", "c", "d", "e"], scores, 4)
    assert chosen == ["b", "c", "a", "d"]
    assert [score.reward for score in kept] == [0.9, -1.0, 0.2, 0.3]
    assert trajectories_of_note(["a"], scores[:1], 3) == (["a"], scores[:1])
    assert trajectories_of_note(["a"], scores[:1], 0) == ([], [])
    unscored = Scores("5", ())  # neither the worst, nor, among losses, the best
    assert trajectories_of_note(["x", "a", "b"], [unscored, *scores[:2]], 2)[0] == ["b", "a"]
    assert trajectories_of_note(["x"], [unscored], 2) == (["x"], [unscored])
