"""Where a training goes on, by what is on disk."""

import json
import shutil
from types import SimpleNamespace

import pytest

from tasks.training import restore


@pytest.fixture
def run(tmp_path):
    """Six steps, a checkpoint after every second."""
    restored = []
    run = SimpleNamespace(
        folder=tmp_path,
        step_folder=lambda step: tmp_path / "steps" / f"{step:05d}",
        session=SimpleNamespace(restore=lambda folder: restored.append(folder.name)),
        restored=restored,
    )
    for step in range(1, 7):
        run.step_folder(step).mkdir(parents=True)
        (run.step_folder(step) / "metrics.json").write_text(json.dumps({"step": step}))
        if step % 2 == 0:
            (tmp_path / f"global_step_{step}").mkdir()
            (tmp_path / f"global_step_{step}" / "complete.json").write_text("{}")
    return run


def test_it_goes_on_after_the_last_checkpoint(run):
    assert restore.fn(run) == (6, {"step": 6})
    assert run.restored == ["global_step_6"]


@pytest.mark.parametrize(("deleted", "step"), [(6, 4), (5, 4), (4, 2), (2, 0), (1, 0)])
def test_a_step_whose_folder_was_deleted_is_played_again(run, deleted, step):
    shutil.rmtree(run.step_folder(deleted))
    assert restore.fn(run) == ((step, {"step": step}) if step else (0, {}))
    assert run.restored == ([f"global_step_{step}"] if step else [])


def test_a_checkpoint_whose_step_was_not_finished_is_none(run):
    (run.step_folder(6) / "metrics.json").unlink()
    assert restore.fn(run)[0] == 4


def test_nothing_done_is_the_warm_start(run):
    shutil.rmtree(run.folder / "steps")
    shutil.rmtree(run.folder / "global_step_6")
    assert restore.fn(run) == (0, {})
    assert run.restored == []
