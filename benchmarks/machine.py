"""Where and with what a figure was measured."""

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.setting import device, onednn

ROOT = Path(__file__).resolve().parent.parent
# what makes this processor behave as another
STAND_IN = (
    "BENCH_ONEDNN",
    "ATEN_CPU_CAPABILITY",
    "MKL_ENABLE_INSTRUCTIONS",
)
# Dense bfloat16 tensor-core peaks in FLOP/s, from the makers' data sheets; the first name that the device's contains
# counts.
PEAKS = {
    "B200": 2250e12,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "A10G": 70e12,
    "A10": 125e12,
    "RTX 4090": 165e12,
}


def machine() -> dict[str, Any]:
    """Processor, cores, memory, GPU and how busy it was."""
    gpu = torch.cuda.get_device_name(0) if device() == "cuda" else None
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "gpu": gpu,
        "peak_flops": peak(gpu),
        "system": platform.system(),
        "simd": torch.backends.cpu.get_cpu_capability(),
        "products": "oneDNN" if onednn() else "torch's own",
        "threads": torch.get_num_threads(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def processor() -> str:
    """The model name of the processor."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else []
    return names[0] if names else platform.processor() or platform.machine()


def peak(gpu: str | None) -> float | None:
    """FLOP/s in bfloat16 of a GPU by its name, if it is known."""
    return next((flops for name, flops in PEAKS.items() if gpu and name in gpu), None)


def kind() -> str:
    """What the machine is called in file names: its GPU, or cpu and the number of cores, and whether it stands in for
    another processor.
    """
    gpu = torch.cuda.get_device_name(0) if device() == "cuda" else None
    # BENCH_ONEDNN=1 changes nothing
    stand_in = "-stand-in" if any(os.environ.get(name, "1") != "1" for name in STAND_IN) else ""
    return re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-") if gpu else f"cpu-{os.cpu_count()}{stand_in}"


def versions() -> dict[str, str | None]:
    """Of what decides speed; None: not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in ("torch", "transformers", "trl", "vllm", "accelerate", "prefect", "mlflow"):
        found[name] = _version(name) or _version(f"{name}-cpu")
    return found


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def checkout() -> dict[str, Any]:
    """Commit of the code, and whether it was changed since; results and figures that a run writes do not count."""

    def git(*command: str) -> str:
        return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", ".", ":!benchmarks/results", ":!docs/images")
    return {"commit": git("rev-parse", "HEAD"), "dirty": bool(changed)}


def command() -> str:
    """How this run was started."""
    settings = [
        f"{name}={os.environ[name]}" for name in ("OMP_NUM_THREADS", "BENCH_CPU", *STAND_IN) if name in os.environ
    ]
    return " ".join([*settings, "python -m benchmarks", *sys.argv[1:]])
