"""Kills rollout workers, trainers and the flow of a training on Ray at random moments, and lets it end: `python -m
tests.faults.workers --kills 12 --seed 0`. The doctor must be the one of a run of the same shape that nobody disturbs.

A tiny copy of the project, a Prefect server and a Ray cluster of their own. A flow that was killed is started again, as
is one that says that too many were lost in one step, or one while it began.
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import ray

from tests.faults.kills import copy, served

FLOW = (sys.executable, "-m", "flows.train_doctor", "--out", "trained")
LONGEST_S = 1200
TOO_MANY = ("after another one in the same step", "trainers were lost", "died in open", "died in meet")


@dataclass
class Outcome:
    """What a training came to."""

    weights: str  # sha256
    seconds: float
    kills: int


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


def train(project: Path, environment: Mapping[str, str], rng: random.Random, kills: int, every_s: float) -> Outcome:
    """A training from its start to its end, disturbed so many times."""
    for name in ("checkpoints", "trained"):
        shutil.rmtree(project / name, ignore_errors=True)
    began, done, log = time.monotonic(), 0, project.parent / "log"
    while True:
        with log.open("w") as out:
            flow = subprocess.Popen(FLOW, cwd=project, env=environment, stdout=out, stderr=subprocess.STDOUT)
        while flow.poll() is None:
            try:
                flow.wait(rng.uniform(0.2, 1.0) * every_s if done < kills else LONGEST_S)
            except subprocess.TimeoutExpired:
                done += kill_one(rng, flow.pid, time.monotonic() - began)
        if flow.returncode == 0:
            weights = hashlib.sha256((project / "trained" / "model.safetensors").read_bytes()).hexdigest()[:12]
            return Outcome(weights, time.monotonic() - began, done)
        told = log.read_text()
        if flow.returncode != -signal.SIGKILL:
            print(f"ended with {flow.returncode}: {told.strip().splitlines()[-1]}", flush=True)
            if not any(words in told for words in TOO_MANY):
                sys.exit(f"error: nobody asked for this:\n{told[-4000:]}")


def kill_one(rng: random.Random, flow: int, seconds: float) -> bool:
    """Kill the flow, or a worker of a kind; False if none is there yet."""
    victims = {flow: "the flow"} | workers()
    kind = rng.choice(["the flow", "trainer", "rollout worker"])
    chosen = sorted(pid for pid, name in victims.items() if name.startswith(kind))
    if not chosen:
        return False
    pid = rng.choice(chosen)
    print(f"{seconds:6.1f} s: kill -9 of {victims[pid]}", flush=True)
    os.kill(pid, signal.SIGKILL)
    return True


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
        environment["RAY_AUTH_MODE"] = "token"  # as the cluster has it
        project = prepared(folder, environment, address, options.trainers, options.rollout_workers)
        whole = train(project, environment, rng, 0, LONGEST_S)
        print(f"undisturbed: {whole.seconds:.0f} s, {whole.weights}", flush=True)
        done = failed = 0
        while done < options.kills:
            found = train(project, environment, rng, min(4, options.kills - done), whole.seconds / 2)
            done, failed = done + found.kills, failed + (found.weights != whole.weights)
            print(f"{found.kills} kills, {found.seconds:.0f} s, {found.weights}", flush=True)
    print(f"{done} kills, {failed} trainings came out differently")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
