"""Where results beside a stage's main output go, and how small files are written."""

import json
import os
import time
from pathlib import Path
from typing import Any

from doctor.parameters import ROOT


def output(out: Path | None, name: str) -> Path:
    """Where a stage writes: what it was told (DVC passes the versioned place), else runs/<time>/<name>, so that trying something touches nothing versioned."""
    return out or ROOT / "runs" / time.strftime("%Y%m%d-%H%M%S") / name


def metrics_file(out: Path, stage: str) -> Path:
    """metrics/<stage>.json for a versioned output; beside the output for a direct run."""
    return _beside(out) / "metrics" / f"{stage}.json"


def plots_file(out: Path, name: str) -> Path:
    """plots/<name> for a versioned output; beside the output for a direct run."""
    return _beside(out) / "plots" / name


def _beside(out: Path) -> Path:
    return ROOT if out.parent in (ROOT / "data", ROOT / "models", ROOT / "metrics") else out.parent


def write_json(path: Path, content: Any) -> None:
    """Write JSON so that the file is whole or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    temporary.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(temporary, path)
