"""Making the base model, tiny: phase by phase, resumed where it was killed."""

from itertools import pairwise

import numpy as np
import pytest

import tasks.base_model
from doctor.base_model_recipe import BaseModelParams, load_base_model_params
from rl.checkpoint import folder_hash
from rl.models import load_model
from tasks.base_model import deliver, phase_folder, read_first, teach_round

TINY = {"cases": 30, "article_repeats": 1, "vocabulary": 600, "width": 32, "layers": 1, "heads": 2}


def tiny(**changes):
    raw = load_base_model_params().model_dump()
    raw["base_model"] |= TINY | changes
    for lesson in raw["base_model"]["rounds"]:
        lesson |= {name: min(lesson[name], 6) for name in ("dialogues", "checklists", "charts") if name in lesson}
    return BaseModelParams.model_validate(raw)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks.base_model, "HOME", tmp_path)
    return tmp_path


def make(params, out):
    read_first.fn(params)
    for number in range(1, 1 + len(params.base_model.rounds)):
        teach_round.fn(params, number)
    deliver.fn(params, out)


@pytest.mark.slow
def test_each_round_teaches_and_a_killed_run_ends_with_the_same_model(home, monkeypatch):
    params = tiny()
    rounds = len(params.base_model.rounds)
    make(params, home / "whole")
    models = [load_model(str(phase_folder(params, number)), "float32")[0] for number in range(rounds + 1)]
    for before, after in pairwise(models):
        assert any((a != b).any() for a, b in zip(before.parameters(), after.parameters(), strict=True))
    assert np.isfinite(sum(float(p.sum()) for p in models[-1].parameters()))
    whole = folder_hash(home / "whole")

    monkeypatch.setattr(tasks.base_model, "HOME", home / "again")
    real, done = tasks.base_model.save_model, []

    def killed_at_the_third(model, tokenizer, out):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(out.name)
        real(model, tokenizer, out)

    monkeypatch.setattr(tasks.base_model, "save_model", killed_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        make(params, home / "resumed")
    assert not (home / "resumed").exists()
    monkeypatch.setattr(
        tasks.base_model,
        "save_model",
        lambda model, tokenizer, out: (done.append(out.name), real(model, tokenizer, out)),
    )
    make(params, home / "resumed")
    assert done == [f"phase-{number:02d}" for number in range(rounds + 1)]
    assert folder_hash(home / "resumed") == whole


def test_other_numbers_begin_anew(home):
    assert phase_folder(tiny(), 0) == phase_folder(tiny(), 0)
    assert phase_folder(tiny(seed=9), 0) != phase_folder(tiny(), 0)
