"""How the denials of notes are counted, and that they are heard."""

import pytest

from doctor.calibration import CALIBRATION, read_lines
from doctor.notes_calibration import HALVES, heard, note_lines

NOTE = "Sore throat (no rash) for days. Denies fever but has a cough. Apart from a limp he is well. Drool"


@pytest.mark.parametrize(
    ("phrase", "present", "outcome"),
    [
        ("Sore throat", True, "right"),
        ("rash", False, "opening"),
        ("fever", False, "right"),
        ("fever", True, "wrong"),
        ("cough", True, "right"),
        ("stridor", False, "lost"),
    ],
)
def test_a_finding_is_found_in_the_fact_that_holds_its_words(phrase, present, outcome):
    row = {"language": "en", "note": NOTE, "findings": [{"phrase": phrase, "present": present}]}
    assert list(heard(row)) == [(present, outcome)]


def test_a_note_may_be_a_talk():
    note = "Q: Any fever? A: No. Q: Cough? A: Yes, dry."
    found = [{"phrase": "fever", "present": False}, {"phrase": "Cough", "present": True}]
    assert [how for _, how in heard({"language": "en", "note": note, "findings": found})] == ["right", "right"]


def test_denials_of_notes_are_heard():
    lines = list(note_lines())
    assert [line.split()[0] for line in lines] == [half for half in HALVES for _ in range(4)]
    for half, least in (("open", 0.94), ("sealed", 0.94)):
        rows = read_lines(CALIBRATION / f"notes_{half}.jsonl")
        outcomes = [outcome for row in rows for _, outcome in heard(row)]
        assert outcomes.count("right") / len(outcomes) >= least
        assert outcomes.count("lost") / len(outcomes) <= 0.005
        assert outcomes.count("wrong") / len(outcomes) <= 0.025
        assert all(row["note"].count(finding["phrase"]) == 1 for row in rows for finding in row["findings"])
