"""Every stage of dvc.yaml lists the code that its flow imports, and no other."""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from commands.stage_code import ROOT, closure, in_folders, listed

STAGES = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]


def lists(stage: str, file: str) -> bool:
    return any(file == dep or file.startswith(f"{dep}/") for dep in STAGES[stage]["deps"])


def test_the_lists_are_those_of_the_imports() -> None:
    text = (ROOT / "dvc.yaml").read_text()
    assert listed(text) == text, "run: python -m commands.stage_code"


def test_other_lists_are_mended_and_what_is_no_code_stays() -> None:
    text = (ROOT / "dvc.yaml").read_text()
    forgotten = re.sub(r"rl/learner\.py,\s+", "", text).replace(
        "kb/config.py,", "kb/config.py, clinic/attacks,"
    )  # wherever lines break
    assert "rl/learner.py" not in forgotten
    assert "clinic/attacks" in forgotten
    assert listed(forgotten) == text
    assert "'recipes/rewards/${reward.preset}.yaml'" in listed(forgotten)


@pytest.mark.parametrize("stage", STAGES)
def test_stage_flow_and_command_share_a_name(stage: str) -> None:
    assert f"-m flows.{stage} " in STAGES[stage]["cmd"]
    assert (ROOT / "flows" / f"{stage}.py").exists()


@pytest.mark.parametrize(
    ("file", "stages"),
    [
        ("kb/readers.py", {"knowledge_base"}),
        ("clinic/loaders/own.py", {"patient_cases"}),
        ("clinic/loaders/sentences.yaml", {"patient_cases"}),
        ("clinic/leaks.py", {"warm_start", "train_doctor", "evaluate_doctor"}),
        ("clinic/understanding/english.yaml", {"patient_cases", "warm_start", "train_doctor", "evaluate_doctor"}),
        ("rl/memory.py", {"train_doctor"}),
        ("doctor/report_texts.yaml", {"evaluate_doctor"}),
        ("tracking/recorder.py", set()),
        ("clinic/attacks/base.py", set()),
    ],
)
def test_an_edit_makes_stale_what_runs_it(file: str, stages: set[str]) -> None:
    assert (ROOT / file).exists()
    assert {stage for stage in STAGES if lists(stage, file)} == stages


def test_a_folder_stands_for_its_files_only_if_all_are_run() -> None:
    patients = {path.relative_to(ROOT).as_posix() for path in Path(ROOT / "clinic/patients").glob("*.py")}
    whole = in_folders(patients - {"clinic/patients/__init__.py"})
    assert whole == ["clinic/patients"]
    assert in_folders(["clinic/patients/base.py", "kb/index.py"]) == ["clinic/patients/base.py", "kb/index.py"]


def test_what_shows_and_tracks_a_run_is_no_dependency() -> None:
    assert not {file for stage in STAGES for file in closure(ROOT / "flows" / f"{stage}.py") if "console" in file}
