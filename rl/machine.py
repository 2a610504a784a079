"""What a process takes of its machine: how many threads compute, and when memory goes back.

What the environment says about either goes before.
"""

import ctypes
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rl.config import Device, MachinesParams, Threads
from rl.errors import TrainingError

COUNTING = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # whoever sets one has decided how many threads there are
# whoever sets one has decided how memory is held
HEAP = (
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
)
MMAP_THRESHOLD = 2**23  # bytes from which a block is the system's again as soon as it is free
M_MMAP_THRESHOLD = -3  # in malloc.h of glibc
QUOTA = Path("/sys/fs/cgroup/cpu.max")


def use(params: MachinesParams) -> None:
    """Take of the machine what the parameters say, from now on."""
    use_threads(params.threads)
    if params.spare_memory:
        give_large_blocks_back()


@dataclass(frozen=True)
class Place:
    """Where a model lies and how it computes there."""

    device: str = "cpu"  # torch's name
    compute: str = "float32"  # torch's name of the precision of forward and backward
    offload: bool = False  # whether the optimizer's moments wait on the host while the engine plays


def place_of(params: MachinesParams) -> Place:
    """Where the parameters put the doctor; see `device_of`."""
    return Place(device_of(params.device), params.compute, params.offload)


def place_of_training(params: MachinesParams) -> Place:
    """Where the doctor lies that is trained: on a worker's GPU, if workers train and are given one.

    Raises:
        TrainingError: `device` says otherwise.
    """
    if params.backend == "local":
        return place_of(params)
    device = "cuda" if params.ray.gpus_per_worker else "cpu"
    if params.device not in ("auto", device):
        raise TrainingError(
            f"machines.device is {params.device}, but machines.ray.gpus_per_worker = {params.ray.gpus_per_worker} puts the workers on {device}; set device to auto"
        )
    return Place(device, params.compute)


def device_of(wanted: Device) -> str:
    """Where a model is to lie, as torch calls it.

    Raises:
        TrainingError: a GPU is asked for and there is none that torch can use.
    """
    import torch  # a command's --help does without

    found = torch.cuda.is_available()
    if wanted == "cuda" and not found:
        raise TrainingError("device is cuda, but torch finds no GPU here; use auto or cpu, or install torch for CUDA")
    return "cuda" if wanted != "cpu" and found else "cpu"


def available_cores(quota: Path = QUOTA) -> int:
    """Cores that this process may use: those it may run on, or what its control group is given, if that is less."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    given, _, period = quota.read_text().partition(" ") if quota.exists() else ("max", "", "")
    return allowed if given == "max" else max(1, min(allowed, math.floor(int(given) / int(period))))


def thread_count(wanted: Threads, environment: Mapping[str, str], cores: int) -> int | None:
    """How many threads are to compute; None: as the environment says.

    Never a function of what else the machine does: the last bits of a result may depend on it.
    """
    if any(name in environment for name in COUNTING):
        return None
    return cores if wanted == "auto" else wanted


def use_threads(wanted: Threads) -> None:
    """Compute with so many threads from now on, unless the environment names a number.

    Where torch is not loaded yet, it will read it when it is.
    """
    count = thread_count(wanted, os.environ, available_cores())
    if count is None:
        return
    torch = sys.modules.get("torch")
    if torch is None:
        os.environ[COUNTING[0]] = str(count)
    elif count != torch.get_num_threads():
        torch.set_num_threads(count)


def compute_alike(device: str) -> None:
    """The same input gives the same bits on a processor, with any number of threads, from now on."""
    import torch  # a command's --help does without

    if device == "cpu":
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # torch's stubs; a debugging aid that costs a tenth of a step


def give_large_blocks_back(environment: Mapping[str, str] = os.environ, threshold: int = MMAP_THRESHOLD) -> bool:
    """Keep large blocks out of the C library's heap, in which sequences of ever other lengths leave holes; returns
    whether that was done.

    Done with glibc alone, and not where the environment says how memory is to be held.
    """
    if not sys.platform.startswith("linux") or any(name in environment for name in HEAP):
        return False
    library = ctypes.CDLL(None)
    return hasattr(library, "gnu_get_libc_version") and bool(library.mallopt(M_MMAP_THRESHOLD, threshold))
