"""A training run as an object: what it plays, what it keeps, what it goes on from."""

import csv
import json
from types import SimpleNamespace

import pytest
import torch

from clinic.cases import write_cases
from clinic.starter import draw_cases
from doctor import training
from doctor.parameters import ROOT, ParameterError, load_params
from doctor.recipe import parse_algorithm
from doctor.scoring import score_all
from doctor.training import has_enough_groups, history, open_training, plan_text, with_policy, write_curve
from rl.errors import TrainingError
from rl.experience import intact
from rl.files import write_json
from rl.workers.group import WorkerLostError
from tests.recipes import recipe

SMALL = {
    "rollout": {"prompts": 2, "slots": 8},
    "train_doctor": {"steps": 3, "validation_cases": 5},
    "evaluate_doctor": {"cases": 5},
}


def params(**changes):
    found = load_params().model_dump()
    for section, values in (SMALL | changes).items():
        found[section] |= values
    return type(load_params()).model_validate(found)


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Opens a training of the bundled base model whose files lie in a folder of the test."""
    data = load_params()
    (tmp_path / "cases").mkdir()
    made = training.open_factory(data, tmp_path).clinic
    write_cases(list(draw_cases(made, 60, 2, data.patient_cases.split)), tmp_path / "cases" / "cases.parquet")
    (tmp_path / "index").mkdir()
    monkeypatch.setattr(training, "HOME", tmp_path)

    def begin(name="grpo", changes=None, **numbers):
        chosen = params(**(changes or {}))
        algorithm = parse_algorithm(recipe(name, **numbers), chosen, ROOT / "recipes" / f"{name}.yaml")
        monkeypatch.setattr(training, "load_algorithm", lambda _: algorithm)
        return open_training(chosen, ROOT / "models/base", tmp_path / "cases", tmp_path / "index")

    return begin


GROUPS = {"group_size": 4, "optimizer": {"mini_batch_size": 8}}


def play(run, step, draw=0):
    """Play and score one draw of a step."""
    cases = run.cases(step, draw)
    specs = run.factory.episodes(cases, run.algorithm.group_size, 0, step, first=draw * 2)
    run.keep_played(step, draw, run.session.rollout(specs, 0.5))
    run.keep_scored(step, draw, score_all(run.scorer, cases, run.played(step, draw)))


def test_what_is_played_is_at_hand_and_on_disk_and_the_same_after_a_kill(opened):
    run = opened(**GROUPS)
    play(run, 1)
    trajectories, scores = run.experience(1)
    assert len(trajectories) == len(scores) == 8
    assert intact(run.rollout_file(1, 0))
    assert intact(run.scores_file(1, 0))
    again = opened(**GROUPS)
    assert again.folder == run.folder
    assert again.experience(1) == (trajectories, scores)


def test_validation_and_training_cases_are_of_their_splits(opened):
    run = opened(**GROUPS)
    assert {case.split for case in run.train} == {"train"}
    assert {case.split for case in run.validation} == {"validation"}
    assert len(run.validation) == 5


def test_steps_play_other_cases_and_a_step_the_same_ones_again(opened):
    run = opened(**GROUPS)
    first, second = ([case.case_id for case in run.cases(step, 0)] for step in (1, 2))
    assert not set(first) & set(second)
    assert first == [case.case_id for case in run.cases(1, 0)]


def test_without_dynamic_sampling_one_draw_is_enough(opened):
    run = opened(**GROUPS)
    assert (run.max_draws, run.plays_first) == (1, False)
    assert has_enough_groups(run, 1, 1)


@pytest.mark.slow
def test_dynamic_sampling_draws_until_enough_groups_tell_something(opened):
    run = opened("dapo", dynamic_sampling={"max_num_gen_batches": 3, "by": "reward"}, **GROUPS)
    assert run.max_draws == 3
    play(run, 1, 0)
    play(run, 1, 1)
    assert len(run.experience(1)[0]) == 16
    assert len(run.experience(1, 1)[0]) == 8
    cases = [case.case_id for draw in range(3) for case in run.cases(1, draw)]
    assert len(set(cases)) == 6
    assert has_enough_groups(run, 1, 2)


def test_offline_learning_plays_first(opened):
    assert opened("dpo", group_size=4, pairs_per_group=2, optimizer={"mini_batch_size": 8}).plays_first


def test_pairs_of_a_file_are_planned_as_they_will_be_learned(opened, tmp_path):
    """41 pairs in 3 steps are at most 14 a step; mini-batches of 8 pairs: two updates each, four in the warm-up.

    Two cases x 4 samples would be 8 trajectories, fewer than the mini-batch, and are not played.
    """
    pairs = tmp_path / "pairs.jsonl"
    row = {"prompt": "hello", "chosen": "Any fever?", "rejected": "No."}
    pairs.write_text("\n\n".join(json.dumps(row) for _ in range(41)) + "\n")
    numbers = {"group_size": 4, "pairs_per_group": 2, "pairs": str(pairs)}
    run = opened("dpo", **numbers, optimizer={"mini_batch_size": 16, "warmup_rollout_steps": 2})
    assert [len(run.experience(step)[0]) for step in (1, 2, 3)] == [26, 28, 28]
    learner = run.session.learner
    assert learner.optimizers.warmup_gradient_steps(*learner.algorithm.passes(0)) == 4
    assert plan_text(run.params, run.algorithm) == (
        "14 pairs of a file a rollout step, 2 gradient steps each; 3 rollout steps; warm-up 2 rollout steps = 4 gradient steps"
    )
    pairs.write_text(json.dumps(row) + "\n")
    with pytest.raises(ParameterError, match=r"steps is 3, but pairs.jsonl holds 1 preference pairs.*lower it"):
        opened("dpo", **numbers, optimizer={"mini_batch_size": 8})


@pytest.mark.slow
def test_a_policy_that_is_lost_is_learned_again_from_the_last_checkpoint(opened):
    """Steps 2 and 3 have none, as with `save_freq` above 1."""
    run = opened(**GROUPS)
    for step in (1, 2, 3):
        play(run, step)
        run.session.learn(*run.lesson(step)[:2], step)
        if step == 1:
            run.session.save(run.folder, step)

    def weights():
        return {name: value.clone() for name, value in run.session.model.state_dict().items()}

    expected, times = weights(), []

    def lost_once():
        times.append(run.session.policy_version)
        if len(times) == 1:
            run.session.reset()
            raise WorkerLostError("trainer 0 died", 0)
        return weights()

    found = with_policy(run, 3, lost_once)
    assert times == [3, 3]
    assert all(torch.equal(value, found[name]) for name, value in expected.items())
    assert with_policy(run, 0, lambda: run.session.policy_version) == 0


def test_another_number_is_another_run(opened):
    one = opened(**GROUPS)
    other = opened(changes={"consultation": {"turn_budget": 4}}, **GROUPS)
    threads = opened(changes={"machines": {"threads": 3}}, **GROUPS)
    assert one.folder != other.folder
    assert one.folder == threads.folder


def test_what_does_not_fit_is_refused_before_anything_is_loaded(opened, monkeypatch):
    monkeypatch.setattr(training, "available_bytes", lambda _device: 10_000_000)
    monkeypatch.setattr(training, "open_session", lambda *_: pytest.fail("the model was loaded"))
    with pytest.raises(TrainingError, match="GiB"):
        opened(**GROUPS)


def test_the_curve_has_every_step_and_no_clock(tmp_path):
    run = SimpleNamespace(folder=tmp_path)
    write_json(tmp_path / "steps" / "00002" / "metrics.json", {"reward/mean": 0.5, "time/rollout_s": 3.0, "late": 1.0})
    write_json(tmp_path / "steps" / "00001" / "metrics.json", {"reward/mean": 0.25, "time/rollout_s": 4.0})
    assert [row["step"] for row in history(run)] == [1, 2]
    write_curve(run, tmp_path / "plots" / "curve.csv")
    with (tmp_path / "plots" / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows == [
        {"step": "1", "late": "", "reward/mean": "0.25"},
        {"step": "2", "late": "1.0", "reward/mean": "0.5"},
    ]


def test_the_plan_counts_updates(opened):
    chosen = params()
    algorithm = parse_algorithm(recipe("grpo", **GROUPS), chosen, ROOT / "recipes" / "grpo.yaml")
    assert plan_text(chosen, algorithm).startswith(
        "2 cases x 4 samples = 8 trajectories a rollout step, 1 gradient step"
    )
    assert json.dumps(SMALL)
