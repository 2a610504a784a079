"""A Prefect server for as long as it is needed.

Imports nothing of Prefect, whose address must be in the environment before it is imported.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

import psutil

from tasks.interrupts import left_when_told, signals_put_off

ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT_S = 180
SERVER_ENDS_S = 4
AWAITED = "ANAMNESIS_AWAITED_SERVER"  # in a job's environment: the address of a server that was started beside it


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
    port = free_port()
    address = f"http://127.0.0.1:{port}/api"
    (ROOT / "runs").mkdir(exist_ok=True)
    server: subprocess.Popen[bytes] | None = None
    with left_when_told():
        try:
            with (ROOT / "runs" / "prefect-server.log").open("w") as log, signals_put_off():
                command = [
                    sys.executable,
                    "-m",
                    "prefect",
                    "server",
                    "start",
                    "--host",
                    "127.0.0.1",
                    "--port",
                    str(port),
                ]
                server = subprocess.Popen(
                    command,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=ROOT,
                    env={**os.environ, "PREFECT_API_URL": address},
                    process_group=0,
                )
            yield address, lambda: wait_until_healthy(address, server)
        finally:
            if server is not None:
                end(server, SERVER_ENDS_S)


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
            raise SystemExit("error: the Prefect server did not start; see runs/prefect-server.log")
        time.sleep(0.3)


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
