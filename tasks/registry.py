"""Task of `retrain`: keep an immutable copy of the doctor and register it, once per hash."""

import logging
import os
import shutil
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from doctor.parameters import ROOT
from rl.checkpoint import folder_hash
from tracking import runs
from tracking.provenance import output_digest
from tracking.recorder import run_of

log = logging.getLogger(__name__)
MODEL_NAME = "anamnesis-doctor"


def immutable_copy(model: Path, registry: Path) -> tuple[Path, str]:
    """`registry/<sha256>/` with the model's files, read-only; returns folder and hash.

    A DVC output may itself be a link into DVC's cache, and the next run writes over it; the copy shares no byte with
    either.
    """
    digest = folder_hash(model)
    copy = registry / digest
    if not copy.exists():
        temporary = registry / f".{digest}.partial"
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.copytree(model, temporary)
        for path in temporary.rglob("*"):
            if path.is_file():
                path.chmod(0o444)
        os.replace(temporary, copy)
    return copy, digest


@task(cache_policy=NO_CACHE)
def register_challenger(model: Path) -> str:
    """Register the model as `challenger` unless this hash is registered already; returns a line that says what was
    done.
    """
    copy, digest = immutable_copy(model, ROOT / "models" / "registry")
    runs.setup(ROOT)
    tags = {"dvc.md5": output_digest("models/doctor") or "", "path": str(copy), "gate": "none"}
    run_id = run_of(model)
    version, created = runs.register(MODEL_NAME, copy, digest, run_id, "challenger", tags)
    if created:
        return f"registered {MODEL_NAME} version {version} as challenger (sha256 {digest[:12]})"
    return (
        f"unchanged: {MODEL_NAME} version {version} already holds this model (sha256 {digest[:12]}), nothing registered"
    )
