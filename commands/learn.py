"""`make learn`: does the doctor learn? Warm start, training and evaluation for each seed and
algorithm, on the same base model and cases.

Writes under runs/learn/<seed>/ and touches nothing versioned. Ends with status 1 if a run misses a goal of the starter
clinic: 15 points between warm start and Bayes doctor, of which 60% are closed, on 500 cases, the intervals of warm start
and trained doctor apart. On imported cases alone there is no goal: the accuracies are printed.
"""

import argparse
import csv
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ruamel.yaml import YAML

from clinic.tables import Evaluation
from doctor.evaluation_text import first_source
from doctor.parameters import ParameterError, load_params, recipe_path
from tasks.server import ROOT, prefect_server

GAP_GOAL, CLOSED_GOAL, CASES_GOAL = 0.15, 0.60, 500


def main() -> int:
    """Run the seeds and algorithms named on the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m commands.learn", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--algorithms", help="names of recipes; default: the one in params.yaml")
    given = parser.parse_args()
    try:
        chosen = load_params().algorithm.name
        seeds, algorithms = _seeds(given.seeds), list(dict.fromkeys((given.algorithms or chosen).split(",")))
        if missing := [name for name in algorithms if name == "base_model" or not recipe_path(name).is_file()]:
            raise ParameterError(f"--algorithms {missing[0]!r} is not in recipes/; give names of files there: grpo,ppo")
    except ParameterError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    rows = []
    try:
        for row in _rows(seeds, algorithms, chosen):
            rows.append(row)
            sys.stderr.write(row[0] + "\n")
    except subprocess.CalledProcessError as error:  # the stage has told why
        sys.stderr.write(
            f"error: {error.cmd[2]} ended with status {error.returncode}; run this again to go on from there\n"
        )
        return 2
    sys.stdout.write("\n".join(text for text, _ in rows) + "\n")
    return int(not all(passed for _, passed in rows))


def _rows(seeds: list[int], algorithms: list[str], chosen: str) -> Iterator[tuple[str, bool]]:
    """Line and whether the goals were met, of each seed and algorithm as it ends."""
    with prefect_server() as address:
        environment = {**os.environ, "PREFECT_API_URL": address}
        for seed in seeds:
            folder = ROOT / "runs" / "learn" / str(seed)
            _stage(
                "warm_start", _params(folder / "params.yaml", seed, chosen), environment, "--out", folder / "warm_start"
            )
            for algorithm in algorithms:
                yield _report(seed, algorithm, *_run(folder, seed, algorithm, environment))


def _seeds(text: str) -> list[int]:
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise ParameterError(f"--seeds {text!r} are no whole numbers with commas between them; give 0,1,2")
    return list(dict.fromkeys(int(seed) for seed in text.split(",")))


def _params(path: Path, seed: int, algorithm: str) -> Path:
    params = YAML(typ="rt").load(ROOT / "params.yaml")
    params["seed"] = seed
    params["algorithm"]["name"] = algorithm
    params["train_doctor"]["experiment"] = f"learn-{algorithm}-{seed}"
    path.parent.mkdir(parents=True, exist_ok=True)
    YAML(typ="rt").dump(params, path)
    return path


class Cost(NamedTuple):
    """What a stage took, in seconds: on the clock, which other work on the machine stretches, and of processor, which
    it hardly does.
    """

    wall: float
    cpu: float


def _stage(name: str, params: Path, environment: dict[str, str], *options: str | Path) -> Cost:
    """One flow, in a process of its own."""
    began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", f"flows.{name}", "--params-file", str(params), *map(str, options)],
        cwd=ROOT,
        env=environment,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(time.monotonic() - began, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime)


def _run(folder: Path, seed: int, algorithm: str, environment: dict[str, str]) -> tuple[Evaluation, Cost, float]:
    """Training and evaluation from the seed's warm start; returns the evaluation, cost and gradient steps per rollout
    step.
    """
    place = folder / algorithm
    params = _params(place / "params.yaml", seed, algorithm)
    warm_start, doctor, table = folder / "warm_start", place / "doctor", place / "evaluate_doctor.json"
    cost = _stage("train_doctor", params, environment, "--warm-start", warm_start, "--out", doctor)
    _stage("evaluate_doctor", params, environment, "--warm-start", warm_start, "--doctor", doctor, "--out", table)
    with (place / "plots" / "train_doctor.csv").open() as file:
        steps = [float(row["learn/gradient_steps"]) for row in csv.DictReader(file)]
    return (
        Evaluation.from_json(json.loads(table.read_text())),
        Cost(cost.wall / len(steps), cost.cpu / len(steps)),
        sum(steps) / len(steps),
    )


def _report(seed: int, algorithm: str, metrics: Evaluation, cost: Cost, gradient_steps: float) -> tuple[str, bool]:
    if first_source(metrics):
        told = (f"{name} {a.mean:.3f} [{a.low:.3f}, {a.high:.3f}]" for name, a in metrics.accuracies.items())
        return (
            f"{algorithm}, seed {seed}: {'  '.join(told)}  {_spent(cost, gradient_steps)}  no goals but on the starter clinic",
            True,
        )
    doctors = {"warm start": "warm_start", "trained": "trained", "bayes": "bayes_optimal"}
    missing = [
        f"{shown} {metrics.doctors[name].overall.withheld or 'n/a' if name in metrics.doctors else 'not evaluated'}"
        for shown, name in doctors.items()
        if name not in metrics.accuracies
    ]
    if missing:
        return f"{algorithm}, seed {seed}: {'; '.join(missing)}  {_spent(cost, gradient_steps)}  goals MISSED", False
    start, trained, best = (metrics.accuracies[name] for name in doctors.values())
    cases = metrics.doctors["trained"].overall.cases
    gap = best.mean - start.mean
    closed = (trained.mean - start.mean) / gap if gap > 0 else float("nan")
    apart = trained.low > start.high
    passed = apart and gap >= GAP_GOAL and closed >= CLOSED_GOAL and cases >= CASES_GOAL
    shown = "  ".join(
        f"{name} {a.mean:.3f} [{a.low:.3f}, {a.high:.3f}]"
        for name, a in zip(doctors, (start, trained, best), strict=True)
    )
    verdict = "goals met" if passed else "goals MISSED"
    return (
        f"{algorithm}, seed {seed}: {shown}  gap {gap:.3f}  closed {closed:.0%}  {cases} cases  "
        f"{_spent(cost, gradient_steps)}  {verdict}",
        passed,
    )


def _spent(cost: Cost, gradient_steps: float) -> str:
    return f"{cost.wall:.1f} s, {cost.cpu:.1f} CPU-seconds and {gradient_steps:.1f} gradient steps a rollout step"


if __name__ == "__main__":
    sys.exit(main())
