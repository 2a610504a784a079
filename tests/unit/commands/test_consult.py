"""`python -m commands.consult`, as typed."""

import subprocess
import sys
from pathlib import Path

import pytest

from commands.consult import keep_trace
from doctor.parameters import ROOT
from tracking import recorder
from tracking.errors import AwayError, TrackingError


def consult(*words: str, typed: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "commands.consult", *words],
        cwd=ROOT,
        input=typed,
        capture_output=True,
        encoding="latin-1",
    )


def test_a_person_talks_to_the_bundled_model_and_is_told_what_it_is():
    """In another encoding, too: a letter is lost."""
    done = consult("--doctor", "models/base", "--forget", typed="A cough since café\n" + "no\n" * 20)
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.strip().splitlines()
    notice = "Teaching and research material. It is no doctor and gives no medical advice."
    assert first == notice
    assert last.endswith(notice)
    assert " 1 Doctor: " in done.stdout
    assert done.stdout.count("You: ") >= 1
    assert "How good was it?" not in done.stdout
    assert "Loading weights" not in done.stderr


@pytest.mark.slow
def test_the_end_of_the_input_ends_it_in_a_line():
    done = consult("--doctor", "models/base", "--forget", typed="I have a cough\n")
    assert (done.returncode, done.stderr.strip().splitlines()[-1]) == (130, "stopped")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_doctor_that_is_not_there_is_told_in_a_line():
    done = consult("--doctor", "models/no such")
    assert done.returncode == 2
    assert done.stderr.startswith("error: models/no such is neither a folder nor an alias of anamnesis-doctor")


@pytest.mark.parametrize("error", [AwayError("the server is away"), TrackingError("the server refuses this")])
def test_a_store_that_cannot_be_written_to_costs_the_trace_and_nothing_else(monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(recorder, "record_consultation", fail)
    assert keep_trace(Path("models/doctor"), None) == (None, f"Not kept as a trace: {error}.")
    assert keep_trace(None, None) == (None, "")  # a served doctor's, whose folder nobody knows
    monkeypatch.setattr(recorder, "record_consultation", lambda *_: "tr-1")
    assert keep_trace(Path("models/doctor"), None) == ("tr-1", "Kept as a trace in MLflow.")
