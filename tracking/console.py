"""What a run tells its user: one line per event with one clock, and on a terminal progress bars below the lines.

Nothing here changes a result.
"""

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TextIO

from prefect import get_client
from prefect.context import FlowRunContext, TaskRunContext
from prefect.logging.handlers import APILogHandler, PrefectConsoleHandler
from prefect.runtime import flow_run
from prefect.settings import PREFECT_LOGGING_LEVEL
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column, Table
from rich.text import Text

from doctor.parameters import ParameterError, chosen, load_params
from tracking.endings import alert, cancelled

PARENT = "ANAMNESIS_PARENT_FLOW_RUN"  # in the environment of what a flow starts: the id of its run
ROOMS = ("commands", "flows", "tasks", "tracking", "doctor", "rl", "clinic", "kb")
LINE = re.compile(r"\d\d:\d\d:\d\d (\w+ \| .*)")
TOLD_BY_CALLER = ("Finished in state", "Crash detected!")
SENDS_THE_LAST = "Still processing items"  # a queue of Prefect's at a flow's end, under its class's name
AWAY = "Prefect's server does not answer; the run goes on, and its pages lack what happens"
UNREACHED = "Unable to connect to 'ws"  # of Prefect's server, for every event again
REFRESH_S = 0.5  # between two pictures of the bars
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-Z\\-_]|[\x00-\x08\x0b-\x1f\x7f]")
_STYLES = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"}


def duration(seconds: float) -> str:
    """Seconds for people."""
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"


def pace(rate: float) -> str:
    """A rate per second for people."""
    return f"{1 / rate:.1f} s each" if 0 < rate < 1 else f"{rate:.1f}/s"


@dataclass(frozen=True, kw_only=True)
class Bar:
    """How far a piece of work is. Its name tells it from others that are under way."""

    name: str
    unit: str
    done: int
    total: int
    rate: float = 0.0  # units per second; 0: not known yet
    note: str = ""

    @property
    def left(self) -> float | None:
        """Seconds left, if the rate is known."""
        return (self.total - self.done) / self.rate if self.rate else None

    def __str__(self) -> str:
        told = [self.note, pace(self.rate) if self.rate else "", f"{duration(self.left)} left" if self.left else ""]
        return ", ".join([f"{self.name}: {self.done}/{self.total} {self.unit}", *filter(None, told)])


class Line(logging.Formatter):
    """`15:08:27 stage | message`; a record that was a line of another process already (`relayed`) gets the clock only."""

    def __init__(self, stage: str) -> None:
        """Speak for a stage.

        Args:
            stage: the one that speaks.
        """
        super().__init__("%(message)s")
        self.stage = stage

    def format(self, record: logging.LogRecord) -> str:
        """The line, or several with the same beginning for a traceback; never a control character."""
        label = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        head = "" if getattr(record, "relayed", False) else f"{self.stage} | {label}"
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        return "\n".join(f"{clock} {head}{clean(line)}" for line in super().format(record).split("\n"))


def clean(line: str) -> str:
    """Without colours, and without what a carriage return wrote over."""
    return _CONTROL.sub("", line.rstrip("\r").rpartition("\r")[2])


class Screen:
    """Where the lines go, and the bars below them if it is a terminal that can move its cursor."""

    def __init__(self, stream: TextIO) -> None:
        """Draw where somebody looks.

        Args:
            stream: standard error, as a rule.
        """
        self.stream = stream
        self.live = stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
        self._console = (
            Console(file=stream, force_terminal=True, highlight=False, markup=False, emoji=False) if self.live else None
        )
        self._bars: Progress | None = None
        self._lock = threading.RLock()
        self._drawn = 0.0

    def write(self, line: str, level: int = logging.INFO) -> None:
        """One line, above the bars."""
        with self._lock:
            if self._console is None:
                self.stream.write(line + "\n")
                self.stream.flush()
            else:
                self._console.print(Text(line, _STYLES.get(level, "")), soft_wrap=True)

    def show(self, bar: Bar) -> bool:
        """Draw a bar, or take it away when its work is done; returns whether this screen can draw."""
        if self._console is None:
            return False
        with self._lock:
            if self._bars is None:
                self._bars = _bars(self._console)
                self._bars.start()
                self._console.show_cursor(True)  # it stays visible, whatever ends this process
            known = {task.description: task.id for task in self._bars.tasks}
            if bar.done < bar.total:
                put = (
                    partial(self._bars.update, known[bar.name])
                    if bar.name in known
                    else partial(self._bars.add_task, bar.name)
                )
                put(completed=bar.done, total=bar.total, bar=bar, at=time.monotonic())
            elif bar.name in known:
                self._bars.remove_task(known[bar.name])
            self._draw(at_once=bar.name not in known or bar.done >= bar.total)
        return True

    def _draw(self, *, at_once: bool) -> None:
        if self._bars is None:
            return
        if not self._bars.tasks:
            self.close()
        elif at_once or time.monotonic() - self._drawn >= REFRESH_S:
            self._bars.refresh()
            self._drawn = time.monotonic()

    def close(self) -> None:
        """Take all bars away."""
        with self._lock:
            if self._bars is not None:
                self._bars.stop()
                self._bars = None


class _Rows(Progress):
    """Bars that leave room for the `^C` which a terminal echoes: a row that it made wrap could not be taken away."""

    def __init__(self, *columns: ProgressColumn, console: Console, **settings: Any) -> None:
        self.terminal = console
        super().__init__(*columns, console=console, **settings)

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        table = super().make_tasks_table(tasks)
        table.width = max(self.terminal.width - 3, 1)
        return table


def _bars(console: Console) -> Progress:
    """One row each: name, bar, count, rate, time left."""
    return _Rows(
        TextColumn(
            "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", max_width=24)
        ),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        TextColumn("{task.completed}/{task.total}", table_column=Column(no_wrap=True, justify="right")),
        _Told(table_column=Column(no_wrap=True, overflow="ellipsis", justify="right")),
        console=console,
        auto_refresh=False,
        transient=True,
        expand=True,
        redirect_stdout=sys.stdout.isatty(),
    )


class _Told(TextColumn):
    """Rate and time left; the latter goes on counting down between two reports."""

    def __init__(self, table_column: Column) -> None:
        super().__init__("", table_column=table_column)

    def render(self, task: Task) -> Text:
        bar: Bar = task.fields["bar"]
        if bar.left is None:
            return Text(bar.unit)
        left = duration(bar.left - (time.monotonic() - task.fields["at"]))
        return Text(f"{bar.unit}  {pace(bar.rate)}  {left} left")


@cache
def screen() -> Screen:
    """The screen of this process: standard error."""
    return Screen(sys.stderr)


class ConsoleHandler(logging.Handler):
    """Writes our records, and of the libraries' what warns; Prefect's account of its own states stays on its pages."""

    def __init__(self, stage: str, *, attended: bool) -> None:
        """Choose what is shown.

        Args:
            stage: the one that speaks.
            attended: whether an exception of its flow reaches a caller that tells it; then Prefect's words about it are
                left out.
        """
        super().__init__()
        self.attended, self._told_from = attended, told_from()
        self._told_unreached = False
        self.setFormatter(Line(stage))
        self.addFilter(self._is_for_the_user)

    def _is_for_the_user(self, record: logging.LogRecord) -> bool:
        room, _, rest = record.name.partition(".")
        if room != "prefect":
            if record.getMessage().startswith(SENDS_THE_LAST):
                return False
            return record.levelno >= (self._told_from if room in ROOMS else logging.WARNING)
        message = record.getMessage()
        if message.startswith(UNREACHED):
            return self._is_first_unreached(record)
        if rest in ("flow_runs", "task_runs") and (record.exc_info or message.startswith(TOLD_BY_CALLER)):
            told_by_flow = rest == "task_runs" and _of_ours(record) is not None
            if self.attended or told_by_flow:
                return False
        return record.levelno >= logging.WARNING or message.startswith("Task run failed")  # ... and will be retried

    def _is_first_unreached(self, record: logging.LogRecord) -> bool:
        """In a line of ours: whoever reads it wants to know what becomes of the run."""
        first, self._told_unreached = not self._told_unreached, True
        record.msg, record.args = AWAY, ()
        return first

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record; of an exception that is ours its words, since they say what to mend: the page has the rest."""
        if (error := _of_ours(record)) is not None:
            record = copy(record)
            record.msg, record.args, record.exc_info, record.exc_text = str(error), (), None, None
        try:
            screen().write(self.format(record), record.levelno)
        except Exception:  # noqa: BLE001  as every handler: a log line ends no run
            self.handleError(record)


def told_from() -> int:
    """The level from which our own lines are told: DEBUG where PREFECT_LOGGING_LEVEL is; else INFO, since what a stage
    comes to is always told.
    """
    level = logging.getLevelNamesMapping().get(str(PREFECT_LOGGING_LEVEL.value()), logging.INFO)
    return min(level, logging.INFO)


def _of_ours(record: logging.LogRecord) -> BaseException | None:
    """The exception that a record tells of, if a room of ours raised it for the user."""
    error = record.exc_info[1] if record.exc_info else None
    return error if error is not None and type(error).__module__.partition(".")[0] in ROOMS else None


class RunPageHandler(APILogHandler):
    """Sends our records to the page of the flow run; those of a thread without Prefect's context too."""

    def __init__(self, flow_run_id: str) -> None:
        """Send to the page of one flow run.

        Args:
            flow_run_id: the run.
        """
        super().__init__()
        self.flow_run_id = flow_run_id

    def emit(self, record: logging.LogRecord) -> None:
        """Send the record."""
        if FlowRunContext.get() is None and TaskRunContext.get() is None:
            record.flow_run_id = self.flow_run_id
        super().emit(record)


def start_logging(stage: str, *, attended: bool) -> None:
    """Write lines to standard error in place of Prefect's own.

    Args:
        stage: the name at the beginning of each line.
        attended: whether the caller tells how the flow failed.
    """
    root = logging.getLogger()
    for handler in [
        handler for handler in root.handlers if isinstance(handler, PrefectConsoleHandler | ConsoleHandler)
    ]:
        root.removeHandler(handler)
    root.addHandler(ConsoleHandler(stage, attended=attended))
    for room in ROOMS:
        logging.getLogger(room).setLevel(told_from())
    for noisy in ("mlflow", "alembic"):  # they bring handlers of their own
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it raises what it logs, too
    logging.raiseExceptions = False  # else Prefect tells of every line that it could not send ...
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # who cannot reach a server says so itself
    if not screen().live:
        _hide_bars_of_libraries()


def _hide_bars_of_libraries() -> None:
    """Of transformers and the Hugging Face hub, here and in what is started from here: in a file each is two lines."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if loaded := sys.modules.get("transformers.utils.logging"):
        loaded.disable_progress_bar()


def named() -> str:
    """What a flow run is called where Prefect lists them: its flow, and the training that its parameters are for."""
    flow = flow_run.flow_name or "flow"
    given = flow_run.parameters
    try:
        changes = chosen(given.get("algorithm"), None, given.get("seed"))
        return f"{flow} {load_params(given.get('params_file'), changes).run_name}"
    except ParameterError:  # the flow tells it better
        return flow


def follow(flow: Any, flow_run: Any, state: Any) -> None:  # noqa: ARG001  Prefect's signature
    """What every flow calls when it begins, whoever started it: lines to the console and to the page of the run, each
    once; a tag that says which run it is a part of.
    """
    if (parent := os.environ.get(PARENT)) and not flow_run.parent_task_run_id:
        with get_client(sync_client=True) as client:
            client.update_flow_run(flow_run.id, tags={*flow_run.tags, f"parent:{parent}"})
    if not any(isinstance(handler, ConsoleHandler) for handler in logging.getLogger().handlers):
        start_logging(flow.name, attended=False)
    for handler in logging.getLogger("prefect._internal").handlers:  # made anew as a flow begins
        handler.setLevel(logging.CRITICAL)  # ... and of every event
    for room in map(logging.getLogger, ROOMS):
        for handler in [handler for handler in room.handlers if isinstance(handler, APILogHandler)]:
            room.removeHandler(handler)
        room.addHandler(RunPageHandler(str(flow_run.id)))


# what every flow is given: a name that says what it is, its lines where they are looked for, and an end that is told
WATCHED: dict[str, Any] = {
    "flow_run_name": named,
    "on_running": [follow],
    "on_failure": [alert],
    "on_crashed": [cancelled, alert],
}
