"""One process per side, all under one parent that lets them step in turn: A, B, A, B, so that what else the machine
does hits both alike.

A side is an object with `run(channel)`; `serve` is the usual one. Who waits for its turn sleeps on a pipe.
"""

import importlib
import multiprocessing
import resource
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from benchmarks.figures import medians

Figures = dict[str, float]
STEP, STOP = "step", "stop"


class BenchmarkError(RuntimeError):
    """A side could not be measured."""


@dataclass(frozen=True)
class Spec:
    """How to make a side: `module:class` and what to give it (picklable)."""

    side: str
    given: Mapping[str, Any]


class Stopwatch:
    """Wall and process time of one step, and the peak of memory so far."""

    def __init__(self) -> None:
        """Starts at once."""
        finish_gpu()
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def read(self) -> Figures:
        """Seconds since the start, bytes at the peak of the process (of the GPU's allocator, where there is one)."""
        finish_gpu()
        return {
            "wall_s": time.perf_counter() - self.wall,
            "cpu_s": time.process_time() - self.cpu,
            "peak_bytes": float(peak_bytes()),
        }


def finish_gpu() -> None:
    """Wait for what was asked of the GPU, where one is in use."""
    if _gpu_in_use():
        torch.cuda.synchronize()


def _gpu_in_use() -> bool:
    return torch.cuda.is_available() and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]  # torch's stubs


def peak_bytes() -> int:
    """Peak memory of this process: of the GPU's allocator if one is in use, else of the resident set."""
    if _gpu_in_use():
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would begin with what the parent had when it forked
        return _status_bytes(status, "VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_bytes() -> int:
    """Memory in use now, in the sense of `peak_bytes`."""
    if _gpu_in_use():
        return torch.cuda.memory_allocated()
    status = Path("/proc/self/status")
    return _status_bytes(status, "VmRSS") if status.exists() else 0


def _status_bytes(status: Path, field: str) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def serve(channel: Connection, step: Callable[[], Figures]) -> None:
    """Step whenever asked to."""
    while channel.recv() == STEP:
        watch = Stopwatch()
        figures = step()
        channel.send(figures | watch.read())


def _main(channel: Connection, spec: Spec) -> None:
    try:
        module, name = spec.side.split(":")
        side = getattr(importlib.import_module(module), name)(**spec.given)
        channel.send({})
        side.run(channel)
    except Exception:  # noqa: BLE001  the edge of the process: the parent tells it
        channel.send(traceback.format_exc())


class Worker:
    """The parent's end of one side."""

    def __init__(self, spec: Spec) -> None:
        """Start the process and wait until the side is made."""
        context = multiprocessing.get_context("spawn")
        self.channel, theirs = context.Pipe()
        self.process = context.Process(target=_main, args=(theirs, spec))
        self.process.start()
        theirs.close()
        self.name = spec.side
        self._answer()

    def _answer(self) -> Figures:
        try:
            answer = self.channel.recv()
        except EOFError:
            self.process.join()
            raise BenchmarkError(f"{self.name} died (exit status {self.process.exitcode}); out of memory?") from None
        if isinstance(answer, str):
            raise BenchmarkError(f"{self.name} failed:\n{answer}")
        return dict(answer)

    def step(self) -> Figures:
        """One step; its figures."""
        self.channel.send(STEP)
        return self._answer()

    def close(self) -> None:
        """End the process."""
        if self.process.is_alive():
            try:
                self.channel.send(STOP)
                self.process.join(30)
            except OSError:
                pass
        if self.process.is_alive():
            self.process.terminate()
        self.process.join()


@contextmanager
def workers(specs: Mapping[str, Spec]) -> Iterator[dict[str, Worker]]:
    """The sides by name, ended with the block."""
    with ExitStack() as stack:
        made = {}
        for name, spec in specs.items():
            worker = made[name] = Worker(spec)
            stack.callback(worker.close)
        yield made


def interleaved(specs: Mapping[str, Spec], repeats: int) -> dict[str, list[Figures]]:
    """One warm-up step each, then `repeats` rounds in which every side steps once; figures by side."""
    with workers(specs) as sides:
        for side in sides.values():
            side.step()
        raw: dict[str, list[Figures]] = {name: [] for name in sides}
        for _ in range(repeats):
            for name, side in sides.items():
                raw[name].append(side.step())
    return raw


def row(raw: Sequence[Figures], **labels: Any) -> dict[str, Any]:
    """A line of the results: labels, medians, every raw number."""
    return {**labels, "median": medians(raw), "raw": list(raw)}
