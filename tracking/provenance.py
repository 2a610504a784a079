"""Which data a result comes from, as dvc.lock records it."""

from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML

from doctor.parameters import ROOT


def output_digest(path: str) -> str | None:
    """The hash that dvc.lock records for an output, or None if it has none yet."""
    return next((digest for stage in _stages().values() if (digest := _digest(stage, "outs", path))), None)


def input_digest(stage: str, path: str) -> str | None:
    """The hash that dvc.lock records of what a stage read, or None if it has none."""
    return _digest(_stages().get(stage, {}), "deps", path)


def _stages() -> Mapping[str, Any]:
    lock = ROOT / "dvc.lock"
    stages: Mapping[str, Any] = ((YAML(typ="safe").load(lock) if lock.exists() else None) or {}).get("stages", {})
    return stages


def _digest(stage: Mapping[str, Any], kind: str, path: str) -> str | None:
    return next((str(one["md5"]) for one in stage.get(kind, []) if one["path"] == path), None)
