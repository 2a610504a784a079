"""`make learn`: does the doctor learn? Warm start, training and evaluation for each seed, on the same base model and cases.

Writes under runs/learn/<seed>/ and touches nothing versioned. Ends with status 1 if a seed misses a goal.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tasks.main_job import prefect_server

ROOT = Path(__file__).resolve().parent.parent
GAP_GOAL, CLOSED_GOAL, CASES_GOAL = 0.15, 0.60, 500


def main() -> int:
    """Run the seeds named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0,1,2")
    seeds = [int(seed) for seed in parser.parse_args().seeds.split(",")]
    with prefect_server() as address:
        rows = [_report(seed, *_run_seed(seed, address)) for seed in seeds]
    sys.stdout.write("\n".join(text for text, _ in rows) + "\n")
    return int(not all(passed for _, passed in rows))


def _run_seed(seed: int, address: str) -> tuple[dict[str, Any], float]:
    """One seed through three flows; returns the evaluation and the wall time in seconds."""
    folder = ROOT / "runs" / "learn" / str(seed)
    folder.mkdir(parents=True, exist_ok=True)
    params = YAML(typ="rt").load(ROOT / "params.yaml")
    params["seed"] = seed
    params["train_doctor"]["experiment"] = f"learn-{seed}"
    YAML(typ="rt").dump(params, folder / "params.yaml")
    warm_start, doctor, table = folder / "warm_start", folder / "doctor", folder / "evaluate_doctor.json"
    common = ["--params-file", str(folder / "params.yaml")]
    environment = {**os.environ, "PREFECT_API_URL": address}
    began = time.monotonic()
    for stage, options in (
        ("warm_start", ["--out", warm_start]),
        ("train_doctor", ["--warm-start", warm_start, "--out", doctor]),
        ("evaluate_doctor", ["--warm-start", warm_start, "--doctor", doctor, "--out", table]),
    ):
        command = [sys.executable, "-m", f"flows.{stage}", *common, *map(str, options)]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return json.loads(table.read_text()), time.monotonic() - began


def _report(seed: int, metrics: dict[str, Any], seconds: float) -> tuple[str, bool]:
    trained, start, best = (metrics[name]["overall"] for name in ("trained", "warm_start", "bayes_optimal"))
    gap = best["accuracy"]["mean"] - start["accuracy"]["mean"]
    closed = (trained["accuracy"]["mean"] - start["accuracy"]["mean"]) / gap if gap > 0 else float("nan")
    apart = trained["accuracy"]["low"] > start["accuracy"]["high"]
    passed = apart and gap >= GAP_GOAL and closed >= CLOSED_GOAL and trained["cases"] >= CASES_GOAL
    doctors = (("warm start", start["accuracy"]), ("trained", trained["accuracy"]), ("bayes", best["accuracy"]))
    shown = "  ".join(f"{name} {a['mean']:.3f} [{a['low']:.3f}, {a['high']:.3f}]" for name, a in doctors)
    verdict = "goals met" if passed else "goals MISSED"
    return f"seed {seed}: {shown}  gap {gap:.3f}  closed {closed:.0%}  {trained['cases']} cases  {seconds:.0f} s  {verdict}", passed


if __name__ == "__main__":
    sys.exit(main())
