"""`python -m commands.consult`, as typed."""

import subprocess
import sys

from doctor.parameters import ROOT


def consult(*words: str, typed: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "commands.consult", *words], cwd=ROOT, input=typed, capture_output=True, text=True
    )


def test_a_person_talks_to_the_bundled_model_and_is_told_what_it_is():
    done = consult("--doctor", "models/base", "--forget", typed="I have a cough\n" + "no\n" * 20)
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.strip().splitlines()
    notice = "Teaching and research material. It is no doctor and gives no medical advice."
    assert first == notice
    assert last.endswith(notice)
    assert " 1 Doctor: " in done.stdout
    assert done.stdout.count("You: ") >= 1
    assert "How good was it?" not in done.stdout
    assert "Loading weights" not in done.stderr


def test_the_end_of_the_input_ends_it_in_a_line():
    done = consult("--doctor", "models/base", "--forget", typed="I have a cough\n")
    assert (done.returncode, done.stderr.strip().splitlines()[-1]) == (130, "stopped")
    assert "Traceback" not in done.stderr


def test_a_doctor_that_is_not_there_is_told_in_a_line():
    done = consult("--doctor", "models/no such")
    assert done.returncode == 2
    assert done.stderr.startswith("error: models/no such is neither a folder nor an alias of anamnesis-doctor")
