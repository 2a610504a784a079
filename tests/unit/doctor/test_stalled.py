"""Steps that teach nothing: warned about, and the end of a run that has too many in a row."""

import json
import logging
import re
from types import SimpleNamespace

import pytest

from doctor.stalled import refuse_if_stalled
from rl.algorithms import make_algorithm
from rl.errors import TrainingError
from tests.recipes import recipe

SILENT = {"stalled": 1.0, "gradient_steps": 4.0, "skipped_updates": 0.0, "groups": 16.0, "groups_without_signal": 16.0}
EMPTY = {"stalled": 1.0, "gradient_steps": 0.0, "skipped_updates": 0.0}


def run_of(folder, steps=12, limit=3, algorithm="grpo", stalled=()):
    """A run whose earlier steps are on disk, some of them stalled."""
    for step in range(1, steps):
        (folder / f"{step:05d}").mkdir(parents=True)
        told = {"learn/stalled": float(step in stalled), "learn/gradient_steps": 4.0}
        (folder / f"{step:05d}" / "metrics.json").write_text(json.dumps(told))
    plan = SimpleNamespace(steps=steps, max_stalled_steps=limit)
    return SimpleNamespace(
        params=SimpleNamespace(train_doctor=plan),
        algorithm=make_algorithm(recipe(algorithm)),
        step_folder=lambda step: folder / f"{step:05d}",
    )


def test_a_step_that_teaches_is_not_mentioned(tmp_path, caplog):
    refuse_if_stalled(run_of(tmp_path, stalled=(3, 4)), 5, SILENT | {"stalled": 0.0})
    assert not caplog.records


def test_the_third_in_a_row_ends_the_run_and_those_before_are_warned_about(tmp_path, caplog):
    run = run_of(tmp_path, stalled=(2, 4, 5))
    with caplog.at_level(logging.WARNING):
        refuse_if_stalled(run, 3, SILENT)  # of 4 and 5 a resumed run knows nothing yet
    assert caplog.messages == ["rollout step 3 taught nothing: in each of 16 groups all samples scored the same"]
    with pytest.raises(TrainingError, match=r"step 6 taught nothing.* since step 4 .*max_stalled_steps is 3"):
        refuse_if_stalled(run, 6, SILENT)
    assert len(caplog.messages) == 1


def test_a_short_run_of_nothing_else_fails_too(tmp_path, caplog):
    run = run_of(tmp_path, steps=2, stalled=(1,))
    refuse_if_stalled(run, 1, EMPTY)
    with pytest.raises(TrainingError, match=r"since step 1 \(which is the whole run\)"):
        refuse_if_stalled(run, 2, EMPTY)


@pytest.mark.parametrize(
    ("algorithm", "metrics", "reason"),
    [
        ("dapo", EMPTY | {"groups_drawn": 48.0, "groups_dropped": 48.0}, r"48 groups drawn .* the same diagnosis"),
        ("dapo", EMPTY | {"groups_drawn": 48.0, "groups_dropped": 40.0}, "no episode or pair has anything"),
        ("online_dpo", EMPTY, "no episode or pair has anything"),
        ("grpo", EMPTY | {"gradient_steps": 2.0, "skipped_updates": 2.0}, "no gradient was finite"),
    ],
)
def test_it_says_why(tmp_path, caplog, algorithm, metrics, reason):
    refuse_if_stalled(run_of(tmp_path, algorithm=algorithm), 1, metrics)
    assert re.search(reason, caplog.text)
