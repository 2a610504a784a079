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


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_how_to_use_it(command):
    done = subprocess.run(
        [sys.executable, "-m", command, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")
    assert "Traceback" not in done.stdout
