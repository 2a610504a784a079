"""A run is found again by what its stage depends on, and by nothing else."""

import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from doctor import stages
from doctor.parameters import ROOT, ParameterError, load_params
from doctor.stages import WITHOUT_EFFECT, files_hash, input_hash, watched

DECLARED = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
PARAMS = load_params()
JUDGE = {
    "url": "http://a/v1",
    "model": "m",
    "key_env": None,
    "timeout_s": 60.0,
    "retries": 2,
    "concurrency": 4,
    "temperature": 0.0,
    "max_tokens": 64,
}


def content(**changes):
    """Parameters as a mapping, with sections changed."""
    found = PARAMS.model_dump(mode="json")
    for section, values in changes.items():
        found[section] |= values
    return found


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder with small files at every place that the training stage depends on."""
    (tmp_path / "dvc.yaml").write_text((ROOT / "dvc.yaml").read_text())
    for name in DECLARED["train_doctor"]["deps"]:
        place = tmp_path / name.replace("${algorithm.name}", PARAMS.algorithm.name).replace(
            "${reward.preset}", PARAMS.reward.preset
        )
        place = place if place.suffix else place / "file"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("one")
    monkeypatch.setattr(stages, "ROOT", tmp_path)
    return tmp_path


def test_every_file_that_dvc_watches_counts(checkout):
    hashes = {input_hash("train_doctor", PARAMS, {})}
    files = [path for path in sorted(checkout.rglob("*")) if path.is_file() and path.name != "dvc.yaml"]
    assert len(files) == len(DECLARED["train_doctor"]["deps"])
    for path in files:
        path.write_text("two")
        hashes.add(input_hash("train_doctor", PARAMS, {}))
    assert len(hashes) == len(files) + 1


def test_data_that_the_flow_was_told_to_use_counts_instead(checkout):
    first = input_hash("train_doctor", PARAMS, {})
    shutil.copytree(checkout / "models/warm_start", checkout / "elsewhere")
    assert input_hash("train_doctor", PARAMS, {"models/warm_start": checkout / "elsewhere"}) == first
    (checkout / "elsewhere" / "file").write_text("two")
    assert input_hash("train_doctor", PARAMS, {"models/warm_start": checkout / "elsewhere"}) != first


def test_compiled_code_does_not_count(tmp_path):
    (tmp_path / "a.py").write_text("")
    before = files_hash(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("x")
    assert files_hash(tmp_path) == before


def test_parameters_that_change_a_result_count_and_others_do_not():
    names = DECLARED["train_doctor"]["params"]
    judged = content(language_models={"reward_judge": JUDGE})
    base = watched(judged, names)
    elsewhere = JUDGE | {"url": "http://b/v1", "key_env": "KEY", "timeout_s": 9.0, "retries": 3, "concurrency": 1}
    other_place = content(
        language_models={"reward_judge": elsewhere, "evaluation_judge": JUDGE},
        reward={"max_missing_share": 0.9},
        rollout={"max_failed_share": 0.9},
    )
    assert watched(other_place, names) == base
    assert watched(content(language_models={"reward_judge": JUDGE | {"temperature": 1.0}}), names) != base
    assert watched(content(language_models={"reward_judge": JUDGE | {"model": "other"}}), names) != base
    assert watched(content(machines={"threads": 3}, language_models={"reward_judge": JUDGE}), names) == base


def test_what_is_named_as_without_effect_is_watched_by_a_stage():
    """A name that no stage watches would be a misspelling."""
    judge = {"patient": JUDGE, "reward_judge": JUDGE, "evaluation_judge": JUDGE | {"model": "n"}}
    everything = {
        name for stage in DECLARED.values() for name in _flat_names(content(language_models=judge), stage["params"])
    }
    assert everything >= WITHOUT_EFFECT


def _flat_names(found, names):
    return {key for name in names for key in stages._flat(name, stages._at(found, name))}


def test_a_stage_without_its_file_says_which(checkout):
    shutil.rmtree(checkout / "data" / "cases")
    with pytest.raises(ParameterError, match=r"data/cases is missing, and this stage reads it; dvc repro"):
        input_hash("train_doctor", PARAMS, {})
    assert Path(checkout / "dvc.yaml").exists()
