"""The state of the project that made a registered doctor, checked out, and what a run of it makes of the doctor."""

import logging
from collections.abc import Mapping
from pathlib import Path

from ruamel.yaml import YAML

from doctor.parameters import ROOT
from rl.files import folder_hash
from tasks.registry import MODEL_NAME
from tasks.workspace import checkout, committed
from tracking import registry, runs
from tracking.errors import TrackingError
from tracking.registry import Version

log = logging.getLogger(__name__)
PLACE = ROOT / "runs" / "reproduced"
PINS = "constraints.txt"


def version_of(called: str) -> Version:
    """A registered doctor, by its alias or number; its copy need not be there.

    Raises:
        TrackingError: there is none.
    """
    runs.setup(ROOT)
    found = registry.told_of(MODEL_NAME, called)
    if found is None:
        raise TrackingError(f"{MODEL_NAME} has no version {called}; name a number, champion or challenger")
    return found


def place_of(version: Version) -> Path:
    """Where its state is checked out."""
    return PLACE / version.number


def check_out(version: Version) -> Path:
    """The code, parameters, lock and data of the commit that made a doctor, in a folder of their own.

    Raises:
        TrackingError: it was made from files that no commit holds.
        WorkspaceError: the project lacks the commit.
    """
    commit = version.tags.get("retrain.commit") or version.tags.get("git.sha", "")
    if not commit or version.tags.get("git.dirty") == "true":
        raise TrackingError(
            f"version {version.number} was made from files that differ from commit {commit or 'unknown'}, so that none "
            f"holds them; MLflow's run {version.run_id or 'unknown'} has its params.yaml and dvc.lock"
        )
    place = place_of(version)
    checkout(ROOT, place, commit)
    log.info("%s is commit %s, which made version %s, with its data", place, commit[:12], version.number)
    if (place / PINS).read_bytes() != (ROOT / PINS).read_bytes():
        log.warning("%s was another then; the packages used are today's", PINS)
    return place


def difference(version: Version, place: Path) -> str:
    """What the doctor in a folder has other than the registered one, in a line; empty: the same weights."""
    made = place / "models" / "doctor"
    digest = folder_hash(made) if made.is_dir() else "none"
    if digest == version.sha256:
        return ""
    lock = place / "dvc.lock"
    then, now = _outputs(committed(place, lock.name)), _outputs(lock.read_text("utf-8") if lock.exists() else "")
    first = next((name for name in then if now.get(name) != then[name]), "")
    return f"sha256 {digest[:12]} in place of {version.sha256[:12]}" + (
        f"; the first that differs: {first}" if first else ""
    )


def _outputs(lock: str) -> Mapping[str, str]:
    """DVC's hashes of what the stages made, in their order."""
    stages = (YAML(typ="safe").load(lock) or {}).get("stages", {})
    return {out["path"]: out["md5"] for stage in stages.values() for out in stage.get("outs", [])}
