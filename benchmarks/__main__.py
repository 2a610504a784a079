"""`make bench`: measure the parts asked for and write `benchmarks/results/<machine>-<date>.json` with a table beside
it.
"""

import argparse
import importlib
import json
import logging
import os
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks import machine
from benchmarks.engines import ENGINES
from benchmarks.parts.base import Run, merged
from benchmarks.setting import VARIANTS, scale
from benchmarks.table import render
from benchmarks.worker import BenchmarkError

PARTS = ("rl_step", "rollout", "update", "overhead", "growth")
RESULTS = machine.ROOT / "benchmarks" / "results"
log = logging.getLogger("benchmarks")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--repeats", type=int, default=5, help="measured steps of every side, after one warm-up")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke run: tiny, two repeats, printed, not written to results/"
    )
    parser.add_argument(
        "--variants", default=",".join(VARIANTS), help="of rl_step and rollout: turns of fixed or variable length"
    )
    parser.add_argument(
        "--engines", default=",".join(ENGINES), help="of rl_step and rollout: ours, separated by commas"
    )
    given = parser.parse_args()
    given.variants, given.engines = (tuple(value.split(",")) for value in (given.variants, given.engines))
    if unknown := {*given.variants, *given.engines} - {*VARIANTS, *ENGINES}:
        parser.error(f"no variant or engine {', '.join(sorted(unknown))}; there are {', '.join((*VARIANTS, *ENGINES))}")
    if unknown := set(given.only.split(",")) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if given.repeats < 5 and not given.quick:
        parser.error("recorded figures are medians of at least 5 repeats; use --quick to try things out")
    return given


def main() -> int:
    """Measure, write, print; 1 if a part failed."""
    given = arguments()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    os.environ |= {
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TQDM_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    transformers.utils.logging.disable_progress_bar()
    repeats = 2 if given.quick else given.repeats
    parts: dict[str, Any] = {}
    for name in given.only.split(","):
        with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
            run = Run(
                played=scale(quick=given.quick),
                quick=given.quick,
                repeats=repeats,
                folder=Path(folder),
                variants=given.variants,
                engines=given.engines,
            )
            parts[name] = _measured(name, run)
        if not given.quick:
            _write({name: parts[name]}, whole=(given.variants, given.engines) == (VARIANTS, ENGINES))
    sys.stdout.write(("Smoke run: these figures mean nothing.\n\n" if given.quick else "") + render(parts))
    return int(any("failed" in part for part in parts.values()))


def _measured(name: str, run: Run) -> dict[str, Any]:
    """The part, and under which circumstances it was measured."""
    head = {
        "command": machine.command(),
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "machine": machine.machine(),
        "versions": machine.versions(),
        "checkout": machine.checkout(),
        "repeats": run.repeats,
    }
    log.info("%s: %s, %d threads", name, machine.kind(), torch.get_num_threads())
    try:
        return {"run": head} | asdict(importlib.import_module(f"benchmarks.parts.{name}").measure(run))
    except BenchmarkError as error:
        log.error("%s failed: %s", name, error)
        return {"run": head, "failed": str(error).strip().splitlines()[-1]}


def _write(parts: dict[str, Any], *, whole: bool) -> None:
    """Into the file of this machine and day; parts that an earlier call measured stay, and what it measured of a part
    of which this is not the whole.
    """
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{machine.kind()}-{datetime.now(UTC):%Y-%m-%d}.json"
    before = json.loads(path.read_text())["parts"] if path.exists() else {}
    if not whole:
        parts = {
            name: merged(before[name], part) if "rows" in part and "rows" in before.get(name, {}) else part
            for name, part in parts.items()
        }
    known = {name: (before | parts)[name] for name in PARTS if name in before | parts}
    path.write_text(json.dumps({"parts": known}, indent=1) + "\n")
    path.with_suffix(".md").write_text(render(known))
    log.info("wrote %s", path)


if __name__ == "__main__":
    sys.exit(main())
