"""What the look at a table of own cases says, and that it refuses what the stage would."""

import json

import pytest

from clinic.config import CaseSource
from clinic.errors import ClinicError
from doctor.case_preview import guessed, preview, refuse, too_long
from doctor.parameters import load_params

TEMPLATE = "I have come about my knee and would like to know what it is. I have had it for {} days by now."
MAPPING = "name: mine\nvignette: text\ndiagnosis: illness\n"


@pytest.fixture
def place(tmp_path):
    """Writes a CSV of (text, illness) and its mapping; returns the source that names them."""

    def write(rows):
        lines = [f'"{text}",{illness}\n' for text, illness in rows]
        (tmp_path / "mine.csv").write_text("text,illness\n" + "".join(lines))
        (tmp_path / "mine.yaml").write_text(MAPPING)
        stated = {"format": "own", "path": str(tmp_path / "mine.csv"), "mapping": str(tmp_path / "mine.yaml")}
        return CaseSource.model_validate({**stated, "cases": 0, "licence": "-"})

    return write


@pytest.fixture
def params():
    """Gives the parameters with so many starter cases."""

    def made(starter):
        found = load_params()
        section = found.patient_cases
        drawn = section.starter.model_copy(update={"cases": starter})
        return found.model_copy(update={"patient_cases": section.model_copy(update={"starter": drawn, "imported": ()})})

    return made


def test_cases_of_one_template_are_seen_as_the_stage_sees_them(place, params):
    source = place([(TEMPLATE.format(n), ("Myocardial infarction", "Zorbitis")[n % 2]) for n in range(40)])
    cases, rejected, lines = preview(params(0), source, 0)
    assert len({case.group_id for case in cases}) == 1
    assert any("share a group with another, and so a split: 40, at most 40 in one" in line for line in lines)
    with pytest.raises(ClinicError, match=r"40 of them stay together.* raise patient_cases\.near_duplicate"):
        refuse(params(0), source, cases, rejected)
    text = "\n".join(lines)
    assert "diagnoses without a known synonym: 1, of 20 cases" in text
    assert "  Zorbitis (20)" in lines
    assert "without other sources" not in text
    refuse(params(10), source, cases, rejected)
    assert "  without other sources the stage would stop: patient_cases: none of 40" in "\n".join(
        preview(params(10), source, 0)[2]
    )


def test_where_there_is_no_row_it_is_said(place, params, tmp_path):
    source = place([])
    with pytest.raises(ClinicError, match=r"mine\.csv has no row in it"):
        preview(params(0), source, 0)
    (tmp_path / "none").mkdir()
    with pytest.raises(ClinicError, match=r"none has no table in it; one ends in \.jsonl, \.csv"):
        preview(params(0), source.model_copy(update={"path": str(tmp_path / "none")}), 0)


def test_a_mapping_is_guessed_for_a_folder_by_its_first_table_whole_or_not_at_all(tmp_path):
    (tmp_path / "tables").mkdir()
    with pytest.raises(ClinicError, match="has no table in it"):
        guessed(tmp_path / "tables", tmp_path / "m.yaml")
    (tmp_path / "tables/a.csv").write_bytes("história,text,diagnosis\n".encode("cp1252"))
    with pytest.raises(ClinicError, match=r"a\.csv: the header is no UTF-8"):
        guessed(tmp_path / "tables", tmp_path / "m.yaml")
    assert not (tmp_path / "m.yaml").exists()
    (tmp_path / "tables/a.csv").write_text(f"case,text,diagnosis\n1,{TEMPLATE},Gout\n")
    guessed(tmp_path / "tables", tmp_path / "m.yaml")
    assert "\nvignette: text\ndiagnosis: diagnosis\n# not used: case\n" in (tmp_path / "m.yaml").read_text()


def test_how_columns_were_read_is_shown(place, params, tmp_path):
    source = place([])
    rows = [
        f"It hurts here and there {n}. It is worse at night {n}.,Gout,{n % 3},{'yn'[n % 2]},{n}\n" for n in range(30)
    ]
    (tmp_path / "mine.csv").write_text("text,illness,vomiting,fever,visit\n" + "".join(rows))
    (tmp_path / "mine.yaml").write_text(MAPPING + "facts: [vomiting, fever]\n")
    lines = preview(params(10), source, 1)[2]
    assert "  column vomiting: 30 texts, 0 empty; told as they stand, as no yes or no: 0, 1, 2" in lines
    assert "  column fever: 15 yes, 15 no, 0 empty" in lines
    assert "  columns that nothing is made of: visit" in lines
    assert "  all have one diagnosis: whoever says it is always right" in lines
    assert {"  + fever: Fever.", "  - fever: No fever."} & set(lines)


def test_what_is_doubtful_is_said(place, params, tmp_path):
    source = place([])
    told = "It hurts here {0}. It is worse at night {0}."
    rows = [
        {"text": told.format(1), "illness": "Gout", "mrn": "7", "also": "Podagra, Uric arthritis", "CRP": 120},
        {"text": told.format(1), "illness": "Sprain", "mrn": None, "CRP": None},
        {"text": told.format(2), "illness": "Pulmonary embolism was diagnosed.", "mrn": "8", "CRP": "none"},
        {"text": told.format(3), "illness": "1.Pneumonia 2.COPD", "mrn": "9"},
        {"text": f"{told.format(4)} Known gout.", "illness": "Gout", "mrn": "10"},
        {"text": told.format(5), "illness": "r/o pneumonia", "mrn": "11"},
    ]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "mine.yaml").write_text(MAPPING + "group: mrn\nsynonyms: also\ntests: [CRP]\n")
    lines = preview(params(10), source.model_copy(update={"path": str(tmp_path / "mine.jsonl")}), 6)[2]
    text = "\n".join(lines)
    assert "rows without a group (mrn is empty), which may be parted from their patient's: 1" in text
    assert "match; name them under `corrections`: 1, Pulmonary embolism was diagnosed." in text
    assert (
        "synonyms with a comma, each taken for one name: 1, such as 'Podagra, Uric arthritis'; `separator` is '|'"
        in text
    )
    assert "patients with the same words and different diagnoses: " not in text  # the CRP differs
    assert "diagnoses that look like several, of which one alone is wrong: 1, 1.Pneumonia 2.COPD" in text
    assert "diagnoses that are in doubt, ruled out or past: 1, r/o pneumonia" in text
    assert "masked where it is told: 1, such as History of present illness (2): Known gout." in text
    assert "  Test: CRP -> CRP: 120." in lines
    assert any(line.endswith("facts; also: Podagra, Uric arthritis)") for line in lines)


def test_without_a_tokenizer_the_rest_is_told(place, params):
    given = params(10)
    away = given.model_copy(update={"warm_start": given.warm_start.model_copy(update={"base": "models/nowhere"})})
    cases, _, lines = preview(away, place([(TEMPLATE.format(n), "Gout") for n in range(3)]), 0)
    assert lines
    assert too_long(away, cases)[1].startswith("tokens are not counted, so that charts may be too long: cannot read")
