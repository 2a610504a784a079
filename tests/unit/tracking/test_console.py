"""One line per event; bars on a terminal and nowhere else."""

import io
import logging
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path

import pytest
from prefect.settings import PREFECT_LOGGING_LEVEL, temporary_settings

from tracking.console import AWAY, LINE, Bar, ConsoleHandler, Line, Screen, clean, duration, pace
from tracking.errors import TrackingError

ROOT = Path(__file__).resolve().parents[3]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def record(
    message: str, level: int = logging.INFO, name: str = "tracking.recorder", **extra: object
) -> logging.LogRecord:
    made = logging.LogRecord(name, level, __file__, 1, message, (), None)
    vars(made).update(extra, created=time.mktime((2026, 1, 2, 15, 8, 27, 0, 0, -1)))
    return made


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (record("step 1/2"), "15:08:27 train | step 1/2"),
        (record("lost", logging.WARNING), "15:08:27 train | warning: lost"),
        (record("dvc | Running", relayed=True), "15:08:27 dvc | Running"),
        (record("two\nlines"), "15:08:27 train | two\n15:08:27 train | lines"),
        (record("\x1b[31mred\x1b[0m\x07"), "15:08:27 train | red"),
        (record("10%\r20%"), "15:08:27 train | 20%"),
        (record(""), "15:08:27 train | "),
    ],
)
def test_a_line_is_clock_stage_and_message(given: logging.LogRecord, line: str) -> None:
    assert Line("train").format(given) == line


def test_a_line_is_known_again() -> None:
    told = LINE.fullmatch(Line("train_doctor").format(record("step | 3", logging.WARNING)))
    assert told is not None
    assert told[1] == "train_doctor | warning: step | 3"
    assert LINE.fullmatch("Running stage 'x':") is None


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0s"), (59, "59s"), (61, "1m 01s"), (3720, "1h 02m"), (-3, "0s")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_rates() -> None:
    assert (pace(12.34), pace(0.25), pace(0)) == ("12.3/s", "4.0 s each", "0.0/s")
    assert (
        str(Bar(name="rollout 3", unit="episodes", done=64, total=256, rate=32.0, note="loss 1"))
        == "rollout 3: 64/256 episodes, loss 1, 32.0/s, 6s left"
    )
    assert str(Bar(name="rollout 3", unit="episodes", done=0, total=256)) == "rollout 3: 0/256 episodes"


@pytest.mark.parametrize(
    ("given", "attended", "shown"),
    [
        (record("ours"), True, True),
        (record("detail", logging.DEBUG), True, False),
        (record("chatter", name="httpx"), True, False),
        (record("careful", logging.WARNING, "httpx"), True, True),
        (record("Beginning flow run 'abc'", name="prefect.flow_runs"), True, False),
        (record("Finished in state Completed()", name="prefect.task_runs"), False, False),
        (
            record("Task run failed with exception: x - Retry 1/1 will start immediately", name="prefect.task_runs"),
            True,
            True,
        ),
        (record("Finished in state Failed('x')", logging.ERROR, "prefect.flow_runs"), True, False),
        (record("Finished in state Failed('x')", logging.ERROR, "prefect.flow_runs"), False, True),
        (
            record("Task run failed", logging.ERROR, "prefect.task_runs", exc_info=(ValueError, ValueError(), None)),
            True,
            False,
        ),
        (record("Still processing items: 1 items remaining...", logging.WARNING, "EventsWorker"), True, False),
        (record("API unreachable", logging.ERROR, "prefect.client"), True, True),
    ],
)
def test_who_is_heard(given: logging.LogRecord, attended: bool, shown: bool) -> None:
    assert bool(ConsoleHandler("train", attended=attended).filter(given)) == shown


@pytest.mark.parametrize(("level", "shown"), [("DEBUG", True), ("INFO", False), ("ERROR", False)])
def test_what_we_do_in_detail_is_told_to_who_asks_for_it(level: str, shown: bool) -> None:
    with temporary_settings({PREFECT_LOGGING_LEVEL: level}):
        handler = ConsoleHandler("train", attended=True)
        assert bool(handler.filter(record("asks trainers: learn", logging.DEBUG, "rl.workers.ray"))) == shown
        assert handler.filter(record("trained", logging.INFO, "tasks.training"))
        assert not handler.filter(record("details", logging.DEBUG, "prefect.flow_runs"))


def test_a_server_that_is_away_is_told_of_once() -> None:
    handler = ConsoleHandler("train", attended=True)
    event = "Unable to connect to 'ws://127.0.0.1:4200/api/events/in'. Please check your network settings"
    given = [record(event, logging.WARNING, "prefect.events.clients") for _ in range(3)]
    assert [bool(handler.filter(each)) for each in given] == [True, False, False]
    assert handler.format(given[0]).endswith("warning: " + AWAY)


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_no_bars_and_no_control_characters_without_a_terminal(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("FORCE_COLOR", "1")
    file = Terminal() if term == "dumb" else io.StringIO()
    screen = Screen(file)
    assert not screen.show(Bar(name="rollout", unit="episodes", done=1, total=2))
    screen.write("a line", logging.ERROR)
    screen.close()
    assert file.getvalue() == "a line\n"


def rows(text: str) -> list[str]:
    """What stands in the rows that were written, one after the other."""
    return [
        clean(row).rstrip() for row in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)) if row.strip()
    ]


@pytest.mark.parametrize("columns", [100, 80, 50])
def test_a_bar_stays_in_its_row(columns: int, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    screen = Screen(terminal)
    screen.show(Bar(name="training", unit="steps", done=3, total=25, rate=0.05))
    screen.show(
        Bar(name="evaluate full_information@mtmeddialog_cases", unit="episodes", done=1234, total=5000, rate=38.21)
    )
    picture = rows(terminal.getvalue())[-2:]
    screen.close()
    assert all(len(row) <= columns - len("^C") for row in picture)
    assert picture[0].startswith("training")
    if columns >= 80:
        assert "3/25" in picture[0]
        assert picture[0].endswith("steps  20.0 s each  7m 20s left")
        assert "1234/5000" in picture[1]
        assert picture[1].endswith("38.2/s  1m 39s left")
        assert "━" in picture[1]


def test_lines_stand_above_bars_and_finished_bars_go(terminal: Terminal) -> None:
    screen = Screen(terminal)
    screen.write("before")
    screen.show(Bar(name="learn", unit="gradient steps", done=1, total=2))
    screen.write("between")
    screen.show(Bar(name="learn", unit="gradient steps", done=2, total=2))
    screen.write("after")
    shown = terminal.getvalue()
    assert [row.split()[0] for row in rows(shown)] == ["before", "learn", "learn", "between", "learn", "after"]
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l")
    assert shown.endswith("after\n")


def test_no_colour(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen(terminal)
    screen.write("wrong", logging.ERROR)
    screen.show(Bar(name="learn", unit="gradient steps", done=1, total=2))
    screen.close()
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", terminal.getvalue())


def as_in_a_terminal() -> None:
    """Its standard input is its terminal, and Ctrl-C is heard: a shell's background job, as which tests may run, hands
    on that it is not.
    """
    ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def in_terminal(code: str, columns: int = 100, until: Callable[[str], bool] | None = None) -> tuple[str, int]:
    """What a Python process writes to a real terminal, and its status; interrupted as by Ctrl-C when `until` says so."""
    keyboard, screen = pty.openpty()
    ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")} | {"TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        stdin=screen,
        stdout=screen,
        stderr=screen,
        start_new_session=True,
        preexec_fn=as_in_a_terminal,
    )
    os.close(screen)
    written = b""
    while True:
        try:
            written += os.read(keyboard, 65536)
        except OSError:  # closed at the other end
            break
        if until is not None and until(written.decode(errors="replace")):
            os.write(keyboard, b"\x03")
            until = None
    os.close(keyboard)
    return written.decode(errors="replace"), process.wait(20)


WORK = """
import logging, time
from tasks.command_line import told
from tracking.progress import Phase
with told("stage"):
    log, phase = logging.getLogger("tasks.work"), Phase("learn 1", "gradient steps")
    for i in range({steps}):
        phase(i, {steps})
        log.info("event %d", i)
        time.sleep(0.3)
    phase({steps}, {steps})
"""


def test_a_terminal_shows_bar_and_lines_once() -> None:
    shown, status = in_terminal(WORK.format(steps=4), 80)
    assert status == 0
    assert "learn 1" in shown
    for i in range(4):
        assert shown.count(f"stage | event {i}") == 1
    bars = [row for row in rows(shown) if row.startswith("learn 1")]
    assert bars
    assert all(len(row) <= 80 - len("^C") for row in bars), shown
    assert "learn" not in shown[shown.rfind("\x1b[2K") :]
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l")


def test_ctrl_c_leaves_the_terminal_sane() -> None:
    shown, status = in_terminal(WORK.format(steps=1000), until=lambda text: "event 3" in text)
    assert status == 130
    assert shown.rstrip().endswith("stopped")
    assert "Traceback" not in shown
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l")
    assert "learn" not in shown[shown.rfind("\x1b[2K") :]


def failed(error: Exception) -> logging.LogRecord:
    """What Prefect logs of a flow that raised."""
    try:
        raise error
    except Exception:  # noqa: BLE001  whatever was given
        made = record("Encountered exception during execution", logging.ERROR, "prefect.flow_runs")
        made.exc_info = sys.exc_info()
    return made


def test_of_a_mistake_that_is_the_users_a_deployed_run_writes_the_words_and_of_ours_the_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[str] = []
    monkeypatch.setattr(Screen, "write", lambda self, text, level: written.append(text))
    handler = ConsoleHandler("retrain", attended=False)
    mistake = failed(TrackingError("anamnesis-doctor has no champion"))
    handler.handle(mistake)
    handler.handle(failed(KeyError("x")))
    assert written[0] == "15:08:27 retrain | error: anamnesis-doctor has no champion"
    assert "Traceback" in written[1]
    assert mistake.exc_info  # the page of the run has it
    of_task = failed(TrackingError("again"))
    of_task.name = "prefect.task_runs"
    handler.handle(of_task)
    assert len(written) == 2
