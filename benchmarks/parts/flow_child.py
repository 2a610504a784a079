"""Runs the real `train_doctor` flow in this checkout and writes where each step's time went: `python -m
benchmarks.parts.flow_child OUT.json REPEATS`.

Started by `benchmarks.parts.overhead` inside a temporary copy of the project. What is timed is wrapped from outside,
nothing is replaced.
"""

import functools
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.engines import choose_products
from clinic.consultation import Consultation
from doctor.training import Training
from flows import train_doctor as front
from rl.workers.local import LocalSession
from tracking.recorder import Recorder

PARTS = ("rollout", "score", "learn", "save")  # of one step in the flow, beside the recording
SPENT: defaultdict[str, float] = defaultdict(float)
STARTS: list[dict[str, float]] = []  # what had been spent when each step began


def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, its seconds added up under a name."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            SPENT[name] += time.perf_counter() - began

    return call


def wrap() -> None:
    """Time the model's phases, the environment inside them, every task, and where steps begin."""
    LocalSession.rollout = timed("rollout_s", LocalSession.rollout)  # type: ignore[method-assign]
    LocalSession.learn = timed("update_s", LocalSession.learn)  # type: ignore[method-assign]
    for name in PARTS:
        setattr(front, name, timed(f"{name}_task_s", getattr(front, name)))
    Recorder.step = timed("record_step_task_s", Recorder.step)  # type: ignore[method-assign]
    Recorder.written = timed("record_wait_task_s", Recorder.written)  # type: ignore[method-assign]
    experience, take = front.experience, Consultation.step

    def marked(run: Training, step: int) -> dict[str, float]:
        STARTS.append({"wall_s": time.perf_counter(), "cpu_s": time.process_time(), **SPENT})
        return experience(run, step)

    async def answered(self: Consultation, turn: str) -> Any:
        began = time.perf_counter()
        try:
            return await take(self, turn)
        finally:
            SPENT["patients_s"] += time.perf_counter() - began

    front.experience = marked
    Consultation.step = answered  # type: ignore[method-assign]


def main() -> None:
    """Run the flow; write one line of seconds for every step between the first and the last."""
    out, repeats = Path(sys.argv[1]), int(sys.argv[2])
    choose_products()
    wrap()
    front.train_doctor(out=Path("models/doctor").resolve())
    spans = [{name: after[name] - before.get(name, 0.0) for name in after} for before, after in pairwise(STARTS)]
    out.write_text(json.dumps(spans[1 : repeats + 1]))


if __name__ == "__main__":
    main()
