"""A Prefect server for as long as it is needed.

Imports nothing of Prefect, whose address must be in the environment before it is imported.
"""

import atexit
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any

import psutil

from tasks import startup
from tasks.disk import FULL_BYTES
from tasks.interrupts import left_when_told, signals_put_off

ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT_S = 180
SERVER_ENDS_S = 4
AWAITED = "ANAMNESIS_AWAITED_SERVER"  # in a job's environment: the address of a server that was started beside it
PR_SET_PDEATHSIG = 1  # linux/prctl.h
# rare collections: a sixth sooner than -m prefect
SERVER = "import gc; gc.set_threshold(50_000); from prefect.cli import app; app()"
_beside: dict[str, "subprocess.Popen[bytes]"] = {}  # servers that `serve_flow` started, by their addresses


@contextmanager
def prefect_server() -> Iterator[str]:
    """The address of a Prefect server that answers: the one in PREFECT_API_URL, the one on the default port, or a
    private one for this block.
    """
    with starting_server() as (address, ready):
        ready()
        yield address


@contextmanager
def starting_server() -> Iterator[tuple[str, Callable[[], None]]]:
    """As `prefect_server`, but a private one may still be starting: also what waits until it answers."""
    for address in (os.environ.get("PREFECT_API_URL"), "http://127.0.0.1:4200/api"):
        if address and healthy(address):
            yield address, lambda: None
            return
    address = f"http://127.0.0.1:{free_port()}/api"
    server: subprocess.Popen[bytes] | None = None
    with left_when_told():
        try:
            with signals_put_off():
                server = _start(address)
            yield address, lambda: wait_until_healthy(address, server)
        finally:
            if server is not None:
                end(server, SERVER_ENDS_S)


def serve_flow() -> None:
    """Start a private server beside the imports of a flow that `python -m flows.<name>` begins, where nothing names one;
    it ends with this process, and `await_server` waits for it.

    Prefect would start it after them, and import the whole server into this process to do so: twice the time.
    """
    if not startup.is_program() or {"-h", "--help"} & set(sys.argv) or _is_named():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # which ends nothing that was started
        signal.signal(signal.SIGTERM, lambda told, _: sys.exit(128 + told))
    address = f"http://127.0.0.1:{free_port()}/api"
    with signals_put_off():
        server = _start(address)
        atexit.register(end, server, SERVER_ENDS_S)
    _beside[address] = server
    os.environ.update({"PREFECT_API_URL": address, AWAITED: address})


def await_server() -> None:
    """Wait for the server that was started beside this process, or by it, if there is one. The imports end here (`startup.done`).

    Raises:
        SystemExit: as `wait_until_healthy`.
    """
    startup.done()
    if address := os.environ.pop(AWAITED, None):
        wait_until_healthy(address, _beside.get(address))


def _is_named() -> bool:
    """Whether Prefect is told of a server: in the environment, a profile or a file of settings."""
    if os.environ.get("PREFECT_API_URL"):
        return True
    profiles = _read(Path(os.environ.get("PREFECT_PROFILES_PATH") or _home() / "profiles.toml"))
    active = os.environ.get("PREFECT_PROFILE") or profiles.get("active", "")
    tool = _read(ROOT / "pyproject.toml").get("tool", {}).get("prefect", {})
    written = ROOT / ".env"
    return (
        "PREFECT_API_URL" in profiles.get("profiles", {}).get(active, {})
        or any("url" in settings.get("api", {}) for settings in (_read(ROOT / "prefect.toml"), tool))
        or (written.is_file() and "PREFECT_API_URL" in written.read_text("utf-8", errors="replace"))
    )


def _home() -> Path:
    """Where Prefect keeps what is its own, its database for one."""
    return Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect")


def _read(settings: Path) -> dict[str, Any]:
    """What a file says; nothing if it cannot be read, which Prefect tells better."""
    try:
        return tomllib.loads(settings.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def _start(address: str) -> "subprocess.Popen[bytes]":
    """A server of its own at an address, which ends with this process, however that ends (on Linux)."""
    port = address.rpartition(":")[2].removesuffix("/api")
    with _log() as log:
        return subprocess.Popen(
            [sys.executable, "-c", SERVER, "server", "start", "--host", "127.0.0.1", "--port", port],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "PREFECT_API_URL": address},
            process_group=0,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )


def _log() -> AbstractContextManager[IO[str] | int]:
    """Where a server of its own tells what it does; nowhere if nothing can be written, which the flow tells better."""
    try:
        (ROOT / "runs").mkdir(exist_ok=True)
        return (ROOT / "runs" / "prefect-server.log").open("w")
    except OSError:
        return nullcontext(subprocess.DEVNULL)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def end(process: "subprocess.Popen[bytes]", within_s: float) -> None:
    """Let a process end, or end it with all that it started."""
    with suppress(psutil.NoSuchProcess):
        started = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(within_s)
            return
        for one in started:
            with suppress(psutil.NoSuchProcess):
                one.kill()
    process.kill()
    process.wait()


def wait_until_healthy(address: str, server: "subprocess.Popen[bytes] | None" = None) -> None:
    """Wait for a server that was just started, here or by who started this process.

    Raises:
        SystemExit: it ended or did not answer in time.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while not healthy(address):
        if (server is not None and server.poll() is not None) or time.monotonic() > deadline:
            raise SystemExit(f"error: the Prefect server did not start; {_why()}")
        time.sleep(0.3)


def _why() -> str:
    """What a server that did not start may have had, and where to look; a full disk leaves no log."""
    for place in (_home(), ROOT / "runs"):
        there = next(folder for folder in (place, *place.parents) if folder.is_dir())
        if shutil.disk_usage(there).free < FULL_BYTES:
            return f"{place} is on a disk that is full: free some of it and run this again"
    return "see runs/prefect-server.log"


def healthy(address: str) -> bool:
    """Whether a Prefect server answers there."""
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, HTTPException, ValueError):  # or no address at all
        return False


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
