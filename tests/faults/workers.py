"""Kills rollout workers, trainers and the flow of a training on Ray, each while something else is asked of the workers,
and lets it end: `python -m tests.faults.workers --kills 12 --seed 0`. The doctor must be the one of a run of the same
shape that nobody disturbs.

The moments are those that the flow's log names (PREFECT_LOGGING_LEVEL=DEBUG: `asks trainers: learn`), and as long after
one as what is asked takes, at most. A tiny copy of the project, a Prefect server and a Ray cluster of their own. A flow
that was killed is started again, as is one that says that too many were lost in one step, or one while it began.
"""

import argparse
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import ray

from tests.faults.kills import copy, served

FLOW = (sys.executable, "-m", "flows.train_doctor", "--out", "trained")
LONGEST_S = 1200
TOGETHER = 4  # kills in one training, at most
FOUND_S = 20.0  # for a worker's process to be there once it is asked
KILLS = [  # who dies while what is asked
    *(("rollout worker", method) for method in ("open", "take", "play")),
    *(("trainer", method) for method in ("open", "pack", "learn", "save")),
    *(("the flow", method) for method in ("open", "take", "play", "learn", "save")),
]
ASKED = re.compile(r"asks (rollout worker|trainer)\D*(\d*): (\w+)")
TOO_MANY = ("after another one in the same step", "trainers were lost", "died in open", "died in meet")


@dataclass
class Outcome:
    """What a training came to."""

    weights: str  # sha256
    seconds: float
    asked: dict[str, list[float]]  # seconds from each to the next, by what is asked


def prepared(folder: Path, environment: Mapping[str, str], address: str, trainers: int, players: int) -> Path:
    """A project up to its warm start."""
    project = copy(folder, environment)
    path = project / "params.yaml"
    text = path.read_text().replace("  export: average", "  export: last").replace("  steps: 4", "  steps: 3")
    text = text.replace("backend: local ", "backend: ray ").replace("address: null,", f"address: '{address}',")
    text = text.replace("trainers: 1, rollout_workers: 1", f"trainers: {trainers}, rollout_workers: {players}")
    path.write_text(text)
    subprocess.run(["dvc", "repro", "--quiet", "warm_start"], cwd=project, env=environment, check=True)
    return project


def workers() -> dict[int, str]:
    """Processes of workers, and what each is."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            surroundings = (place / "environ").read_bytes().split(b"\0")
            state = (place / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        name = next((entry for entry in surroundings if entry.startswith(b"ANAMNESIS_WORKER=")), None)
        if name is not None and state != "Z":
            found[int(place.name)] = name.partition(b"=")[2].decode()
    return found


def train(
    project: Path,
    environment: Mapping[str, str],
    rng: random.Random,
    targets: list[tuple[str, str]],
    takes: Mapping[str, list[float]],
) -> Outcome:
    """A training from its start to its end, with a kill at each of the targets, of which those that were reached are
    taken away.
    """
    for name in ("checkpoints", "trained"):
        shutil.rmtree(project / name, ignore_errors=True)
    began, log = time.monotonic(), project.parent / "log"
    asked: dict[str, list[float]] = {}
    while True:
        with log.open("w") as out:
            flow = subprocess.Popen(FLOW, cwd=project, env=environment, stdout=out, stderr=subprocess.STDOUT)
        before, skipped = ("", time.monotonic()), rng.randint(0, 1)
        for role, number, method in _asks(log, flow):
            now = time.monotonic()
            asked.setdefault(before[0], []).append(now - before[1])
            before = (method, now)
            if not targets or method != targets[0][1] or targets[0][0] not in (role, "the flow"):
                continue
            if skipped:
                skipped -= 1
                continue
            delay = rng.uniform(0, max(takes[method]))
            time.sleep(delay)
            if flow.poll() is not None:
                break  # it came to its end before
            victim = targets.pop(0)[0]
            named = _kill(rng, flow.pid, victim if victim == "the flow" else f"{role} {number}".strip())
            print(f"{now - began:6.1f} s: kill -9 of {named}, {delay:.2f} s after {role}s: {method}", flush=True)
            skipped = rng.randint(0, 1)
        if flow.wait() == 0:
            weights = hashlib.sha256((project / "trained" / "model.safetensors").read_bytes()).hexdigest()[:12]
            return Outcome(weights, time.monotonic() - began, asked)
        told = log.read_text()
        if flow.returncode != -signal.SIGKILL:
            print(f"ended with {flow.returncode}: {told.strip().splitlines()[-1]}", flush=True)
            if not any(words in told for words in TOO_MANY):
                sys.exit(f"error: nobody asked for this:\n{told[-4000:]}")


def _asks(log: Path, flow: subprocess.Popen[bytes]) -> Iterator[tuple[str, str, str]]:
    """Role, number (empty: all) and method of what the workers are asked, as the log tells of it, until the flow ends."""
    end, begun = time.monotonic() + LONGEST_S, ""
    with log.open() as lines:
        while flow.poll() is None:
            if time.monotonic() > end:
                flow.kill()
                sys.exit(f"error: not at its end after {LONGEST_S} s:\n{log.read_text()[-4000:]}")
            begun += lines.read()
            *whole, begun = begun.split("\n")
            for found in map(ASKED.search, whole):
                if found:
                    yield found[1], found[2], found[3]
            time.sleep(0.01)


def _kill(rng: random.Random, flow: int, victim: str) -> str:
    """Kill the flow, or a worker whose name begins so; who it was."""
    end = time.monotonic() + FOUND_S
    while True:
        processes = {flow: "the flow"} | workers()
        chosen = sorted(pid for pid, name in processes.items() if name.startswith(victim))
        if chosen or time.monotonic() > end:
            break
        time.sleep(0.05)
    if not chosen:
        sys.exit(f"error: no {victim} is there after {FOUND_S:g} s")
    pid = rng.choice(chosen)
    os.kill(pid, signal.SIGKILL)
    return processes[pid]


def main() -> int:
    """Train undisturbed, then disturbed until there were kills enough; the status is 1 if a doctor is another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trainers", type=int, default=2)
    parser.add_argument("--rollout-workers", type=int, default=2)
    options = parser.parse_args()
    rng, size = random.Random(options.seed), options.trainers + options.rollout_workers
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = ray.init(num_cpus=size, include_dashboard=False, object_store_memory=150 * 2**20, log_to_driver=False)
    address = cluster.address_info["gcs_address"]
    with served() as (folder, environment):
        environment |= {"RAY_AUTH_MODE": "token", "PREFECT_LOGGING_LEVEL": "DEBUG"}  # the first as the cluster has it
        project = prepared(folder, environment, address, options.trainers, options.rollout_workers)
        whole = train(project, environment, rng, [], {})
        print(f"undisturbed: {whole.seconds:.0f} s, {whole.weights}", flush=True)
        wanted = [KILLS[number % len(KILLS)] for number in range(options.kills)]
        rng.shuffle(wanted)
        done = failed = 0
        while done < options.kills:
            targets = wanted[done : done + TOGETHER]
            missed = targets[:]
            found = train(project, environment, rng, missed, whole.asked)
            kills = len(targets) - len(missed)
            if not kills:
                sys.exit(f"error: nothing like {targets[0]} happened in a whole training")
            done, failed = done + kills, failed + (found.weights != whole.weights)
            print(f"{kills} kills, {found.seconds:.0f} s, {found.weights}", flush=True)
    print(f"{done} kills, {failed} trainings came out differently")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
