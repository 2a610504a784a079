"""When training ends early, by what is on disk."""

import json
from types import SimpleNamespace

import pytest

from tasks.selection import ends, validations_since_best


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
    return SimpleNamespace(folder=folder, params=SimpleNamespace(train_doctor=plan))


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
