"""Whoever asks a command for help gets it, and no work is begun."""

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


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_how_to_use_it(command):
    done = subprocess.run(
        [sys.executable, "-m", command, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")
    assert "Traceback" not in done.stdout
