"""Computing beside others: threads that wait for each other let go of their cores as soon as somebody else needs one.

Between two pieces of an operation the threads of torch wait for the last of them. GNU's OpenMP library lets them spin
meanwhile, which is fastest on cores of one's own. Where others want the cores too, the one who is waited for may have
none while the others spin: steps then take tens of times as long. The library has a second, short spin count for a
process with more OpenMP threads than cores. A pace watches who else computes, and while there are fewer cores than are
wanted it keeps a second team of threads, asleep: now there are more threads than cores, and all wait without spinning.
No result depends on any of this.
"""

import ctypes
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import torch

SAYS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")  # whoever sets one has decided how threads wait
INTERVAL_S = 0.5
SLACK = 0.5  # cores that others may take of those the threads need, before it is crowded
STAT = Path("/proc/stat")


def crowded(threads: int, cores: int, others: float, *, already: bool = False) -> bool:
    """Whether threads that spin would keep others from their cores, or the reverse.

    Args:
        threads: that compute.
        cores: that they may run on.
        others: cores that other processes kept busy lately.
        already: whether it was crowded before; it is until others take clearly less.
    """
    return threads > 1 and threads + others > cores + (SLACK / 2 if already else SLACK)


def busy_seconds(stat: str, cores: frozenset[int], tick: int) -> float:
    """Seconds that some cores have worked for anybody since the machine started, from the text of /proc/stat; `tick` of
    its units are one second.
    """
    total = 0
    for line in stat.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
            total += user + nice + system + irq + softirq + steal
    return total / tick


class SecondTeam:
    """Threads of the OpenMP library that sleep; the library counts them."""

    def __init__(self, library: ctypes.CDLL, size: int) -> None:
        """Start the team.

        Args:
            library: libgomp.
            size: how many threads.
        """
        self._over = threading.Event()
        threading.Thread(target=self._keep, args=(library, size), name="second team", daemon=True).start()

    def _keep(self, library: ctypes.CDLL, size: int) -> None:
        # a region that does nothing; its threads stay with whoever called it, until that thread ends
        library.GOMP_parallel(library.omp_get_num_threads, None, size, 0)
        self._over.wait()

    def dismiss(self) -> None:
        """Let them end."""
        self._over.set()


class Pace:
    """Looks around twice a second; never stops."""

    def __init__(self, library: ctypes.CDLL, cores: frozenset[int]) -> None:
        """Watch from now on.

        Args:
            library: libgomp.
            cores: numbers of those that this process may use.
        """
        self._library, self._cores = library, cores
        self._team: SecondTeam | None = None
        self._tick = os.sysconf("SC_CLK_TCK")
        threading.Thread(target=self._watch, name="pace", daemon=True).start()

    @property
    def careful(self) -> bool:
        """Whether threads wait without spinning now."""
        return self._team is not None

    def _watch(self) -> None:
        before = self._look()
        while True:
            time.sleep(INTERVAL_S)
            now = self._look()
            seconds, busy, own = (b - a for a, b in zip(before, now, strict=True))
            self.adapt(max(0.0, busy - own) / seconds)
            before = now

    def _look(self) -> tuple[float, float, float]:
        return time.monotonic(), busy_seconds(STAT.read_text(), self._cores, self._tick), time.process_time()

    def adapt(self, others: float) -> None:
        """Wait as it is right while others keep so many cores busy."""
        wanted = crowded(torch.get_num_threads(), len(self._cores), others, already=self.careful)
        if wanted and self._team is None:
            self._team = SecondTeam(self._library, len(self._cores) + 1)
        elif not wanted and self._team is not None:
            self._team.dismiss()
            self._team = None


def openmp_of_torch() -> ctypes.CDLL | None:
    """The loaded libgomp that torch computes with, if it is one."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    found = {line.split()[-1] for line in lines if "libgomp" in line and "/torch/" in line}
    return ctypes.CDLL(found.pop()) if len(found) == 1 else None


_KEPT: list[Pace] = []


def keep_pace(environment: Mapping[str, str] = os.environ) -> Pace | None:
    """Begin to look around, once in a process; None where the user has said how threads wait, or where there is nothing
    to do it with.
    """
    if _KEPT:
        return _KEPT[0]
    library = openmp_of_torch()
    if (
        library is None
        or not STAT.exists()
        or not hasattr(os, "sched_getaffinity")
        or any(name in environment for name in SAYS)
    ):
        return None
    _KEPT.append(Pace(library, frozenset(os.sched_getaffinity(0))))
    return _KEPT[0]
