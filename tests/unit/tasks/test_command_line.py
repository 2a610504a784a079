"""How a stage's process ends."""

import signal
import subprocess
import sys

import pytest
from prefect.exceptions import TerminationSignal

from tasks.command_line import INTERRUPTED, TERMINATED, told

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


def test_leaving_waits_for_threads_and_exit_functions_and_takes_nothing_apart() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVING], check=False, capture_output=True, text=True)
    assert done.returncode == 7, done.stderr
    assert done.stdout.splitlines() == ["leaving", "thread ended", "at exit"]


@pytest.mark.parametrize(
    ("sent", "status"), [(TerminationSignal(signal.SIGTERM), TERMINATED), (KeyboardInterrupt(), INTERRUPTED)]
)
def test_what_fails_because_of_a_signal_is_a_stop(
    sent: BaseException, status: int, capsys: pytest.CaptureFixture[str]
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


def test_what_fails_of_itself_is_no_stop() -> None:
    with pytest.raises(ValueError, match="wrong"), told("stage"):
        raise ValueError("wrong")
