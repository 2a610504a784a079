"""Stopping what a script put into its background, where interrupts are ignored, and what `nohup` began."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tasks import versioning
from tasks.interrupts import signals_put_off
from tasks.server import end, healthy

ROOT = Path(__file__).resolve().parents[3]
CHILD = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
IGNORED = f"""
import os, signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
from tasks.interrupts import let_children_be_interrupted
for prepare in (lambda: None, let_children_be_interrupted):
    prepare()
    print(subprocess.run([sys.executable, "-c", {CHILD!r}], capture_output=True, text=True).stdout.strip(), flush=True)
os.kill(os.getpid(), signal.SIGINT)
print("goes on")
"""
WAITING = """
import signal, subprocess, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from commands.run import wait_for
from tasks.interrupts import let_children_be_interrupted
let_children_be_interrupted()
child = subprocess.Popen([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"])
sys.exit(wait_for(child))
"""


def gone(pid: int) -> bool:
    """Whether a process has ended; one that was just killed may take its time to."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def test_children_of_what_ignores_interrupts_can_be_interrupted() -> None:
    done = subprocess.run([sys.executable, "-c", IGNORED], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:3] == ["False", "True", "goes on"]


def test_nohup_outlives_its_terminal_and_ends_when_told() -> None:
    with subprocess.Popen([sys.executable, "-c", WAITING], cwd=ROOT, stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "up\n"
        time.sleep(0.5)  # until it listens to signals
        os.kill(waiting.pid, signal.SIGHUP)
        time.sleep(0.5)
        assert waiting.poll() is None
        os.kill(waiting.pid, signal.SIGTERM)
        assert waiting.wait(10) != 0


SWALLOWING = """
import os, pathlib, signal, sys, time
parent, needed, out = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
heard = []
def swallow(*_):
    heard.append(1)
    if len(heard) == needed:
        out.write_text(f"ended by {needed}")
        os._exit(1)
signal.signal(signal.SIGINT, swallow)
out.write_text(str(os.getpid()))
os.kill(parent, signal.SIGINT)
while True:
    time.sleep(0.1)
"""


@pytest.mark.parametrize(("needed", "own_end"), [(2, True), (9, False)])
def test_a_stage_that_swallows_an_interrupt_gets_another_and_at_last_is_killed(
    needed: int, own_end: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, default_signals: None
) -> None:
    monkeypatch.setattr(versioning, "STOP_S", (1, 1, 1))
    out = tmp_path / "out"
    stage = [sys.executable, "-c", SWALLOWING, str(os.getpid()), str(needed), str(out)]
    with pytest.raises(KeyboardInterrupt):
        versioning._pass_on(["sh", "-c", 'trap : INT; "$@"; true', "sh", *stage], os.environ)  # as DVC, it waits
    told = out.read_text()
    if own_end:
        assert told == "ended by 2"
    else:
        assert gone(int(told))


def test_what_is_not_done_in_time_is_stopped_with_all_that_it_started(tmp_path: Path, default_signals: None) -> None:
    out = tmp_path / "out"
    began = time.monotonic()
    with pytest.raises(versioning.VersioningError, match=r"not done after 0\.0003 hours \(max_hours\), and stopped"):
        versioning._pass_on(["sh", "-c", f"sleep 60 & echo $! > {out}; wait"], os.environ, max_hours=0.0003)
    assert time.monotonic() - began < 20
    assert gone(int(out.read_text()))
    assert versioning._pass_on(["true"], os.environ, max_hours=1.0) == 0


TWICE = """
import os, signal, sys
from tasks import versioning
versioning.STOP_S = (1, 1, 1)
again, stop = [KeyboardInterrupt], versioning._stop
def interrupted_once(process):  # by a second signal, before anything has been done about the first
    if again:
        raise again.pop()
    stop(process)
versioning._stop = interrupted_once
signal.signal(signal.SIGINT, signal.default_int_handler)
script = f"echo $$ > {sys.argv[1]}; kill -INT {os.getpid()}; exec sleep 60"
versioning._pass_on(["sh", "-c", script], os.environ)
"""
AT_ONCE = """
import os, pathlib, signal, subprocess, sys
from tasks import versioning
class Interrupted(subprocess.Popen):
    def __init__(self, *given, **how):
        super().__init__(*given, **how)
        pathlib.Path(sys.argv[1]).write_text(str(self.pid))
        os.kill(os.getpid(), signal.SIGINT)  # before anybody holds it
versioning.subprocess.Popen = Interrupted
signal.signal(signal.SIGINT, signal.default_int_handler)
versioning._pass_on(["sleep", "60"], os.environ)
"""


@pytest.mark.parametrize("script", [TWICE, AT_ONCE])
def test_no_stage_is_left_by_a_signal_while_it_starts_or_a_second_before_the_first_is_dealt_with(
    script: str, tmp_path: Path
) -> None:
    """As `timeout` sends it to the whole group, and who started the flow passes its own on."""
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", script, str(out)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert "KeyboardInterrupt" in done.stderr
    assert gone(int(out.read_text()))


def test_a_signal_that_is_put_off_is_given_at_the_end_and_its_handlers_are_as_they_were() -> None:
    told: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda *_: told.append("told"))
    try:
        handler = signal.getsignal(signal.SIGTERM)
        with signals_put_off():
            signal.raise_signal(signal.SIGTERM)
            told.append("block")
        assert told == ["block", "told"]
        assert signal.getsignal(signal.SIGTERM) is handler
        with pytest.raises(ValueError, match="mine"), signals_put_off():
            raise ValueError("mine")
        assert signal.getsignal(signal.SIGTERM) is handler
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with signals_put_off():
            signal.raise_signal(signal.SIGTERM)
        assert told == ["block", "told"]
    finally:
        signal.signal(signal.SIGTERM, before)


DEAF = """
import os, signal, subprocess, sys, time
from tasks.interrupts import end_in_time
heard = []
def lost(*_):
    heard.append(1)
    if len(heard) == int(sys.argv[1]):
        os._exit(7)
end_in_time(again_s=0.5, end_s=4)
signal.signal(signal.SIGTERM, lost)  # after it, as Prefect does
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"])
print(child.pid, flush=True)
while True:
    time.sleep(0.1)
"""


@pytest.mark.parametrize(("needed", "status"), [(1, 7), (3, 7), (99, 128 + signal.SIGTERM)])
def test_a_signal_that_is_lost_is_given_again_and_ends_the_process_at_last(needed: int, status: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DEAF, str(needed)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as deaf:
        assert deaf.stdout is not None
        assert deaf.stderr is not None
        child = int(deaf.stdout.readline())
        time.sleep(0.3)
        deaf.send_signal(signal.SIGTERM)
        assert deaf.wait(30) == status
        if needed == 99:
            assert "stopped, 4 s after the signal" in deaf.stderr.read()
            assert gone(child)
        else:
            os.kill(child, signal.SIGKILL)


BEGINNING = """
import sys, time
from tasks import server
server.healthy = lambda address: False
with server.starting_server() as (address, ready):
    print(address, flush=True)
    ready()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_while_a_server_starts_leaves_no_server(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BEGINNING],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: [signal.signal(one, signal.SIG_DFL) for one in (signal.SIGINT, signal.SIGHUP)],
    ) as beginning:
        assert beginning.stdout is not None
        assert beginning.stdout.readline().startswith("http://127.0.0.1:")
        (server,) = psutil.Process(beginning.pid).children()
        beginning.send_signal(number)
        assert beginning.wait(30) in (128 + number, -number)
        _, left = psutil.wait_procs([server], timeout=5)
        assert not left


def test_what_does_not_end_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    out = tmp_path / "child"
    deaf = subprocess.Popen(["sh", "-c", f"trap : TERM; sleep 60 & echo $! > {out}; while :; do wait; done"])
    while not out.exists() or not out.read_text().strip():
        time.sleep(0.05)
    end(deaf, 0.3)
    assert deaf.poll() == -signal.SIGKILL
    assert gone(int(out.read_text()))
    end(deaf, 0.3)  # and again does nothing


def test_an_interrupt_while_a_flow_is_imported_is_one_word() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import flows; raise KeyboardInterrupt"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "stopped\n")
    done = subprocess.run(
        [sys.executable, "-c", "import flows; raise ValueError"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "Traceback" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_make_run_stopped_in_its_first_second_says_no_traceback_and_leaves_nothing(
    number: signal.Signals, tmp_path: Path
) -> None:
    if healthy("http://127.0.0.1:4200/api"):
        pytest.skip("a Prefect server runs here, which `make run` joins")
    outside = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    with subprocess.Popen(
        [sys.executable, "-m", "commands.run"],
        cwd=ROOT,
        env={**outside, "PREFECT_HOME": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as run:
        deadline = time.monotonic() + 60
        while len(started := psutil.Process(run.pid).children()) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        run.send_signal(number)
        assert run.wait(30) in (-number, 128 + number)
        _, left = psutil.wait_procs(started, timeout=5)
        assert not left
        assert run.stderr is not None
        assert "Traceback" not in run.stderr.read()


LOST = """
import signal, sys, time
sys.argv[0] = "-m"  # as while the flow of a stage is imported
from tasks import interrupts
interrupts.end_in_time.__defaults__ = (2, 20)
signal.signal(signal.SIGINT, signal.default_int_handler)
interrupts.tell_of_interrupts()
interrupts.end_in_time(60, 60)  # again: nothing
try:
    print("up", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("lost", flush=True)
time.sleep(60)
"""


def test_an_interrupt_that_is_lost_in_an_import_is_given_again() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LOST], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as importing:
        assert importing.stdout is not None
        assert importing.stderr is not None
        assert importing.stdout.readline() == "up\n"
        os.kill(importing.pid, signal.SIGINT)
        assert importing.stdout.readline() == "lost\n"
        assert importing.wait(20) == -signal.SIGINT
        assert importing.stderr.read() == "stopped\n"
