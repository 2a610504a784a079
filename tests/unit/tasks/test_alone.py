"""One run at a time in a project."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

import flows.challenge as flow
from doctor.parameters import load_params
from tasks import versioning
from tasks.alone import HELD, alone

ROOT = Path(__file__).resolve().parents[3]
HOLDS = """
import sys, time
from pathlib import Path
from tasks.alone import alone
with alone(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def holding(project: Path, seconds: float) -> "subprocess.Popen[str]":
    """A process that has the project to itself."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(project), str(seconds)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_run_waits_and_says_for_whom(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = holding(tmp_path, 1.5)
    with caplog.at_level(logging.INFO), alone(tmp_path):
        assert other.wait(5) == 0
    assert f"process {other.pid} (" in caplog.text
    assert f"is at work in {tmp_path}; waiting until it has ended" in caplog.text


def test_a_killed_run_holds_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = holding(tmp_path, 60)
    other.send_signal(signal.SIGKILL)
    other.wait(5)
    with caplog.at_level(logging.INFO), alone(tmp_path):
        assert not caplog.text


def test_what_the_holder_starts_does_not_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with alone(tmp_path) as told:
        assert told == {HELD: str(tmp_path)}
        started = subprocess.run(
            [sys.executable, "-c", HOLDS, str(tmp_path), "0"], cwd=ROOT, env=os.environ | told, timeout=20, check=True
        )
        assert started.returncode == 0
        monkeypatch.setenv(HELD, told[HELD])
        began = time.monotonic()
        with alone(tmp_path):
            assert time.monotonic() - began < 1
    other = holding(tmp_path, 0)  # the outer block alone has let go of it
    assert other.wait(5) == 0


def entered(project: Path) -> dict[str, str]:
    with alone(project, 0) as told:
        return told


def test_the_holder_does_not_wait_for_itself(tmp_path: Path) -> None:
    with alone(tmp_path):
        with alone(tmp_path, 0) as told:
            assert told == {HELD: str(tmp_path)}
        with ThreadPoolExecutor() as threads:  # as Prefect runs its tasks
            assert threads.submit(entered, tmp_path).result() == {HELD: str(tmp_path)}
        with pytest.raises(Timeout):  # the inner block has let go of nothing
            FileLock(tmp_path / ".dvc/tmp/anamnesis.lock").acquire(timeout=0)
    with alone(tmp_path, 0):
        pass


def test_what_a_run_made_is_registered_and_played_before_another_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other would delete it, or make it by parameters that were changed in between."""
    monkeypatch.setattr(versioning, "ROOT", tmp_path)
    done = []

    def seen(name: str, answer: object) -> Callable[..., object]:
        def noted(*_: object) -> object:
            with pytest.raises(Timeout):
                FileLock(tmp_path / ".dvc/tmp/anamnesis.lock").acquire(timeout=0)
            done.append(name)
            return answer

        return noted

    params = load_params()
    answers: dict[str, object] = {"load_params": params, "reproduce": None, "register_challenger": ("version", "told")}
    answers |= {"compare_with_champion": None, "summary": "report"}
    for name, answer in answers.items():
        monkeypatch.setattr(flow, name, seen(name, answer))
    assert flow.challenge.fn().report == "report"
    assert done == list(answers)


REPRODUCES = """
import sys
from pathlib import Path
from tasks import versioning
versioning.ROOT = Path(sys.argv[1])
versioning._outermost = lambda: None
versioning.reproduce.fn([])
"""


@pytest.mark.slow
def test_two_that_reproduce_at_once_both_end_well(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text(
        "stages:\n"
        "  one: {cmd: sleep 2 && echo 1 > a.txt, outs: [a.txt]}\n"
        "  two: {cmd: sleep 2 && cat a.txt > b.txt && echo ran >> log, deps: [a.txt], outs: [b.txt]}\n"
    )
    for command in (["git", "init", "-q"], [sys.executable, "-m", "dvc", "init", "-q"]):
        subprocess.run(command, cwd=tmp_path, check=True)
    both = [
        subprocess.Popen([sys.executable, "-c", REPRODUCES, str(tmp_path)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in both:
        _, told = process.communicate(timeout=120)
        assert process.returncode == 0, told
    assert (tmp_path / "log").read_text() == "ran\n"


@pytest.mark.parametrize(("left", "stays"), [("", False), ('{"/a', False), ("{}", True)])
def test_what_a_killed_dvc_left_of_its_locks_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str, stays: bool
) -> None:
    monkeypatch.setattr(versioning, "ROOT", tmp_path)
    lock = tmp_path / ".dvc/tmp/rwlock"
    lock.parent.mkdir(parents=True)
    lock.write_text(left)
    monkeypatch.setattr(versioning, "_environment", dict)
    monkeypatch.setattr(versioning, "_pass_on", lambda *_: int(lock.exists() != stays))
    versioning.reproduce.fn([])


def test_a_run_with_a_limit_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versioning, "ROOT", tmp_path)
    other = holding(tmp_path, 60)
    with pytest.raises(versioning.VersioningError, match=r"another run is still at work here after 0\.0001 hours"):
        versioning.reproduce.fn([], 0.0001)
    other.kill()
    other.wait(5)
