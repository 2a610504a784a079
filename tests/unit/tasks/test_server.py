"""A Prefect server that is looked for where none can be, and one that a flow starts for itself."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tasks import server
from tasks.server import healthy, wait_until_healthy

ROOT = Path(__file__).resolve().parents[3]
HELD = "import flows, os, time; print(os.environ.get('PREFECT_API_URL'), flush=True); time.sleep(600)"  # killed sooner


@pytest.mark.parametrize("address", ["http://me:secret@localhost/api", "localhost:4200/api", "http://127.0.0.1:1/api"])
def test_an_address_without_a_server_is_no_error(address: str) -> None:
    assert not healthy(address)


@contextmanager
def begun(home: Path, *options: str, **settings: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that imports `flows` as `python -m flows.<name>` does, and stays."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    as_module = f"import sys; sys.argv[0] = '-m'; {HELD}"
    process = subprocess.Popen(
        [sys.executable, "-c", as_module, *options],
        cwd=ROOT,
        env={**outside, "PREFECT_HOME": str(home), **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_the_server_of_a_flow_ends_with_it_however_that_ends(tmp_path: Path, number: signal.Signals) -> None:
    if number == signal.SIGKILL and sys.platform != "linux":
        pytest.skip("only Linux tells a process of its parent's end")
    with begun(tmp_path) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        (started,) = psutil.Process(process.pid).children()
        deadline = time.monotonic() + 120
        while number == signal.SIGKILL and not healthy(address):  # the others come while it starts
            assert started.is_running()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        process.send_signal(number)
        assert process.wait(30) in (-number, 128 + number)
        _, left = psutil.wait_procs([started], timeout=10)
        assert not left


def test_a_flow_starts_no_server_where_the_environment_names_one_or_help_is_wanted(tmp_path: Path) -> None:
    with begun(tmp_path, PREFECT_API_URL="http://127.0.0.1:9/api") as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "http://127.0.0.1:9/api"
        assert not psutil.Process(process.pid).children()
    with begun(tmp_path, "--help") as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "None"
        assert not psutil.Process(process.pid).children()


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("home/profiles.toml", 'active = "far"\n[profiles.far]\nPREFECT_API_URL = "http://far/api"\n', True),
        ("home/profiles.toml", 'active = "near"\n[profiles.far]\nPREFECT_API_URL = "http://far/api"\n', False),
        ("home/profiles.toml", "active = ", False),  # what Prefect itself refuses
        ("prefect.toml", '[api]\nurl = "http://far/api"\n', True),
        ("prefect.toml", "[server]\nanalytics_enabled = false\n", False),
        ("pyproject.toml", '[tool.prefect.api]\nurl = "http://far/api"\n', True),
        (".env", "PREFECT_API_URL=http://far/api\n", True),
        (".env", "MLFLOW_PASSWORD=secret\n", False),
    ],
)
def test_a_server_may_be_named_wherever_prefect_reads_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, named: bool
) -> None:
    for name in ("PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(server, "ROOT", tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / file).write_text(text)
    assert server._is_named() is named
    if file.startswith("home") and "far" in text:
        monkeypatch.setenv("PREFECT_PROFILE", "far")
        assert server._is_named()


@pytest.mark.parametrize(("free", "told"), [(0, "is on a disk that is full"), (2**30, "see runs/prefect-server.log")])
def test_a_server_that_does_not_start_is_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, told: str
) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "not" / "made yet"))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(SystemExit, match=f"did not start; .*{told}"):
        wait_until_healthy("http://127.0.0.1:9/api", ended)
