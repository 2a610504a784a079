"""Making the base model, tiny: phase by phase, resumed where it was killed."""

from itertools import pairwise

import numpy as np
import pytest

import tasks.base_model
from doctor.base_model_recipe import BaseModelParams, load_base_model_params, load_reader_params
from doctor.parameters import ROOT
from rl.files import folder_hash
from rl.models import load_model
from tasks.base_model import READER, deliver, phase_folder, read_first, teach_reading, teach_round

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
    deliver.fn(phase_folder(params, len(params.base_model.rounds)), out)


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


def test_the_reader_goes_on_from_the_finished_model_round_by_round(home, caplog):
    raw = load_reader_params().model_dump()
    few = {"lists": 4, "exercises": 3, "searches": 3, "dialogues": 3, "checklists": 1}
    section = raw["base_model"]["reader"]
    section |= {"invented": 60, "rounds": [lesson | few for lesson in section["rounds"][:2]]}
    params = BaseModelParams.model_validate(raw)
    base = load_model(str(ROOT / section["base"]), "float32")[0]
    teach_reading.fn(params, 1)
    teach_reading.fn(params, 2)
    first, second = (load_model(str(phase_folder(params, n, READER)), "float32")[0] for n in (1, 2))
    for before, after in pairwise([base, first, second]):
        assert any((a != b).any() for a, b in zip(before.parameters(), after.parameters(), strict=True))
    kept = folder_hash(phase_folder(params, 2, READER))
    with caplog.at_level("INFO"):
        teach_reading.fn(params, 2)
    assert "was done by an earlier run" in caplog.text
    assert folder_hash(phase_folder(params, 2, READER)) == kept
    assert phase_folder(params, 1, READER).parent != phase_folder(params, 1).parent
