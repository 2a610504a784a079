"""Stops `make run`'s command at random moments, by Ctrl-C and by SIGTERM in turn, half of these
where interrupts are ignored, as a script does to what it puts into the background: `python -m tests.faults.stops --stops 20
--seed 0`. Nothing that it started may be there 15 s later, its locks are free, Prefect knows of no run that still runs, and
the next one goes on where this one was.

A tiny copy of the project, each run with the private Prefect server that `make run` starts. What runs to its end before
its moment comes is no stop; a fresh copy begins then.
"""

import argparse
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import psutil

from tests.faults.kills import copy, settings

GRACE_S = 15.0
LONGEST_S = 900
ENDED = ("COMPLETED", "CANCELLED", "CRASHED", "FAILED")


def started(home: str) -> list[psutil.Process]:
    """Every process below whose environment names this Prefect home: what a run started, in whatever session it is."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("PREFECT_HOME") == home and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def states(home: Path) -> Counter[str]:
    """Of all flow runs that Prefect knows."""
    database = home / "prefect.db"
    if not database.exists():
        return Counter()
    with closing(sqlite3.connect(database)) as connection:
        told = connection.execute("select state_type, state_name from flow_run").fetchall()
    return Counter(name if kind in ENDED else f"{name} (still)" for kind, name in told)


def runs_of_mlflow(project: Path) -> Counter[str]:
    """The states of all runs that MLflow knows."""
    database = project / "mlruns/mlflow.db"
    if not database.exists():
        return Counter()
    with closing(sqlite3.connect(database)) as connection:
        return Counter(state for (state,) in connection.execute("select status from runs"))


def stop(
    project: Path, environment: dict[str, str], after_s: float, number: signal.Signals, background: bool
) -> tuple[bool, float, int]:
    """Start `make run`'s command, maybe as a script does in its background, where interrupts are ignored, and stop it;
    returns whether it was stopped, seconds until nothing of it was left, and
    what was left after the time allowed.
    """
    with (project.parent / "log").open("w") as out:
        signal.signal(signal.SIGINT, signal.SIG_IGN if background else signal.default_int_handler)
        job = subprocess.Popen(
            [sys.executable, "-m", "commands.run"],
            cwd=project,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with suppress(subprocess.TimeoutExpired):
            job.wait(after_s)
        stopped = job.poll() is None
        if stopped and (number == signal.SIGINT or not background):
            os.killpg(job.pid, number)  # as a terminal and `timeout` do: all that belong to the foreground
        elif stopped:
            job.send_signal(number)
        began = time.monotonic()
        while (left := started(environment["PREFECT_HOME"])) and time.monotonic() - began < GRACE_S:
            job.poll()
            time.sleep(0.1)
        took = time.monotonic() - began
        for process in left:
            print(f"  left: {process.pid} {' '.join(process.cmdline())[:160]}", flush=True)
            process.kill()
        job.wait(30)
    return stopped, took, len(left)


def main() -> int:
    """Stop, look, go on; the status is 1 if anything was left or a run did not go on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stops", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--within", type=float, default=60.0, help="seconds from which a moment is drawn")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    done = failed = 0
    slowest = 0.0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        environment = settings(folder)
        project = copy(folder, environment)
        while done < options.stops:
            number = (signal.SIGINT, signal.SIGTERM)[done % 2]
            after_s = rng.uniform(1, options.within)
            background = done % 4 == 3
            stopped, took, left = stop(project, environment, after_s, number, background)
            told = f"{number.name}{' in the background' * background} at {after_s:.1f} s: "
            if not stopped:
                print(told + "had ended; a fresh project", flush=True)
                project = copy(folder, environment)
                continue
            done += 1
            slowest = max(slowest, took)
            known = states(folder / "prefect")
            open_runs = [name for name in known if name.endswith("(still)")] + ["RUNNING"] * runs_of_mlflow(project)[
                "RUNNING"
            ]
            failed += bool(left or open_runs)
            print(
                told
                + f"nothing left after {took:.1f} s" * (not left)
                + f"{left} processes left" * bool(left)
                + f"; Prefect {dict(known)}, MLflow {dict(runs_of_mlflow(project))}",
                flush=True,
            )
        last = subprocess.run(
            [sys.executable, "-m", "commands.run"],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
        )
        failed += last.returncode != 0
        print(
            f"{done} stops, at most {slowest:.1f} s; the run after the last {'ended' if not last.returncode else 'FAILED: ' + last.stdout[-2000:]}; {failed} wrong"
        )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
