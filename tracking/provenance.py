"""Which data a result comes from, as dvc.lock records it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from doctor.parameters import ROOT
from rl.files import folder_hash


def data_digest(name: str, place: Path) -> str:
    """The hash of a folder of data that was used: of the project's own as dvc.lock records it, else of what lies there.

    Args:
        name: of the output in dvc.yaml that it stands for.
        place: where it lies.
    """
    return (output_digest(name) if is_own(name, place) else None) or folder_hash(place)[:32]


def is_own(name: str, place: Path) -> bool:
    """Whether a folder is that output of this project, and not another one that was named in its place."""
    return place.resolve() == (ROOT / name).resolve()


def output_digest(path: str) -> str | None:
    """The hash that dvc.lock records for an output, or None if it has none yet."""
    return next((digest for stage in _stages().values() if (digest := _digest(stage, "outs", path))), None)


def input_digest(stage: str, path: str) -> str | None:
    """The hash that dvc.lock records of what a stage read, or None if it has none."""
    return _digest(_stages().get(stage, {}), "deps", path)


def parameters_of(stage: str) -> Mapping[str, Any]:
    """The parameters that dvc.lock says a stage ran with, by the names under which it watches them; none if it has not run."""
    found: Mapping[str, Any] = _stages().get(stage, {}).get("params", {}).get("params.yaml", {})
    return found


def inputs_of(project: Path) -> list[str]:
    """Files and folders in a project that its stages read and none makes, as its dvc.lock has them."""
    stages = _stages(project).values()
    made = {one["path"] for stage in stages for one in stage.get("outs", [])}
    read = dict.fromkeys(one["path"] for stage in stages for one in stage.get("deps", []))
    return [path for path in read if path not in made and not path.startswith(("/", "../"))]


def _stages(project: Path | None = None) -> Mapping[str, Any]:
    lock = (project or ROOT) / "dvc.lock"
    stages: Mapping[str, Any] = ((YAML(typ="safe").load(lock) if lock.exists() else None) or {}).get("stages", {})
    return stages


def _digest(stage: Mapping[str, Any], kind: str, path: str) -> str | None:
    return next((str(one["md5"]) for one in stage.get(kind, []) if one["path"] == path), None)
