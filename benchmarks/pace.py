"""How long a step takes beside busy processes: `python -m benchmarks.pace`.

Real consultations, the committed recipe, a quarter of the shipped episodes.

One process for every number of threads and way of factory, stepping in turn. What was measured on the same day on the
same machine stays in the file.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.figures import explained, medians, share_of_cores
from benchmarks.worker import Figures, Spec, Worker

# GNU's default is to spin 300000 times
WAITING = {
    "adapting": {},
    "spinning": {"GOMP_SPINCOUNT": "300000"},
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
}
DECIDING = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
GOAL = 1.5  # seconds over what the share of the processor explains, at most
SETTLE_S = 2.0  # a pace looks around twice a second
log = logging.getLogger("benchmarks")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pace", description=__doc__)
    parser.add_argument("--threads", default="1,2,4")
    parser.add_argument("--factory", default="adapting", help=f"of {', '.join(WAITING)}, separated by commas")
    parser.add_argument("--busy", default="0,1,2,3", help="numbers of processes that never wait")
    parser.add_argument(
        "--prompts", type=int, default=4, help="cases a step; each is played as often as the recipe says"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--print-only", action="store_true")
    return parser.parse_args()


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Start processes with these settings and none of the others that decide."""
    before = dict(os.environ)
    for name in DECIDING:
        os.environ.pop(name, None)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """So many processes that never wait, while the block runs."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(SETTLE_S)
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def measure(given: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for every number of threads, way of factory and number of busy processes; also those that took too long."""
    rows = []
    with ExitStack() as stack:
        sides: dict[tuple[int, str], Worker] = {}
        for threads in map(int, given.threads.split(",")):
            for factory in given.factory.split(",") if threads > 1 else ["adapting"]:
                with environment({"OMP_NUM_THREADS": str(threads), **WAITING[factory]}):
                    side = sides[threads, factory] = Worker(
                        Spec("benchmarks.sides.paced:Paced", {"prompts": given.prompts})
                    )
                stack.callback(side.close)
        for side in sides.values():
            side.step()
        for busy in map(int, given.busy.split(",")):
            raw: dict[tuple[int, str], list[Figures]] = {key: [] for key in sides}
            with busy_processes(busy):
                for _ in range(given.repeats):
                    for key, side in sides.items():
                        raw[key].append(side.step())
            for (threads, factory), figures in raw.items():
                rows.append(
                    {
                        "threads": threads,
                        "factory": factory,
                        "busy": busy,
                        "prompts": given.prompts,
                        "median": medians(figures),
                        "raw": figures,
                    }
                )
                log.info("%d threads, %s, %d busy: %.2f s", threads, factory, busy, rows[-1]["median"]["wall_s"])
    return rows


def table(rows: Sequence[Mapping[str, Any]], cores: int) -> str:
    """Seconds, how many times what the same threads need in their share of the processor, and how many times what as
    many cores to themselves would need.
    """
    alone: dict[int, dict[int, float]] = defaultdict(dict)  # by prompts and threads
    for row in rows:
        if not row["busy"]:
            seconds = alone[row["prompts"]]
            seconds[row["threads"]] = min(row["median"]["wall_s"], seconds.get(row["threads"], float("inf")))
    names = (
        "cases",
        "threads",
        "factory",
        "busy processes",
        "step s",
        "play s",
        "learn s",
        "CPU s",
        "times its share",
        "times as many cores",
    )
    lines = ["| " + " | ".join(names) + " |", "| " + "--- | " * len(names)]
    for row in rows:
        middle, seconds, threads, busy = row["median"], alone[row["prompts"]], row["threads"], row["busy"]
        phases = [f"{middle[name]:.2f}" for name in ("wall_s", "rollout_s", "update_s", "cpu_s")]
        share = [
            f"{middle['wall_s'] / seconds[threads] * share_of_cores(threads, cores, busy) / min(threads, cores):.2f}"
            if threads in seconds
            else ""
        ]
        fewer = [f"{middle['wall_s'] / explained(seconds, threads, cores, busy):.2f}" if 1 in seconds else ""]
        lines.append(
            "| "
            + " | ".join([str(row["prompts"]), str(threads), row["factory"], str(busy), *phases, *share, *fewer])
            + " |"
        )
    return "\n".join(lines) + "\n"


def write(rows: list[dict[str, Any]], path: Path) -> list[dict[str, Any]]:
    """Into the file of this machine and day; rows that an earlier call measured stay. Returns all of them."""

    def key(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return row["threads"], row["factory"], row["busy"], row["prompts"]

    run = {
        "command": " ".join(["python -m benchmarks.pace", *sys.argv[1:]]),
        "machine": machine.machine(),
        "versions": machine.versions(),
        "checkout": machine.checkout(),
    }
    before = json.loads(path.read_text())["rows"] if path.exists() else []
    kept = {key(row): row for row in before} | {key(row): row | {"run": run} for row in rows}
    path.parent.mkdir(exist_ok=True)
    every = [kept[name] for name in sorted(kept)]
    path.write_text(json.dumps({"rows": every}, indent=1) + "\n")
    return every


def main() -> None:
    """Measure, write, print."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    given = arguments()
    rows = measure(given)
    if not given.print_only:
        rows = write(
            rows, machine.ROOT / "benchmarks" / "results" / f"pace-{machine.kind()}-{datetime.now(UTC):%Y-%m-%d}.json"
        )
    sys.stdout.write(table(rows, os.cpu_count() or 1))


if __name__ == "__main__":
    main()
