"""How a stage's process ends."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from httpx import ConnectError
from prefect.exceptions import TerminationSignal

from tasks import command_line
from tasks.command_line import INTERRUPTED, TERMINATED, TRACEBACKS, outlive_prefect, told
from tasks.versioning import VersioningError

LEAVING = """
import atexit, threading, time
from tasks.command_line import leave
class Kept:
    def __del__(self): print("taken apart")
kept = Kept()
kept.itself = kept
atexit.register(print, "at exit")
threading.Thread(target=lambda: (time.sleep(.3), print("thread ended"))).start()
print("leaving")
leave(7)
"""


ROOT = Path(__file__).resolve().parents[3]
WRAPPED = """
import os, signal, sys
from tasks.command_line import told
from tasks.interrupts import end_in_time
def call_back(*_):
    raise SystemExit(1)
signal.signal(int(sys.argv[1]), call_back)
end_in_time()
with told("stage"):
    try:
        os.kill(os.getpid(), int(sys.argv[1]))
    except SystemExit as lost:
        wrapped = ValueError(str(lost))
    raise wrapped  # of a library in another language: what it came of is not to be seen
"""


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where a process notes what went wrong."""
    monkeypatch.setattr(command_line, "HOME", tmp_path)
    return tmp_path


def ended_by(error: Exception, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended, told("warm_start", type(error)):
        raise error
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_a_mistake_is_one_line_which_names_the_file_with_the_rest(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = ValueError("seed = -1: it must be at least 0")
    wrong.__cause__ = KeyError("http://me:secret@mlflow.lab")
    said = ended_by(wrong, capsys)
    (path,) = (project / "runs" / "errors").iterdir()
    assert said == f"error: seed = -1: it must be at least 0 (traceback: {path})\n"
    whole = path.read_text()
    assert whole.endswith("ValueError: seed = -1: it must be at least 0\n")
    assert "KeyError: 'http://mlflow.lab'" in whole  # what it came of, without the password
    assert f'File "{__file__}"' in whole
    monkeypatch.chdir(project)
    assert "(traceback: runs/errors/" in ended_by(wrong, capsys)


def test_a_process_below_has_told_its_own(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended_by(VersioningError("`dvc repro` failed"), capsys) == "error: `dvc repro` failed\n"
    assert not (project / "runs").exists()


def test_the_newest_tracebacks_are_kept(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = project / "runs" / "errors"
    folder.mkdir(parents=True)
    for number in range(TRACEBACKS + 3):
        (folder / f"20200101-0000{number:02}-train_doctor-1.txt").touch()
    ended_by(ValueError("wrong"), capsys)
    kept = sorted(path.name for path in folder.iterdir())
    assert len(kept) == TRACEBACKS
    assert kept[0] == "20200101-000004-train_doctor-1.txt"
    assert kept[-1].partition("-")[0] != "20200101"


def test_where_nothing_can_be_written_the_line_is_all(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "runs").touch()
    assert ended_by(ValueError("wrong"), capsys) == "error: wrong\n"


def test_leaving_waits_for_threads_and_exit_functions_and_takes_nothing_apart() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVING], check=False, capture_output=True, text=True)
    assert done.returncode == 7, done.stderr
    assert done.stdout.splitlines() == ["leaving", "thread ended", "at exit"]


@pytest.mark.parametrize(
    ("sent", "status"), [(TerminationSignal(signal.SIGTERM), TERMINATED), (KeyboardInterrupt(), INTERRUPTED)]
)
def test_what_fails_because_of_a_signal_is_a_stop(
    sent: BaseException, status: int, capsys: pytest.CaptureFixture[str], default_signals: None
) -> None:
    def stopped_as_a_task_begins() -> None:
        try:
            raise sent
        finally:
            raise ValueError("Task run is not set")

    with pytest.raises(SystemExit) as ended, told("stage"):
        stopped_as_a_task_begins()
    assert ended.value.code == status
    assert capsys.readouterr().err == "stopped\n"


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGTERM, TERMINATED), (signal.SIGINT, INTERRUPTED)])
def test_what_a_library_makes_of_a_signal_is_a_stop_too(sent: signal.Signals, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRAPPED, str(int(sent))], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (status, "stopped")
    assert "Traceback" not in done.stderr


def test_what_fails_of_itself_is_no_stop() -> None:
    with pytest.raises(ValueError, match="wrong"), told("stage"):
        raise ValueError("wrong")


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (errno.EROFS, "error: /srv/x: Read-only file system; let this user read and write there, and run this again"),
        (errno.ENOSPC, "error: /srv/x: No space left on device, "),
    ],
)
def test_a_disk_that_cannot_be_written_is_one_line(number: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, told("stage"):
        raise RuntimeError("the writer gave up") from OSError(number, os.strerror(number), "/srv/x")
    assert ended.value.code == 2
    (shown,) = capsys.readouterr().err.splitlines()
    assert shown.startswith(line)


def test_a_library_that_does_not_name_the_full_disk_is_helped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tasks.disk.FULL_BYTES", 2**62)
    with pytest.raises(SystemExit), told("stage"):
        raise RuntimeError("unexpected pos 64 vs 0")
    assert "MiB are free there; free as much as" in capsys.readouterr().err


def test_a_finished_flow_outlives_its_server_and_an_unfinished_one_does_not(caplog: pytest.LogCaptureFixture) -> None:
    class Flow:
        """As Prefect's when its server dies: the work is done, its end cannot be told."""

        def __init__(self, work: Callable[[], None]) -> None:
            self.fn = work

        def __call__(self) -> None:
            self.fn()
            raise ConnectError("All connection attempts failed")

    done: list[str] = []
    outlive_prefect(Flow(lambda: done.append("work")), {})
    assert done == ["work"]
    assert "the work is done, but Prefect's server does not answer" in caplog.text

    def fails() -> None:
        raise ConnectError("an artifact could not be made")

    with pytest.raises(ConnectError, match="an artifact"):
        outlive_prefect(Flow(fails), {})


def test_what_takes_seconds_is_done_while_the_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    class Flow:
        """As Prefect's."""

        def fn(self) -> None:
            order.append("work")

        def __call__(self) -> None:
            self.fn()

    monkeypatch.setattr(command_line, "await_server", lambda: order.append("server"))
    outlive_prefect(Flow(), {}, lambda: order.append("imports"))
    assert order == ["imports", "server", "work"]


AWAY = """
import asyncio
from contextlib import asynccontextmanager
from prefect.events import emit_event
from prefect.events.clients import AssertingEventsClient
from prefect.events.worker import EventsWorker
from tasks.command_line import leave
@asynccontextmanager
async def without_a_server(self):
    yield
async def tried_in_vain(self, event):
    await asyncio.sleep(7)
EventsWorker._lifespan = without_a_server
EventsWorker._handle = tried_in_vain
EventsWorker.set_client_override(AssertingEventsClient)
for number in range(20):
    emit_event("test", resource={"prefect.resource.id": str(number)})
leave(0)
"""


def test_leaving_does_not_try_for_ever_to_tell_a_server_that_is_away() -> None:
    """Prefect gives each event seven seconds."""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", AWAY], check=False, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 60


def test_a_flow_says_how_it_is_called_and_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def base_model(out: Path, params_file: Path | None = None) -> None:
        """Make one."""

    monkeypatch.setattr(sys, "argv", ["/srv/flows/base_model.py", "--help"])
    with pytest.raises(SystemExit):
        command_line.run(base_model, Path("models/base"))
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("usage: python -m flows.base_model [-h] --out OUT")
    assert "needed; `make` passes models/base" in shown
    assert "default params.yaml" in shown
    monkeypatch.setattr(sys, "argv", ["/srv/flows/base_model.py"])
    with pytest.raises(SystemExit) as ended:
        command_line.run(base_model, Path("models/base"))
    assert ended.value.code == 2
    assert "required: --out" in capsys.readouterr().err
