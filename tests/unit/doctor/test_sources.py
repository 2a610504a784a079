"""Weights of sources: whose cases are played, and how much each counts in validation."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from clinic.cases import QUESTIONS
from clinic.events import Diagnosed
from clinic.splits import sampled
from clinic.starter import draw_cases
from doctor.environments import open_factory
from doctor.parameters import ParameterError, load_params
from doctor.scoring import accuracy, accuracy_by_source, weighted_accuracy
from doctor.sources import cases_of_draw, check_weights, quotas
from doctor.training import validation_cases

PARAMS = load_params()
WEIGHTS = {"starter": 1.0, "mine": 3.0}


@pytest.fixture(scope="module")
def cases():
    drawn = list(draw_cases(open_factory(PARAMS, Path("unused")).clinic, 60, 1, PARAMS.patient_cases.split))
    return [*drawn[:50], *(replace(case, source="mine") for case in drawn[50:])]


def played(cases, prompts, draws, seed, weights):
    return [case for number in range(draws) for case in cases_of_draw(cases, prompts, number, seed, weights)]


def test_without_weights_or_with_one_source_nothing_changes(cases):
    plain = played(cases[:50], 7, 20, 3, None)
    assert played(cases[:50], 7, 20, 3, {}) == plain
    assert played(cases[:50], 7, 20, 3, {"starter": 0.4}) == plain


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sources_have_their_share_of_any_prompts(cases, seed):
    order = [case.source for case in played(cases, 16, 25, seed, WEIGHTS)]
    for first in range(0, 400, 40):
        assert 8 <= Counter(order[first : first + 40])["starter"] <= 12
    assert 97 <= Counter(order)["starter"] <= 103
    assert [case.source for case in cases_of_draw(cases, 16, 0, seed, None)].count("mine") < 8  # as many as there are


def test_every_case_of_a_source_is_played_before_one_comes_again(cases):
    mine = [case.case_id for case in played(cases, 16, 25, 0, WEIGHTS) if case.source == "mine"]
    for first in range(0, len(mine) - 10, 10):
        assert len(set(mine[first : first + 10])) == 10
    assert len({tuple(mine[first : first + 10]) for first in range(0, 100, 10)}) > 5  # in another order


def test_a_draw_is_a_function_of_seed_and_number(cases):
    assert cases_of_draw(cases, 16, 7, 0, WEIGHTS) == cases_of_draw(cases, 16, 7, 0, WEIGHTS)
    assert played(cases, 8, 4, 0, WEIGHTS) == played(cases, 16, 2, 0, WEIGHTS)  # whatever the size of a draw
    assert cases_of_draw(cases, 16, 7, 0, WEIGHTS) != cases_of_draw(cases, 16, 7, 1, WEIGHTS)


def test_a_source_of_weight_zero_is_left_out(cases):
    assert {case.source for case in played(cases, 16, 5, 0, {"starter": 0.0, "mine": 1.0})} == {"mine"}


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ({"starter": 1.0, "mime": 1.0}, "names 'mime', of which there is no training case; did you mean mine\\?; there are: starter, mine"),
        ({"starter": 1.0}, "gives 'mine' no weight; name every source"),
        ({"starter": 0.0, "mine": 0.0}, "all weights are 0"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_are_one_line(cases, weights, told):
    with pytest.raises(ParameterError, match=told):
        check_weights(weights, cases, "training")


def with_weights(weights, most):
    plan = PARAMS.train_doctor.model_copy(update={"source_weights": weights, "validation_cases": most})
    return PARAMS.model_copy(update={"train_doctor": plan})


def test_validation_holds_the_mix(cases):
    assert quotas(cases, 9, WEIGHTS) == {"starter": 2, "mine": 7}
    assert quotas(cases, 40, WEIGHTS) == {"starter": 10, "mine": 10}  # all that there are
    assert validation_cases(cases, with_weights({}, 12)) == sampled(cases, 12, PARAMS.patient_cases.split.salt)
    chosen = validation_cases(cases, with_weights({**WEIGHTS, QUESTIONS: 1.0}, 8))
    assert Counter(case.source for case in chosen) == {"starter": 2, "mine": 6}
    with pytest.raises(ParameterError, match="no validation case"):
        validation_cases(cases[:50], with_weights(WEIGHTS, 8))


def test_accuracy_is_weighted_by_source(cases):
    chosen = [*cases[:4], *cases[50:52]]
    right = {case.case_id for case in (*chosen[:1], *chosen[4:])}
    said = {case.case_id: case.diagnosis if case.case_id in right else "?" for case in chosen}
    trajectories = [
        SimpleNamespace(case_id=case_id, played=True, events=(Diagnosed(name, "").to_json(),))
        for case_id, name in said.items()
    ]
    assert accuracy_by_source(chosen, trajectories) == {"starter": 0.25, "mine": 1.0}
    assert weighted_accuracy(chosen, trajectories, {}) == accuracy(chosen, trajectories) == 0.5
    assert weighted_accuracy(chosen, trajectories, WEIGHTS) == pytest.approx(0.25 * 0.25 + 0.75)
