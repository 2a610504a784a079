"""How well the denials of free text are heard: data/calibration/notes_*.jsonl.

A row holds a note as clinicians write it, its language, and findings: words of the note, and whether it says that they are
there. The note is parted as the vignette of an own case is.

    right     a fact that holds the words is present, or denied, as the note has it
    opening   the words are denied within what the patient comes with, who says so
    wrong     a fact that holds them says the opposite
    lost      none holds them
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from clinic.loaders.free_text import opening_of
from clinic.loaders.own import told_by_vignette
from doctor.calibration import CALIBRATION, read_lines

HALVES = ("open", "sealed")
OUTCOMES = ("right", "opening", "wrong", "lost")


def heard(row: Mapping[str, Any]) -> Iterator[tuple[bool, str]]:
    """Of each finding of a labelled note whether it is there, and the outcome."""
    told = list(told_by_vignette(row["note"], row["language"]))
    opening = opening_of(row["note"], row["language"])
    for finding in row["findings"]:
        words, there = finding["phrase"].lower(), finding["present"]
        holding = [one for one in told if words in f"{one.topic}\n{one.text}".lower()]
        if not holding:
            yield there, "lost"
        elif any(one.present == there for one in holding):
            yield there, "right"
        else:
            yield there, "opening" if any(one.text == opening for one in holding) else "wrong"


def note_lines() -> Iterator[str]:
    """A line for each half, language and kind of finding."""
    for half in HALVES:
        rows = read_lines(CALIBRATION / f"notes_{half}.jsonl")
        for language in ("en", "zh"):
            found = [pair for row in rows if row["language"] == language for pair in heard(row)]
            for there, name in ((False, "denied"), (True, "present")):
                counted = Counter(outcome for one, outcome in found if one == there)
                shares = ", ".join(f"{outcome} {counted[outcome] / counted.total():.3f}" for outcome in OUTCOMES)
                yield f"{half:<7} {language} {name:<8} {shares} ({counted.total()})"
