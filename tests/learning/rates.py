"""How often each algorithm learns the toy consultation: `python -m tests.learning.rates --game easy --seeds 0-19`.

One line a run and a table at the end. `--algorithms ppo` keeps every variant whose name begins so; `--jobs` runs as
many processes side by side. ATEN_CPU_CAPABILITY=avx2 in the environment stands in for another processor: other vector
code, no products by oneDNN, so other bits everywhere.
"""

import argparse
import json
import multiprocessing
import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

import torch

from tests.learning.course import CHANGES, GAMES, Outcome, learn


def run(name: str, game: str, seed: int, threads: int, device: str = "cpu") -> Outcome:
    """One run on so many threads."""
    torch.set_num_threads(threads)
    return learn(name, game, seed, device)


def processes(jobs: int) -> ProcessPoolExecutor:
    """So many that play runs; none outlives the one that asked for them, however that ends."""
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    def wait() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def table(outcomes: Sequence[Outcome]) -> str:
    """Solved runs of all, rollout steps of the solved ones (median) and the seeds that were not solved."""
    lines = [
        "| algorithm | game | solved | steps (median) | CPU seconds (most) | not solved |",
        "|---|---|---|---|---|---|",
    ]
    for game in GAMES:
        for name in CHANGES:
            runs = sorted((o for o in outcomes if (o.name, o.game) == (name, game)), key=lambda o: o.seed)
            if runs:
                steps = sorted(o.steps for o in runs if o.solved)
                missed = ", ".join(f"{o.seed} ({o.sampled:.2f})" for o in runs if not o.solved)
                most = max(o.seconds for o in runs)
                lines.append(
                    f"| {name} | {game} | {len(steps)} of {len(runs)} | {steps[len(steps) // 2] if steps else '–'} | {most:.0f} | {missed or '–'} |"
                )
    return "\n".join(lines)


def numbers(text: str) -> list[int]:
    """`0-3,7` as 0, 1, 2, 3, 7."""
    spans = [part.partition("-") for part in text.split(",")]
    return [n for first, _, last in spans for n in range(int(first), int(last or first) + 1)]


def main() -> int:
    """Play all, print, and end with 1 if one was not solved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=numbers, default=numbers("0-19"))
    parser.add_argument("--game", choices=sorted(GAMES), default="easy")
    parser.add_argument("--algorithms", nargs="*", default=[""])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--device", default="cpu", help="where the policy lies: cpu or cuda")
    parser.add_argument(
        "--out", type=Path, help="JSON lines of all runs; those that are there already are not played again"
    )
    args = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # beside other work, threads that spin would wait for cores
    done = (
        [Outcome(**json.loads(line)) for line in args.out.read_text().splitlines()]
        if args.out and args.out.exists()
        else []
    )
    there = {(o.name, o.game, o.seed) for o in done}
    names = [name for name in CHANGES if any(name.startswith(wanted) for wanted in args.algorithms)]
    todo = [(name, args.game, seed) for seed in args.seeds for name in names if (name, args.game, seed) not in there]
    with processes(args.jobs) as pool:
        for future in as_completed([pool.submit(run, *job, args.threads, args.device) for job in todo]):
            outcome = future.result()
            done.append(outcome)
            verdict = "solved" if outcome.solved else "NOT   "
            told = f"in {outcome.steps:3} steps, sampled {outcome.sampled:.3f}, greedy {outcome.greedy:.3f}, {outcome.seconds:.0f} s"
            print(f"{outcome.name:40} seed {outcome.seed:3}  {verdict} {told}", flush=True)
            if args.out:
                with args.out.open("a") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")
    wanted = [o for o in done if o.name in names and o.game == args.game and o.seed in args.seeds]
    print(table(wanted))
    return int(not all(o.solved for o in wanted))


if __name__ == "__main__":
    sys.exit(main())
