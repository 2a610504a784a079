"""What workers on Ray cost a step beside one process, on one machine: the same steps, in turn.

python -m benchmarks.workers --steps 6
"""

import argparse
import json
import statistics
import sys
import time
from contextlib import closing
from typing import Any

from doctor.environments import open_factory
from doctor.parameters import ROOT, Params, load_params
from doctor.recipe import load_algorithm
from doctor.scoring import score_all
from doctor.training import Training
from rl import machine

CASES, INDEX, WARM_START = ROOT / "data/cases", ROOT / "data/kb_index", ROOT / "models/warm_start"


def main() -> None:
    """Print one JSON line; the first step of each side warms up."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description=__doc__)
    parser.add_argument("--steps", type=int, default=6, help="of each side")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    given = parser.parse_args()
    if given.steps < 2 or given.threads < 1:
        parser.error("--steps has to be 2 or more, since the first warms up, and --threads 1 or more")
    sides = {name: opened(name, given.threads) for name in ("local", "ray")}
    with closing(sides["local"].session), closing(sides["ray"].session):
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for step in range(1, given.steps + 1):
            for name, run in sides.items():
                seconds[name].append(round(played(run, step), 3))
    medians = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    measured: dict[str, Any] = {
        "episodes": sides["local"].params.rollout.prompts * sides["local"].algorithm.group_size,
        "threads": given.threads,
        "step_s": seconds,
        "ray_over_local": round(medians["ray"] / medians["local"], 3),
    }
    sys.stdout.write(json.dumps(measured) + "\n")


def opened(backend: str, threads: int) -> Training:
    """The shipped training, in this process or with a trainer and a rollout worker."""
    content = load_params().model_dump()
    content["machines"] |= {"backend": backend, "threads": threads}
    content["machines"]["ray"] |= {"address": None, "trainers": 1, "rollout_workers": 1}
    params = Params.model_validate(content)
    machine.use(params.machines)
    return Training(params, load_algorithm(params), open_factory(params, INDEX), WARM_START, CASES, "measured")


def played(run: Training, step: int) -> float:
    """Seconds of one step: played, scored and learned from."""
    began = time.perf_counter()
    cases = run.cases(step, 0)
    specs = run.factory.episodes(cases, run.algorithm.group_size, run.params.seed, step)
    trajectories = run.session.rollout(specs, run.params.decoding.train.temperature)
    run.session.learn(trajectories, score_all(run.scorer, cases, trajectories), step)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
