"""Long work: throttled, right about the time left, drawn by whoever has the terminal."""

import io
import json
import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from rl.sft import SFTPoint
from tasks.versioning import _pass_on
from tracking import progress
from tracking import recorder as recording
from tracking.console import Bar, Screen
from tracking.progress import ADDRESS, Phase, Sender, listening, supervised, viewer
from tracking.recorder import step_text

ROOT = Path(__file__).resolve().parents[3]


class Recorder(Screen):
    """A terminal that remembers what it was to draw."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.live, self.bars, self.closed = True, [], 0

    def show(self, bar: Bar) -> bool:
        self.bars.append(bar)
        return True

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "viewer", lambda: None)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_line_every_ten_seconds(nobody: None, clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    phase = Phase("rollout 1", "episodes")
    for done in range(1, 201):
        clock[0] += 0.125
        phase(done, 200)
    assert told(caplog) == [
        "rollout 1: 80/200 episodes, 8.0/s, 15s left",
        "rollout 1: 160/200 episodes, 8.0/s, 5s left",
    ]


def test_short_work_says_nothing(nobody: None, clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    phase = Phase("rollout 1", "episodes")
    for done in range(1, 51):
        clock[0] += 0.1
        phase(done, 50)
    assert told(caplog) == []


def test_what_an_earlier_run_did_has_no_part_in_the_rate(nobody: None, clock: list[float]) -> None:
    phase = Phase("training", "steps", 20, logged=False)
    clock[0] += 10
    assert phase.bar(21, 25).left == pytest.approx(40)
    clock[0] += 10
    assert phase.bar(22, 25).left == pytest.approx(30)
    assert step_text(phase.bar(22, 25), {"reward/mean": 0.5}) == "step 22/25  reward 0.500  10.0 s/step, 30s left"


def test_the_first_of_many_that_are_under_way_together_say_nothing_of_the_rest(
    nobody: None, clock: list[float]
) -> None:
    phase = Phase("rollout 3", "episodes")
    clock[0] += 10
    assert phase.bar(12, 256).left is None
    assert phase.bar(13, 256).left == pytest.approx(243 * 10 / 13)


def test_a_resumed_training_is_right_about_its_time(
    nobody: None, clock: list[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(recording.runs, "log_step", lambda *_: None)
    plan = SimpleNamespace(steps=25, traces_per_step=0)
    recorder = recording.Recorder(
        SimpleNamespace(params=SimpleNamespace(train_doctor=plan), train=(), experience=None), "run"
    )
    recorder.step(20, {"reward/mean": 0.5, "validation/accuracy": 0.5})  # done and told by the run before
    clock[0] += 12
    recorder.step(21, {"reward/mean": 0.25})
    assert told(caplog) == ["step 21/25  reward 0.250  12.0 s/step, 48s left"]


def test_supervised_training_tells_its_loss(nobody: None, clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    report = supervised("warm start")
    report(SFTPoint(1, 10, 2.0, 900.0))
    clock[0] += 20
    report(SFTPoint(5, 10, 1.25, 900.0))
    report(SFTPoint(6, 10, 1.25, 900.0))
    report(SFTPoint(10, 10, 1.0, 900.0))
    assert told(caplog) == [
        "warm start: 5/10 gradient steps, loss 1.250, 900 tokens/s, 4.0 s each, 20s left",
        "warm start: 10/10 gradient steps, loss 1.000, 900 tokens/s, 2.0 s each",
    ]


def test_what_an_earlier_run_learned_is_no_part_of_the_rate(
    nobody: None, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    report = supervised("warm start")
    report(SFTPoint(51, 100, 1.25, 900.0))
    clock[0] += 20
    report(SFTPoint(60, 100, 1.25, 900.0))
    assert told(caplog) == ["warm start: 60/100 gradient steps, loss 1.250, 900 tokens/s, 2.0 s each, 1m 20s left"]


def test_a_hot_loop_reports_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Bar] = []
    monkeypatch.setattr(progress, "viewer", lambda: lambda bar: seen.append(bar) is None)
    phase, began, used = Phase("rollout 1", "episodes"), time.perf_counter(), time.thread_time()
    for done in range(1, 100_001):
        phase(done, 100_000)
    assert (time.thread_time() - used) / 100_000 < 20e-6
    assert len(seen) <= 3 + (time.perf_counter() - began) / progress.DRAWN_EVERY_S
    assert seen[-1].done == 100_000


def test_the_channel_carries_bars_and_survives_nonsense() -> None:
    screen = Recorder()
    with listening(screen) as environment:
        send = Sender(environment[ADDRESS])
        bar = Bar(name="rollout 1", unit="episodes", done=3, total=8, rate=1.5)
        assert send(bar)
        for nonsense in (b"", b"{", b"[]", b'{"name": 1, "colour": 2}', b"\xff"):
            send._socket.send(nonsense)
        assert send(bar)
    assert screen.bars == [bar, bar]
    assert screen.closed == 1
    assert not send(bar)


def test_a_place_where_no_channel_can_be_costs_the_bars_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket's address has 107 bytes; a cluster's folder for temporary files may have more."""
    deep = tmp_path / ("a" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with listening(Recorder()) as environment:
        assert environment == {}
    with pytest.raises(OSError, match="of the work"), listening(Recorder()):
        raise OSError("of the work")
    assert not list(deep.iterdir())


def test_without_a_terminal_there_is_no_channel() -> None:
    with listening(Screen(io.StringIO())) as environment:
        assert environment == {}


def test_a_listener_that_does_not_listen_slows_nobody(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / "s"))
        send, began, used = Sender(str(tmp_path / "s")), time.monotonic(), time.thread_time()
        assert all(send(Bar(name="rollout 1", unit="episodes", done=i, total=9999)) for i in range(5000))
        assert time.thread_time() - used < 2
        assert time.monotonic() - began < 60  # the socket is full: who waited for it would wait for ever


@pytest.mark.parametrize("address", [None, "/nowhere/progress"])
def test_nobody_to_draw(address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "screen", lambda: Screen(io.StringIO()))
    monkeypatch.delenv(ADDRESS, raising=False)
    if address:
        monkeypatch.setenv(ADDRESS, address)
    viewer.cache_clear()
    try:
        assert viewer() is None
    finally:
        viewer.cache_clear()


def test_lines_take_over_when_the_listener_goes(
    monkeypatch: pytest.MonkeyPatch, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    screen = Recorder()
    with listening(screen) as environment:
        sender = Sender(environment[ADDRESS])
        monkeypatch.setattr(progress, "viewer", lambda: sender)
        phase = Phase("rollout 1", "episodes")
        phase(1, 100)
    for done in range(2, 100):
        clock[0] += 1
        phase(done, 100)
    assert [bar.done for bar in screen.bars] == [1]
    assert 8 <= len(told(caplog)) <= 11


CHILD = """
import logging, sys, time
from tasks.command_line import told
from tracking.progress import Phase
with told("stage"):
    log, phase = logging.getLogger("rl.work"), Phase("learn 1", "gradient steps")
    sys.stderr.write("Running stage 'stage':\\n> python -m flows.stage\\n")
    for i in range(3):
        phase(i, 3)
        log.info("event %d", i)
        time.sleep(0.3)
    log.warning("careful")
    sys.stderr.write("10%\\r\\x1b[31m20%\\x1b[0m\\n")
"""
PARENT = """
import os, subprocess, sys
from tasks.command_line import told
from tasks.versioning import _pass_on
with told("retrain"):
    _pass_on([sys.executable, "-c", os.environ["CHILD"]], os.environ)
"""


def test_a_child_below_a_parent_tells_each_event_once() -> None:
    environment = os.environ | {"CHILD": CHILD}
    environment.pop(ADDRESS, None)
    shown = subprocess.run(
        [sys.executable, "-c", PARENT],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    ).stdout
    assert re.sub(r"(?m)^\d\d:\d\d:\d\d ", "", shown).splitlines() == [
        "dvc | Running stage 'stage':",
        "stage | event 0",
        "stage | event 1",
        "stage | event 2",
        "stage | warning: careful",
        "dvc | 10%",
        "dvc | 20%",
    ]
    assert all(
        re.match(r"\d\d:\d\d:\d\d \w+ \| ", line) and len(re.findall(r"\d\d:\d\d:\d\d", line)) == 1
        for line in shown.splitlines()
    )
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", shown)


def test_the_parent_draws_what_its_child_reports() -> None:
    screen = Recorder()
    with listening(screen) as environment:
        status = _pass_on([sys.executable, "-c", CHILD], {**os.environ, **environment})
    assert status == 0
    assert [(bar.name, bar.done, bar.total) for bar in screen.bars] == [("learn 1", done, 3) for done in range(3)]
    assert json.dumps([bar.unit for bar in screen.bars[:1]]) == '["gradient steps"]'
