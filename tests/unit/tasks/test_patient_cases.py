"""What the stage `patient_cases` makes of a table whose records resemble each other."""

import json

import pytest

from clinic.config import CaseSource
from clinic.errors import ClinicError
from doctor.parameters import load_params
from tasks.patient_cases import collect_cases


def test_records_of_one_template_are_told_what_keeps_them_together(tmp_path):
    """More of them would not help: the threshold of near-duplicates does."""
    template = "I have come about my {} and would like to know what it is. I have had it for {} days by now."
    rows = [
        {"text": template.format(part, days), "illness": part}
        for part in ("knee", "neck", "foot", "hand")
        for days in range(2, 12)
    ]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "mine.yaml").write_text("name: mine\nvignette: text\ndiagnosis: illness\n")
    source = CaseSource(
        format="own",
        path=str(tmp_path / "mine.jsonl"),
        mapping=str(tmp_path / "mine.yaml"),
        cases=0,
        licence="CC0-1.0",
    )
    section = load_params().patient_cases
    section = section.model_copy(
        update={"imported": (source,), "starter": section.starter.model_copy(update={"cases": 0})}
    )
    with pytest.raises(ClinicError, match=r"40 of them stay together.* raise patient_cases\.near_duplicate"):
        collect_cases.fn(section, tmp_path / "cases")
    assert not (tmp_path / "cases").exists()
    counts = collect_cases.fn(section.model_copy(update={"near_duplicate": 1.0}), tmp_path / "cases")
    assert counts["cases"] == 40
