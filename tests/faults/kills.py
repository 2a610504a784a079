"""Kills the pipeline at random moments and inside its writes, again and again, and lets it end: `python -m
tests.faults.kills --kills 30 --seed 0`. What comes out must be what comes out of a run that nobody disturbs.

A tiny copy of the project, a Prefect server of its own. A row of kills ends when a run reaches its end; then a fresh copy
begins. Half of the kills come after so many seconds, half before or after a file is put into its place.
"""

import argparse
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tasks.server import free_port, wait_until_healthy
from tests.faults.inside.sitecustomize import kill_run
from tests.flows.conftest import ROOT, shrink

INSIDE = Path(__file__).with_name("inside")
SAME = ("models/doctor/model.safetensors", "models/warm_start/model.safetensors", "metrics/evaluate_doctor.json")
LONGEST_S = 900


@dataclass(frozen=True)
class Kill:
    """When to kill: after `seconds`, or at write number `write`, before or after it."""

    seconds: float | None = None
    write: int = 0
    after: bool = False

    def __str__(self) -> str:
        return (
            f"{self.seconds:.1f} s"
            if self.seconds is not None
            else f"{'after' if self.after else 'before'} write {self.write}"
        )


@dataclass(frozen=True)
class Run:
    """How a run ended."""

    status: int
    seconds: float
    writes: tuple[str, ...]  # by name, in order
    log: str

    @property
    def killed(self) -> bool:
        return self.status in (-9, 137) or self.log.endswith("killed")


def run(
    project: Path, environment: Mapping[str, str], kill: Kill | None, command: Sequence[str] = ("dvc", "repro")
) -> Run:
    """A command to its end, or to its kill with all that it started."""
    count = project.parent / "writes"
    count.write_bytes(b"")
    given = {"FAULT_COUNT": str(count), "PYTHONPATH": str(INSIDE)}
    if kill is not None and kill.write:
        given |= {"FAULT_AT": str(kill.write), "FAULT_AFTER": str(int(kill.after))}
    log, began = project.parent / "log", time.monotonic()
    with log.open("w") as out:
        process = subprocess.Popen(
            command,
            cwd=project,
            env={**environment, **given},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(kill.seconds if kill is not None and kill.seconds is not None else LONGEST_S)
        except subprocess.TimeoutExpired:
            kill_run(str(count))
            process.wait()
    return Run(process.returncode, time.monotonic() - began, tuple(count.read_text().splitlines()), log.read_text())


def copy(folder: Path, environment: Mapping[str, str]) -> Path:
    """A fresh tiny checkout."""
    project = folder / "project"
    shutil.rmtree(project, ignore_errors=True)
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for file in filter(None, tracked.split("\0")):
        if not file.startswith(("tests/", "docs/", "metrics/", "plots/")) and file != "dvc.lock":
            (project / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, project / file)
    shrink(project)
    for command in (["git", "init", "-q"], ["git", "add", "-A"], ["git", "commit", "-qm", "start"]):
        subprocess.run(command, cwd=project, env=environment, check=True)
    return project


def hashes(project: Path) -> list[str]:
    """SHA-256 of what must be the same."""
    return [hashlib.sha256((project / name).read_bytes()).hexdigest()[:12] for name in SAME]


def chosen(rng: random.Random, whole: Run) -> Kill:
    """When to kill next."""
    if rng.random() < 0.5:
        return Kill(seconds=rng.uniform(1, whole.seconds))
    return Kill(write=rng.randint(1, len(whole.writes)), after=rng.random() < 0.5)


def settings(folder: Path) -> dict[str, str]:
    """The environment of a run whose Prefect keeps everything in `folder`."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "MLFLOW_", "DVC_", "ANAMNESIS_"))}
    return inherited | {
        "PREFECT_HOME": str(folder / "prefect"),
        "DO_NOT_TRACK": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DVC_NO_ANALYTICS": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "GIT_AUTHOR_NAME": "t",
        "GIT_AUTHOR_EMAIL": "t@example.org",
        "GIT_COMMITTER_NAME": "t",
        "GIT_COMMITTER_EMAIL": "t@example.org",
    }


def main() -> int:
    """Kill, run, compare; the status is 1 if anything came out differently."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with served() as (folder, environment):
        return _kills(options.kills, random.Random(options.seed), folder, environment)


@contextmanager
def served() -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder that goes away, and the environment of runs there, with a Prefect server of their own."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        port = free_port()
        address = f"http://127.0.0.1:{port}/api"
        environment = settings(folder) | {"PREFECT_API_URL": address}
        command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        with (folder / "server.log").open("w") as log:
            server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=ROOT)
        try:
            wait_until_healthy(address, server)
            yield folder, environment
        finally:
            server.terminate()
            server.wait(20)


def _kills(wanted: int, rng: random.Random, folder: Path, environment: Mapping[str, str]) -> int:
    project = copy(folder, environment)
    whole = run(project, environment, None)
    if whole.status:
        sys.exit(f"error: the run that nobody disturbs failed:\n{whole.log}")
    expected = hashes(project)
    print(f"undisturbed: {whole.seconds:.0f} s, {len(whole.writes)} writes, {' '.join(expected)}", flush=True)
    done = failed = rows = 0
    while done < wanted:
        project, ended, rows = copy(folder, environment), False, rows + 1
        while not ended:
            kill = chosen(rng, whole) if done < wanted else None
            found = run(project, environment, kill)
            ended = found.status == 0
            done += not ended and kill is not None
            print(
                f"row {rows}: {kill or 'undisturbed'}: {'ended' if ended else 'killed'} after {found.seconds:.0f} s",
                flush=True,
            )
            if not ended and found.status not in (-9, 137):
                failed, ended = failed + 1, True
                print(f"row {rows}: ended with {found.status}:\n{found.log[-3000:]}", flush=True)
        if found.status == 0 and hashes(project) != expected:
            failed += 1
            print(f"row {rows}: came out as {' '.join(hashes(project))}", flush=True)
    print(f"{done} kills in {rows} rows, {failed} came out differently")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
