"""Whoever asks a command for help gets it, and no work is begun."""

import json
import subprocess
import sys

import pytest

from doctor.parameters import ROOT

COMMANDS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for room in ("flows", "tasks", "commands", "doctor", "tracking")
    for path in (ROOT / room).glob("*.py")
    if '__name__ == "__main__"' in path.read_text()
)


def test_the_commands_are_found():
    assert {"flows.retrain", "flows.knowledge_base", "commands.run", "commands.profile"} <= set(COMMANDS)


@pytest.mark.parametrize(("typed", "seldom"), [("-m", True), ("a script", False)])
def test_a_command_and_nobody_who_imports_it_has_a_collector_that_comes_seldom(typed, seldom):
    code = f"import sys, gc; sys.argv[0], before = {typed!r}, gc.get_threshold()[0]; import commands; print(gc.get_threshold()[0] > before)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(seldom)


ASKED = """
import json, runpy, sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
told = {}
for command in sys.argv[1:]:
    sys.modules.pop(command, None)  # of one that another command imports
    sys.argv = [command, "--help"]
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        try:
            runpy.run_module(command, run_name="__main__", alter_sys=True)
            status = "it went on"
        except SystemExit as ended:
            status = ended.code
    told[command] = status, err.getvalue(), out.getvalue()
print(json.dumps(told))
"""


@pytest.mark.slow
def test_help_says_how_to_use_it():
    """Asked in one process, which imports what they share but once."""
    done = subprocess.run([sys.executable, "-c", ASKED, *COMMANDS], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert list(told) == COMMANDS
    wrong = {name: one for name, one in told.items() if one[:2] != [0, ""] or not one[2].startswith("usage: ")}
    assert wrong == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [one if one == "flows.train_doctor" else pytest.param(one, marks=pytest.mark.course) for one in COMMANDS],
)
def test_help_as_typed(command):
    done = subprocess.run(
        [sys.executable, "-m", command, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")
