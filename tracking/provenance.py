"""Which code and data a result comes from: the commit that is checked out, and the hashes in dvc.lock."""

import subprocess
from pathlib import Path

from ruamel.yaml import YAML

from doctor.parameters import ROOT


def output_digest(path: str) -> str | None:
    """The hash that dvc.lock records for an output, or None if it has none yet."""
    lock = ROOT / "dvc.lock"
    if not lock.exists():
        return None
    stages = (YAML(typ="safe").load(lock) or {}).get("stages", {})
    for stage in stages.values():
        for out in stage.get("outs", []):
            if out["path"] == path:
                return str(out["md5"])
    return None


def code_state(root: Path) -> str:
    """The commit that is checked out, and whether tracked files differ from it; "unknown" outside git."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "--no-optional-locks", "-C", str(root), *words], capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD")[:12] + (" with changes" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
