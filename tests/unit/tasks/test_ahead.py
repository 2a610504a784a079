"""Playing one step ahead of the learner: who waits for whom, with which policy, and what is refused."""

import threading
from types import SimpleNamespace

import pytest

import tasks.rollout
from doctor.parameters import ROOT, ParameterError, load_params
from doctor.recipe import parse_algorithm
from tests.recipes import recipe


class Desk:
    """A session that only knows which policy it holds."""

    def __init__(self) -> None:
        self.policy_version = self.held = 0

    def hold(self) -> None:
        self.held = self.policy_version


def a_run(desk: Desk, ahead: int, *, plays_first: bool = False) -> SimpleNamespace:
    return SimpleNamespace(
        session=desk, params=SimpleNamespace(rollout=SimpleNamespace(ahead=ahead)), plays_first=plays_first
    )


def played(ahead: int, steps: range, *, plays_first: bool = False) -> tuple[Desk, list[tuple[int, int]], list[bool]]:
    """What each step was played with, and whether the next one was under way while the caller learned."""
    desk, log, beside = Desk(), [], []
    begun = {step: threading.Event() for step in steps}

    def experience(_: SimpleNamespace, step: int) -> dict[str, float]:
        if not ahead:
            desk.hold()
        begun[step].set()
        log.append((step, desk.held))
        return {"step": float(step)}

    for step, metrics in tasks.rollout.in_turn(a_run(desk, ahead, plays_first=plays_first), steps, experience):
        assert metrics == {"step": float(step)}
        if step + 1 in steps:
            beside.append(begun[step + 1].wait(5 if ahead else 0))
        desk.policy_version += 1  # learns
    return desk, log, beside


def test_in_turn_each_step_is_played_with_what_was_learned_before():
    _, log, beside = played(0, range(1, 5))
    assert log == [(1, 0), (2, 1), (3, 2), (4, 3)]
    assert beside == [False, False, False]


def test_ahead_the_next_step_is_played_with_the_policy_before_the_update_while_that_is_made():
    _, log, beside = played(1, range(1, 5))
    assert log == [(1, 0), (2, 0), (3, 1), (4, 2)]
    assert beside == [True, True, True]
    assert played(1, range(7, 7))[1] == []


def test_an_offline_algorithm_plays_all_before_it_learns():
    _, log, beside = played(0, range(1, 5), plays_first=True)
    assert log == [(1, 0), (2, 0), (3, 0), (4, 0)]
    assert beside == [True, True, True]


def test_an_experience_that_fails_is_told_to_the_caller():
    with pytest.raises(ZeroDivisionError):
        list(tasks.rollout.in_turn(a_run(Desk(), 1), range(1, 3), lambda _, step: {"x": 1 / (2 - step)}))


PARAMS = load_params()
AHEAD = PARAMS.model_copy(update={"rollout": PARAMS.rollout.model_copy(update={"ahead": 1})})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("grpo", "does not correct for it; set sampler_correction.level"),
        ("online_dpo", "online_dpo cannot do"),
        ("dapo", "dapo cannot do"),
    ],
)
def test_what_is_not_corrected_for_is_refused(name, told):
    with pytest.raises(ParameterError, match=told):
        parse_algorithm(recipe(name), AHEAD, ROOT / "recipes" / f"{name}.yaml")


def test_in_one_process_it_needs_weights_of_its_own(tmp_path):
    text = (ROOT / "params.yaml").read_text().replace("  ahead: 0", "  ahead: 1")
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(ParameterError, match=r"ahead 1 needs an engine with weights of its own.*machines.backend ray"):
        load_params(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_text(
        text.replace("  backend: local", "  backend: ray").replace("threads: auto", "threads: 1")
    )
    assert load_params(tmp_path / "params.yaml").rollout.ahead == 1


def test_with_a_correction_it_is_allowed():
    algorithm = parse_algorithm(
        recipe("grpo", sampler_correction={"level": "token"}), AHEAD, ROOT / "recipes" / "grpo.yaml"
    )
    assert algorithm.recipe.sampler_correction.level == "token"
