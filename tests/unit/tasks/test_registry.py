"""What the registry keeps shares no byte with what a later run writes over, and says where it comes from."""

import json
import shutil
import stat
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from shutil import copytree
from types import SimpleNamespace

import pytest
from ruamel.yaml import YAML

from clinic.tables import DoctorTable, Evaluation, Interval, Summary
from doctor.parameters import Params, load_params
from rl.files import folder_hash
from tasks import registry
from tasks.registry import immutable_copy
from tracking import provenance
from tracking.errors import TrackingError


def test_a_registered_copy_does_not_change_with_the_model(tmp_path):
    model = tmp_path / "doctor"
    model.mkdir()
    (tmp_path / "cache").write_bytes(b"weights")
    (model / "model.safetensors").symlink_to(tmp_path / "cache")  # as DVC may lay it out
    (model / "config.json").write_text("{}")
    copy, digest = immutable_copy(model, tmp_path / "registry")
    assert copy == tmp_path / "registry" / digest
    (tmp_path / "cache").write_bytes(b"other weights")
    with (model / "config.json").open("a") as file:
        file.write("edited in place")
    assert folder_hash(copy) == digest
    for path in copy.iterdir():
        assert not path.is_symlink()
        assert not path.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)


def test_no_model_is_no_version(tmp_path):
    with pytest.raises(
        TrackingError, match="doctor is not there, so no doctor is registered; bring train_doctor up to"
    ):
        registry.register_challenger.fn(load_params(), tmp_path / "doctor")


def test_the_same_model_is_copied_once_and_a_killed_copy_is_made_anew(tmp_path):
    model = tmp_path / "doctor"
    model.mkdir()
    (model / "config.json").write_text("{}")
    partial = tmp_path / "registry" / f".{folder_hash(model)}.partial"
    partial.mkdir(parents=True)
    (partial / "half").write_text("")
    copy, _ = immutable_copy(model, tmp_path / "registry")
    made = (copy / "config.json").stat().st_mtime_ns
    assert immutable_copy(model, tmp_path / "registry")[0] == copy
    assert [path.name for path in copy.iterdir()] == ["config.json"]
    assert (copy / "config.json").stat().st_mtime_ns == made
    assert {path.name for path in (tmp_path / "registry").iterdir()} == {copy.name, f".{copy.name}.lock"}


def test_a_copy_that_could_not_be_made_leaves_nothing(tmp_path, monkeypatch):
    model = tmp_path / "doctor"
    model.mkdir()
    (model / "config.json").write_text("{}")

    def full(source, target, **how):
        copytree(source, target, **how)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(OSError, match="No space left"):
        immutable_copy(model, tmp_path / "registry")
    assert [path.name for path in (tmp_path / "registry").iterdir()] == [f".{folder_hash(model)}.lock"]


def test_two_that_want_the_same_copy_make_one(tmp_path, monkeypatch):
    """The second waits for the first; before, it emptied the folder that the first was writing."""
    model = tmp_path / "doctor"
    model.mkdir()
    (model / "config.json").write_text("{}")
    copying, go_on, copied = threading.Event(), threading.Event(), []

    def slowly(source, target, **how):
        copied.append(target)
        copying.set()
        assert go_on.wait(30)
        return copytree(source, target, **how)

    monkeypatch.setattr(shutil, "copytree", slowly)
    with ThreadPoolExecutor(2) as both:
        first = both.submit(immutable_copy, model, tmp_path / "registry")
        assert copying.wait(30)
        second = both.submit(immutable_copy, model, tmp_path / "registry")
        assert wait([second], 0.3).not_done
        go_on.set()
        assert first.result(30) == second.result(30) == (tmp_path / "registry" / folder_hash(model), folder_hash(model))
    assert len(copied) == 1


def test_a_damaged_copy_is_made_anew_from_the_model(tmp_path, caplog):
    model = tmp_path / "doctor"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"weights")
    copy, digest = immutable_copy(model, tmp_path / "registry")
    (copy / "model.safetensors").chmod(0o644)
    (copy / "model.safetensors").write_bytes(b"weigths")
    assert immutable_copy(model, tmp_path / "registry") == (copy, digest)
    assert folder_hash(copy) == digest
    assert caplog.messages == [f"{copy} is not what was registered; it is made again"]


@pytest.fixture
def lock(tmp_path, monkeypatch):
    """Writes a dvc.lock: of each stage what it read and made, by path."""
    monkeypatch.setattr(provenance, "ROOT", tmp_path)

    def write(stages):
        listed = {
            stage: {kind: [{"path": path, "md5": md5} for path, md5 in of.items()] for kind, of in kinds.items()}
            for stage, kinds in stages.items()
        }
        YAML().dump({"stages": listed}, tmp_path / "dvc.lock")

    return write


def with_reward(**changes) -> Params:
    params = load_params()
    models = params.language_models.model_copy(update={"reward_judge": changes.pop("judge", None)})
    return params.model_copy(update={"reward": params.reward.model_copy(update=changes), "language_models": models})


def test_a_version_says_what_made_it(lock):
    lock(
        {
            "knowledge_base": {"deps": {"data/starter/articles": "14ca.dir"}, "outs": {"data/kb_index": "1b3d.dir"}},
            "train_doctor": {
                "deps": {
                    "data/kb_index": "1b3d.dir",
                    "recipes/grpo.yaml": "a",
                    "recipes/rewards/outcome.yaml": "b",
                    "clinic/rewards": "c.dir",
                },
                "outs": {"models/doctor": "7266.dir"},
            },
        }
    )
    assert registry._made_by(load_params()) == {
        "algorithm": "grpo",
        "reward": "outcome",
        "seed": "0",
        "dvc.md5 models/doctor": "7266.dir",
        "dvc.md5 data/kb_index": "1b3d.dir",
        "dvc.md5 recipes/grpo.yaml": "a",
        "dvc.md5 recipes/rewards/outcome.yaml": "b",
        "dvc.md5 clinic/rewards": "c.dir",
        "dvc.md5 data/starter/articles": "14ca.dir",
    }


def test_a_version_says_what_made_it_and_not_what_is_there_now(lock, tmp_path):
    """As after `retrain patient_cases`, or an edited params.yaml whose training was not asked for."""
    lock(
        {
            "patient_cases": {"outs": {"data/cases": "new.dir"}},
            "train_doctor": {"deps": {"data/cases": "old.dir", "recipes/ppo.yaml": "p"}},
        }
    )
    told = YAML(typ="safe").load(tmp_path / "dvc.lock")
    then = {"algorithm": {"name": "ppo"}, "reward": {"preset": "weighted"}, "seed": 3}
    told["stages"]["train_doctor"]["params"] = {"params.yaml": then}
    YAML().dump(told, tmp_path / "dvc.lock")
    assert registry._made_by(load_params()) == {
        "algorithm": "ppo",
        "reward": "weighted",
        "seed": "3",
        "dvc.md5 data/cases": "old.dir",
        "dvc.md5 recipes/ppo.yaml": "p",
    }


def test_a_version_names_its_judge_where_there_was_one(lock):
    judge = SimpleNamespace(model="a judge")
    lock({"train_doctor": {"deps": {"clinic/judging.py": "d"}}})
    told = registry._made_by(with_reward(preset="weighted", judge=judge))
    assert (told["reward"], told["reward.judge"], told["dvc.md5 clinic/judging.py"]) == ("weighted", "a judge", "d")
    assert "reward.judge" not in registry._made_by(with_reward(preset="outcome", judge=judge))  # nobody asked it


def test_a_version_has_the_figures_of_its_own_evaluation_alone(lock, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "ROOT", tmp_path)
    measures = {"accuracy": Interval(0.5867, 0.5468, 0.6254), "turns": Interval(8.0, 8.0, 8.0), "top3": None}
    table = DoctorTable(Summary(600, measures), {})
    evaluation = Evaluation({"trained": table, "trained@mine": table, "warm_start": table})
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics/evaluate_doctor.json").write_text(json.dumps(evaluation.to_json()))
    assert registry.measured() == Evaluation()  # nothing says of whom it is
    trained = {"train_doctor": {"outs": {"models/doctor": "new"}}}
    lock(trained | {"evaluate_doctor": {"deps": {"models/doctor": "old"}}})
    assert registry.measured() == Evaluation()
    lock(trained | {"evaluate_doctor": {"deps": {"models/doctor": "new"}}})
    figures = registry._figures(registry.measured())
    assert figures == {
        "test/accuracy": "0.587 [0.547, 0.625]",
        "test/turns": "8.000 [8.000, 8.000]",
        "test/accuracy at mine": "0.587 [0.547, 0.625]",
        "test/turns at mine": "8.000 [8.000, 8.000]",
    }
    assert "| warm_start | 0.587 | 0.547 to 0.625 |" in registry._description(figures, registry.measured())
