"""`make run`: the whole pipeline once, under one private Prefect server that is stopped at the end.

Joins a server that is already running on the default port. Imports nothing of Prefect itself, since the address must be in the
environment before it is imported.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT_S = 180
AWAITED = "ANAMNESIS_AWAITED_SERVER"  # in a job's environment: the address of a server that was started beside it


def main() -> int:
    """Run the `retrain` flow; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m commands.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="stages to bring up to date; without any, all")
    given = parser.parse_args()
    settings = {
        "DO_NOT_TRACK": "true", "MLFLOW_DISABLE_TELEMETRY": "true", "DVC_NO_ANALYTICS": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1",
    }
    os.environ.update({name: value for name, value in settings.items() if name not in os.environ})
    with starting_server() as (address, ready):
        environment = {**os.environ, "PREFECT_API_URL": address, AWAITED: address}
        job = subprocess.Popen([sys.executable, "-m", "flows.retrain", *given.targets], cwd=ROOT, env=environment)
        try:
            ready()  # the job imports meanwhile, and waits too
        except BaseException:
            job.terminate()
            raise
        return wait_for(job)


def wait_for(child: "subprocess.Popen[bytes]") -> int:
    """Its exit status, however long it takes to stop DVC and the stage: a terminal interrupts it too, other signals to end are passed on as an interrupt."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: child.send_signal(signal.SIGINT))
    while True:
        with suppress(KeyboardInterrupt):
            return child.wait()


@contextmanager
def prefect_server() -> Iterator[str]:
    """The address of a Prefect server that answers: the one in PREFECT_API_URL, the one on the default port, or a private one for this block."""
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
    with (ROOT / "runs" / "prefect-server.log").open("w") as log:
        command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, env={**os.environ, "PREFECT_API_URL": address}, process_group=0)
    try:
        yield address, lambda: wait_until_healthy(address, server)
    finally:
        server.terminate()
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            server.kill()


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
    except (urllib.error.URLError, OSError):
        return False


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
