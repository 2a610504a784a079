"""Takes a server away in the middle of a training and gives it back: `python -m tests.faults.outages --seconds 60`. The
training goes on, and what comes out, in files and in MLflow, is what comes out of a run that nobody disturbs.

A tiny copy of the project with `--steps` steps; both servers are killed with all that they started.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import mlflow

from tasks.server import free_port, wait_until_healthy
from tests.faults.kills import ROOT, copy, hashes, settings

STAGES = (("dvc", "repro", "warm_start"), ("dvc", "repro"))
POINT = "reward/mean"


class Server:
    """A server that may be killed and started again, with what it knows."""

    def __init__(self, folder: Path, environment: Mapping[str, str], words: Sequence[str], port: int) -> None:
        self.folder, self.environment, self.words, self.port = folder, environment, words, port
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; returns when it answers."""
        with (self.folder / f"{self.port}.log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *self.words, "--port", str(self.port)],
                stdout=log,
                stderr=log,
                env=dict(self.environment),
                cwd=ROOT,
                process_group=0,
                preexec_fn=lambda: os.nice(15),  # as if they had cores of their own: what counts is who waits for them
            )
        path = "/api" if self.words[0] == "prefect" else ""
        wait_until_healthy(f"http://127.0.0.1:{self.port}{path}", self.process)

    def kill(self) -> None:
        """Kill it with all that it started."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


def disturbed(project: Path, environment: Mapping[str, str], disturb: Callable[[], None] | None) -> tuple[int, str]:
    """Status and output of the pipeline, disturbed after the second step of its training."""
    log = project.parent / "log"
    with log.open("w") as out:
        subprocess.run(STAGES[0], cwd=project, env=dict(environment), stdout=out, stderr=out, check=True)
        process = subprocess.Popen(STAGES[1], cwd=project, env=dict(environment), stdout=out, stderr=out)
        if disturb is not None:
            while not list(project.glob("checkpoints/*/*/global_step_2/complete.json")):
                if process.poll() is not None:
                    sys.exit(f"error: the run ended before its second step:\n{log.read_text()}")
                time.sleep(0.02)
            disturb()
        process.wait()
    return process.returncode, log.read_text()


def pauses(project: Path) -> list[tuple[float, int]]:
    """Seconds between the ends of the steps of a training, and which step it was, the longest first."""
    steps = sorted(project.glob("checkpoints/*/*/steps/*/metrics.json"))
    times = [path.stat().st_mtime for path in steps]
    found = ((later - earlier, number) for number, (earlier, later) in enumerate(pairwise(times), 2))
    return sorted(found, reverse=True)


def points(address: str) -> dict[str, list[tuple[int, float]]]:
    """Of every run that trained, a curve, as MLflow has it."""
    client = mlflow.MlflowClient(address)
    found = {}
    for run in client.search_runs([e.experiment_id for e in client.search_experiments()]):
        if history := client.get_metric_history(run.info.run_id, POINT):
            found[f"{run.info.run_name} {run.info.status}"] = [(one.step, one.value) for one in history]
    return found


def main() -> int:
    """Disturb, run, compare; the status is 1 if anything came out differently."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for which a server is away")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--only", nargs="*", default=["MLflow", "Prefect"], help="MLflow, Prefect")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        ports = free_port(), free_port()
        prefect_address, mlflow_address = f"http://127.0.0.1:{ports[0]}/api", f"http://127.0.0.1:{ports[1]}"
        environment = settings(folder) | {"PREFECT_API_URL": prefect_address}
        store = [
            "--backend-store-uri",
            f"sqlite:///{folder}/server.db",
            "--artifacts-destination",
            f"{folder}/artifacts",
        ]
        prefect = Server(folder, environment, ["prefect", "server", "start", "--host", "127.0.0.1"], ports[0])
        record = Server(folder, environment, ["mlflow", "server", "--workers", "1", *store], ports[1])
        environment |= {"MLFLOW_TRACKING_URI": mlflow_address}

        def away(server: Server) -> Callable[[], None]:
            def act() -> None:
                server.kill()
                time.sleep(options.seconds)
                server.start()

            return act

        try:
            prefect.start()
            record.start()
            expected: list[str] = []
            servers = {"MLflow": record, "Prefect": prefect}
            for name in ("nobody", *options.only):
                disturb = away(servers[name]) if name in servers else None
                project = copy(folder, environment)
                params = project / "params.yaml"
                params.write_text(re.sub(r"(?m)^  steps: \d+", f"  steps: {options.steps}", params.read_text()))
                params.write_text(params.read_text().replace("  experiment: ", f"  experiment: {name}-", 1))
                status, told = disturbed(project, environment, disturb)
                made = hashes(project) if status == 0 else []
                expected = expected or made
                curve = {k: v for k, v in points(mlflow_address).items() if name in k}
                whole = [step for step, _ in next(iter(curve.values()), [])] == list(range(1, options.steps + 1))
                finished = len(curve) == 1 and next(iter(curve)).endswith("FINISHED")
                good = status == 0 and made == expected and whole and finished
                failed += not good
                away_s = 0.0 if disturb is None else options.seconds
                print(
                    f"{name} away for {away_s:.0f} s: status {status}, {'the same' if made == expected else 'other'} "
                    f"doctor, longest steps {', '.join(f'{s:.1f} s ({n})' for s, n in pauses(project)[:3])}, "
                    f"{'all' if whole else 'not all'} of {options.steps} points once, {json.dumps(list(curve))}",
                    flush=True,
                )
                warned = [line for line in told.splitlines() if "warning" in line or "answer" in line]
                print("\n".join(f"    {line}" for line in warned[:8]), flush=True)
                if not good:
                    print(told[-3000:])
        finally:
            record.kill()
            prefect.kill()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
