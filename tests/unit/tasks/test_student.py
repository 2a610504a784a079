"""A teacher's and its student's curves, whoever plays what is learned from."""

from pathlib import Path
from types import SimpleNamespace

import pytest

import tasks.student as module
from clinic.starter import draw_cases
from doctor.environments import open_factory
from doctor.parameters import load_params
from rl.algorithms import make_algorithm
from rl.algorithms.adaptation import FoldParams
from rl.environment import EpisodeSpec
from rl.parts import ACTOR, POLICY
from tasks import selection
from tests.recipes import recipe

PLAYED = {"reward/mean": 0.5, "reward/information": 0.1, "rollout/accuracy": 0.25, "rollout/turns": 6.0, "x": 1.0}
LOOKED = {"reward/mean": 0.2, "rollout/accuracy": 0.125, "rollout/turns": 4.0}


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps in which the student played beside the teacher."""
    steps: list[int] = []
    monkeypatch.setattr(module, "student", lambda _, step: steps.append(step) or LOOKED)
    return steps


def a_run(name: str, **changes: object) -> SimpleNamespace:
    return SimpleNamespace(algorithm=make_algorithm(recipe(name, **changes)))


def test_while_the_teacher_plays_the_student_is_looked_at_and_then_it_is_the_one_who_plays(looked: list[int]) -> None:
    run = a_run("ppo_roa", train_steps=2)
    assert [run.algorithm.player(version) for version in range(4)] == [ACTOR, ACTOR, POLICY, POLICY]
    found = [module.side_by_side(run, step, PLAYED) for step in (1, 2, 3)]
    assert looked == [1, 2]
    assert found[0] == {
        "teacher/reward": 0.5,
        "teacher/information": 0.1,
        "teacher/accuracy": 0.25,
        "teacher/turns": 6.0,
        "student/reward": 0.2,
        "student/accuracy": 0.125,
        "student/turns": 4.0,
    }
    assert found[2] == {
        "student/reward": 0.5,
        "student/information": 0.1,
        "student/accuracy": 0.25,
        "student/turns": 6.0,
    }


def test_who_has_no_teacher_has_no_student(looked: list[int]) -> None:
    assert module.side_by_side(a_run("ppo"), 1, PLAYED) == {}
    assert looked == []


class Desk:
    """A session that notes what it is asked to play."""

    policy_version = 0

    def __init__(self) -> None:
        self.asked: list[EpisodeSpec] = []

    def rollout(self, specs: list[EpisodeSpec], *_: object) -> list[object]:
        self.asked += specs
        return []

    def load(self, _: Path) -> None:
        """Whatever it is."""

    def fold(self, *_: object) -> dict[str, float]:
        return {"fold/kl_before": 1.0, "fold/kl_after": 0.5}


def test_what_a_student_plays_beside_its_teacher_and_to_be_folded_begins_as_in_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params = load_params()
    params = params.model_copy(
        update={"train_doctor": params.train_doctor.model_copy(update={"searches_every": 2, "steps": 3})}
    )
    factory = open_factory(params, Path("unused"))
    cases = list(draw_cases(factory.clinic, 6, 1, params.patient_cases.split))[:4]
    run = SimpleNamespace(
        params=params,
        factory=factory,
        session=Desk(),
        cases=lambda *_: cases,
        algorithm=SimpleNamespace(group_size=2),
    )
    monkeypatch.setattr(module, "scores_of", lambda *_: [])
    monkeypatch.setattr(module, "step_metrics", lambda *_: {})
    module.student.fn(run, 1)
    assert [spec.opened for spec in run.session.asked] == ["search", "", "search", ""]
    run.session = Desk()
    selection.fold(run, FoldParams.model_validate(recipe("ppo_roa")["fold"] | {"rollouts": 1}), Path("unused"))
    assert [spec.opened for spec in run.session.asked] == ["search"] * 2 + [""] * 2 + ["search"] * 2 + [""] * 2
