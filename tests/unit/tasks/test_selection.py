"""When training ends early, by what is on disk."""

import hashlib
import json
import shutil
from types import SimpleNamespace

import pytest

from rl.errors import TrainingError
from tasks import selection
from tasks.selection import ends, export, validations_since_best


@pytest.mark.parametrize(
    ("scores", "stale"),
    [
        ({}, 0),
        ({0: 0.4}, 0),
        ({0: 0.4, 5: 0.6, 10: 0.61}, 0),
        ({0: 0.4, 5: 0.6, 10: 0.6, 15: 0.55}, 2),  # equal is no better
        ({15: 0.55, 0: 0.4, 10: 0.6, 5: 0.6}, 2),  # in whatever order
        ({0: 0.7, 5: 0.6}, 1),  # the warm start counts
    ],
)
def test_looks_since_the_first_of_the_best(scores, stale):
    assert validations_since_best(scores) == stale


def run_of(folder, patience, scores):
    (folder / "validation").mkdir(parents=True)
    for step, accuracy in scores.items():
        (folder / "validation" / f"{step:05d}.json").write_text(json.dumps({"validation/accuracy": accuracy}))
    plan = SimpleNamespace(steps=20, patience=patience)
    train, validation = ([SimpleNamespace(case_id=name)] for name in ("seen-2", "seen-1"))
    params, algorithm = SimpleNamespace(train_doctor=plan), SimpleNamespace(fold=None)
    return SimpleNamespace(
        folder=folder, params=params, algorithm=algorithm, reward=None, train=train, validation=validation
    )


def test_a_run_ends_when_its_patience_is_used_up_and_a_resumed_one_agrees(tmp_path):
    run = run_of(tmp_path, 2, {0: 0.4, 5: 0.6, 10: 0.6, 15: 0.5})
    assert not ends(run, 5)
    assert not ends(run, 10)  # what a killed run saw at step 15 is not of step 10
    assert ends(run, 15)
    assert ends(run, 16)  # between two looks the last one counts
    assert ends(run, 20)


def test_without_patience_all_steps_are_played(tmp_path):
    run = run_of(tmp_path, None, {0: 0.9, 5: 0.6, 10: 0.6, 15: 0.5})
    assert not ends(run, 19)
    assert ends(run, 20)


def trained(folder, how, scores):
    """Four steps of which every second stays; sealed as checkpoints are."""
    run = run_of(folder, None, scores)
    for step in (2, 3, 4):
        kept = folder / f"global_step_{step}"
        kept.mkdir()
        (kept / "model.safetensors").write_bytes(b"weights of %d" % step)
        seal = {"model.safetensors": hashlib.sha256(b"weights of %d" % step).hexdigest()}
        (kept / "complete.json").write_text(json.dumps({"step": step, "files": seal}))
    run.params.train_doctor.export, run.params.train_doctor.keep_every = how, 2
    run.warm_start = folder / "warm_start"
    return run


def damaged(kept):
    (kept / "model.safetensors").write_bytes(b"weights of ?")


@pytest.mark.parametrize(
    ("how", "step", "damage"),
    [
        ("average", 2, damaged),
        ("average", 2, shutil.rmtree),
        ("best", 2, damaged),
        ("best", 2, shutil.rmtree),
        ("last", 4, damaged),
    ],
)
def test_no_doctor_is_made_of_a_damaged_checkpoint(tmp_path, how, step, damage):
    run, out = trained(tmp_path / "run", how, {2: 0.5, 4: 0.4}), tmp_path / "doctor"
    damage(run.folder / f"global_step_{step}")
    with pytest.raises(
        TrainingError, match=rf"global_step_{step}/.* is missing or damaged; delete .*global_step_{step} "
    ):
        export.fn(run, out)
    assert not out.exists()


def test_the_best_checkpoint_becomes_the_doctor_without_what_only_training_needs(tmp_path, monkeypatch):
    monkeypatch.setattr(
        selection,
        "model_card",
        lambda params, reward, train, seen, reached, steps, chosen: (
            f"{len([*train, *seen])} cases, {reached}, {steps} steps, of {chosen}"
        ),
    )
    run, out = trained(tmp_path / "run", "best", {2: 0.5, 4: 0.4}), tmp_path / "doctor"
    damaged(run.folder / "global_step_3")  # one that does not stay
    report = export.fn(run, out)
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "learned_from.txt", "model.safetensors"]
    assert (out / "README.md").read_text() == "2 cases, 0.5, 4 steps, of [2]"
    assert (out / "learned_from.txt").read_text() == "seen-1\nseen-2\n"
    assert (out / "model.safetensors").read_bytes() == b"weights of 2"
    assert (report["chosen_steps"], report["chosen_accuracy"]) == ([2], 0.5)


def test_a_doctor_that_goes_on_from_another_has_learned_from_its_cases_too(tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "model_card", lambda *_: "")
    run, out = trained(tmp_path / "run", "last", {2: 0.5, 4: 0.4}), tmp_path / "doctor"
    run.warm_start.mkdir()
    (run.warm_start / "learned_from.txt").write_text("before\nseen-1\n")
    export.fn(run, out)
    assert (out / "learned_from.txt").read_text() == "before\nseen-1\nseen-2\n"
