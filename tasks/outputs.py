"""Where a stage writes its main output and what lies beside it."""

import logging
import time
from pathlib import Path

from doctor.places import ROOT

log = logging.getLogger(__name__)


def output(out: Path | None, name: str) -> Path:
    """Where a stage writes: what it was told (DVC passes the versioned place), else runs/<time>/<name>, so that trying
    something touches nothing versioned. That folder is made and told here: of two that begin in one second each has its
    own.
    """
    if out is not None:
        return out
    began = time.strftime("%Y%m%d-%H%M%S")
    folder, number = ROOT / "runs" / began, 1
    while True:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
            folder = folder.with_name(f"{began}-{number}")
        else:
            log.info("writes to %s", folder.relative_to(ROOT))
            return folder / name


def metrics_file(out: Path, stage: str) -> Path:
    """metrics/<stage>.json for a versioned output; beside the output for a direct run."""
    return _beside(out) / "metrics" / f"{stage}.json"


def plots_file(out: Path, name: str) -> Path:
    """plots/<name> for a versioned output; beside the output for a direct run."""
    return _beside(out) / "plots" / name


def _beside(out: Path) -> Path:
    return ROOT if out.parent in (ROOT / "data", ROOT / "models", ROOT / "metrics") else out.parent
