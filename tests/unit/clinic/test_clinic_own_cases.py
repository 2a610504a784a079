"""Own cases: any table with a mapping file; what is wrong with either is told with line and reason."""

import gzip
import json
import random
import sys
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from clinic.cases import OPENING_STATES_DIAGNOSIS, Rejected
from clinic.config import CaseSource
from clinic.errors import ClinicError
from clinic.loaders import load_source
from clinic.loaders.cells import text_of
from clinic.loaders.free_text import Statement, is_present, opening_of, statements_of
from clinic.loaders.guess import guess_mapping
from clinic.loaders.mapping import read_mapping
from clinic.loaders.own import case_of
from clinic.loaders.rows import Table
from clinic.loaders.talks import turns_of
from clinic.loaders.text_rules import is_foreign
from clinic.rejections import by_reason, refuse_too_many, told
from clinic.understanding.record import kind_of

MAPPING = "name: mine\nvignette: story\ndiagnosis: dx\n"
STORY = "A man of 40 comes with a sore knee. It began on Sunday. He denies fever, chills, or injury. He takes aspirin."
ROW = {"story": STORY, "dx": "Gout"}


@pytest.fixture
def place(tmp_path):
    """Writes a table and its mapping; returns the source that names them."""

    def write(rows, mapping=MAPPING, name="cases.jsonl", **source):
        path = tmp_path / name
        if isinstance(rows, bytes):
            path.write_bytes(rows)
        else:
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            path.write_text(lines, encoding="utf-8")
        (tmp_path / "m.yaml").write_text(mapping, encoding="utf-8")
        given = {"format": "own", "cases": 0, "licence": "CC0-1.0", "mapping": str(tmp_path / "m.yaml")}
        return CaseSource.model_validate({**given, "path": str(path), **source})

    return write


def texts(case):
    return [(fact.topic, fact.present, fact.text) for fact in case.facts]


def test_a_vignette_and_a_diagnosis_are_enough(place, split):
    (case,), rejected = load_source(place([ROW]), split)
    assert rejected == []
    assert (case.source, case.diagnosis, case.diagnosis_id, case.language) == ("mine", "Gout", "gout", "en")
    assert case.self_report == "A man of 40 comes with a sore knee."
    assert case.opening == ("Presentation",)
    assert texts(case) == [
        ("Presentation", True, "A man of 40 comes with a sore knee."),
        ("History of present illness (1)", True, "It began on Sunday."),
        ("History of present illness (2)", False, "He denies fever."),
        ("History of present illness (3)", False, "He denies chills."),
        ("History of present illness (4)", False, "He denies injury."),
        ("Medications", True, "He takes aspirin."),
    ]


FULL = """name: ward
case_id: id
group: patient
opening: says
vignette: story
facts: [habits, more]
tests: [urine]
dialogue: talk
diagnosis: dx
synonyms: also
recommendation: {constant: See a doctor}
category: kind
red_flags: watch
language: lang
licence: rights
separator: ;
corrections: {Gouty thing: Gout}
"""
FULL_ROW = {
    "id": 7,
    "patient": "p1",
    "says": "My knee is sore.",
    "story": "It began on Sunday.",
    "habits": "Drinks beer. Does not smoke.",
    "more": ["Sleeps badly", {"topic": "Fever", "present": False, "text": "No fever"}],
    "urine": "Urate 9 mg/dL. No blood.",
    "talk": [{"doctor": ["Is it red?"], "patient": ["Yes, very."]}, {"doctor": [], "patient": "And hot."}],
    "dx": "gouty  thing",
    "also": "podagra; urate arthritis",
    "kind": "joints",
    "watch": "Fever;Cannot walk",
    "lang": "en",
    "rights": "MIT",
}


def test_every_field_of_the_mapping_finds_its_place(place, split):
    (case,), rejected = load_source(place([FULL_ROW], FULL), split)
    assert rejected == []
    assert (case.case_id, case.group_id, case.source, case.licence) == ("7", "ward:p1", "ward", "MIT")
    assert (case.diagnosis, case.synonyms, case.category) == ("Gout", ("podagra", "urate arthritis"), "joints")
    assert (case.recommendation, case.urgent, case.red_flags) == ("See a doctor", True, ("Fever", "Warning sign"))
    assert (case.self_report, case.opening) == ("My knee is sore.", ())
    assert texts(case) == [
        ("Presentation", True, "It began on Sunday."),
        ("habits (1)", True, "Drinks beer."),
        ("habits (2)", False, "Does not smoke."),
        ("more", True, "Sleeps badly."),
        ("Fever", False, "No fever"),
        ("Test results: urine", True, "Urate 9 mg/dL. No blood."),
        ("Is it red?", True, "Yes, very."),
        ("Unasked", True, "And hot."),
        ("Warning sign", True, "Cannot walk"),
    ]


def test_all_formats_of_a_table_give_the_same_cases(place, split, tmp_path):
    rows = [ROW, {"story": STORY.replace("knee", "toe, mostly"), "dx": "Gout"}]
    table = pd.DataFrame(rows)
    want = load_source(place(rows), split)[0]
    csv = table.to_csv(index=False).encode()
    table.to_parquet(tmp_path / "t.parquet")
    files = {
        "a.csv": csv,
        "bom.csv": b"\xef\xbb\xbf" + csv,
        "semicolons.csv": table.to_csv(index=False, sep=";").encode(),
        "tabs.tsv": table.to_csv(index=False, sep="\t").encode(),
        "windows.csv": csv.replace(b"\n", b"\r\n"),
        "a.csv.gz": gzip.compress(csv),
        "t.parquet": (tmp_path / "t.parquet").read_bytes(),
    }
    for name, content in files.items():
        assert load_source(place(content, name=name), split) == (want, []), name


def test_numbers_for_diagnoses_are_corrected_to_names(place, split):
    rows = [ROW | {"dx": 0}, ROW | {"dx": "22q11.2 deletion syndrome"}, ROW | {"dx": "痔"}]
    cases, rejected = load_source(place(rows, MAPPING + 'corrections: {"0": Gout}\n'), split)
    assert ([case.diagnosis for case in cases], rejected) == (["Gout", "22q11.2 deletion syndrome", "痔"], [])


def test_a_mapping_in_another_encoding_is_told(place, split):
    given = place([ROW])
    Path(given.mapping).write_bytes(MAPPING.encode() + "group: Fläche\n".encode("cp1252"))
    with pytest.raises(ClinicError, match="byte 0xe4 is no UTF-8; save the file as UTF-8"):
        load_source(given, split)


def test_separators_within_quotes_of_the_header_part_no_columns(place, split):
    content = f'"dx (final, coded, checked)";story\nGout;"{STORY}"\n'.encode()
    mapping = 'name: mine\nvignette: story\ndiagnosis: "dx (final, coded, checked)"\n'
    assert [case.diagnosis for case in load_source(place(content, mapping, "cases.csv"), split)[0]] == ["Gout"]


def test_a_guessed_mapping_quotes_any_name(tmp_path):
    columns = ['A "long" story\\of it', "diagnosis"]
    table = Table(columns, [(2, dict(zip(columns, ("It hurts. " * 10, "Gout"), strict=True)))])
    (tmp_path / "m.yaml").write_text(guess_mapping(table, Path("t.csv")), encoding="utf-8")
    assert read_mapping(tmp_path / "m.yaml").vignette == columns[0]


def test_a_sheet_is_read_where_openpyxl_is_there(place, split, monkeypatch):
    import importlib
    import importlib.util

    given = place(b"PK", name="cases.xlsx")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ClinicError, match=r"cases\.xlsx: reading Excel needs the package openpyxl.*save the sheet as CSV"
    ):
        load_source(given, split)
    cells = [("story", "dx"), (STORY, "Gout"), (None, " "), (STORY, None), (None, None)]

    def sheet(title, cells):
        return SimpleNamespace(title=title, iter_rows=lambda values_only: iter(cells))

    book = SimpleNamespace(worksheets=[sheet("Sheet1", [(None,)]), sheet("Cases", cells), sheet("Sheet3", [])])
    fake = SimpleNamespace(load_workbook=lambda path, read_only, data_only: book)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "openpyxl", fake)
    cases, rejected = load_source(given, split)
    assert [case.diagnosis for case in cases] == ["Gout"]
    assert [(r.line, r.reason) for r in rejected] == [(4, "no diagnosis: column 'dx' is empty")]
    book.worksheets.append(sheet("More", cells))
    with pytest.raises(
        ClinicError,
        match=r"cases\.xlsx has 2 sheets with something in them \('Cases', 'More'\); save that of the cases",
    ):
        load_source(given, split)


def test_bad_rows_are_rejected_with_line_and_reason(place, split):
    good = STORY.encode()
    content = b"\n".join(
        [
            b"id,story,dx",
            b'1,"' + good + b'",Gout',
            b",,",
            b'1,"A woman comes with a cough. It is dry.",Asthma',
            b'3,"A woman comes with a rash. It itches.",',
            b'4,"A caf\xe9 owner comes with a rash. It itches.",Eczema',
            b'5,"A boy comes with a cough, and more',
            b'of it. It is dry.",Croup',
            b"6,A girl comes with a cough. It is wet.,Croup,too many",
            b"7,,Croup",
            b"8,A girl comes with a cough.,Croup",
            b",A girl has hiccups. They are loud.,Croup",
            b"9,A girl has hiccups. They are loud.,!?",
            b"10,A girl has hiccups. They are loud.,0",
            b"11,A girl has hiccups. They are loud.,(B)",
            b"12,A girl has hiccups. They are loud.,J18.9",
            b"13,A girl has hiccups. They are loud.,I10",
        ]
    )
    given = place(content, MAPPING + "case_id: id\n", "cases.csv")
    cases, rejected = load_source(given, split)
    assert [case.case_id for case in cases] == ["1", "5"]
    assert {r.line: r.reason for r in rejected} == {
        4: "case id '1' is used twice, first in line 2",
        5: "no diagnosis: column 'dx' is empty",
        6: "byte 0xe9 is no UTF-8; save the file as UTF-8",
        9: "the row has 4 cells and the header 3; quote texts with separators",
        10: "nothing to begin with: column 'story' is empty",
        11: "nothing is left to ask: beside the opening words the row tells nothing of the patient",
        12: "no case id: column 'id' is empty",
        13: "diagnosis '!?' has no words",
        14: "diagnosis '0' is a code or a number, no name; say what it stands for under `corrections` of the mapping",
        15: "diagnosis '(B)' is a code or a number, no name; say what it stands for under `corrections` of the mapping",
        16: "diagnosis 'J18.9' is a code or a number, no name; say what it stands for under `corrections` of the mapping",
        17: "diagnosis 'I10' is a code or a number, no name; say what it stands for under `corrections` of the mapping",
    }


def test_bad_json_lines_are_rejected_with_line_and_reason(place, split):
    lines = [
        json.dumps(ROW).encode(),
        b"[1]",
        b"{",
        b'{"story": "caf\xe9", "dx": "Gout"}',
        json.dumps({**ROW, "lang": "fr"}).encode(),
        json.dumps({**ROW, "talk": "hello"}).encode(),
        json.dumps({**ROW, "more": [{"topic": "x"}]}).encode(),
        json.dumps({**ROW, "more": [{"text": "x", "present": "maybe"}]}).encode(),
        json.dumps(ROW).encode(),
        json.dumps({"story": " ", "dx": None}).encode(),
        json.dumps({**ROW, "dx": ["Gout", "Podagra"]}).encode(),
        json.dumps({**ROW, "talk": [{"role": "doctor", "content": "Is it red?"}]}).encode(),
        json.dumps({**ROW, "talk": [{"speaker": "SPEAKER_1", "text": "My toe hurts."}]}).encode(),
        json.dumps({**ROW, "talk": [{"said": "My toe hurts."}]}).encode(),
    ]
    mapping = MAPPING + "language: lang\ndialogue: talk\nfacts: [more]\n"
    cases, rejected = load_source(place(b"\n".join(lines), mapping), split)
    assert len(cases) == 1
    found = {r.line: r.reason for r in rejected}
    assert found.pop(9).endswith("is used twice, first in line 1")
    assert found.pop(3).startswith("not valid JSON: ")
    assert found == {
        2: "the line is no JSON object",
        4: "byte 0xe9 is no UTF-8; save the file as UTF-8",
        5: "language 'fr' is not spoken here; use one of: en, zh",
        6: "column 'talk' is no list of {doctor, patient} or {role, content}, nor a text whose lines begin with who speaks (Doctor: ...)",
        7: "column 'more': a fact without text; write {topic, present, text}",
        8: "column 'more': present = 'maybe' of a fact is neither true nor false",
        10: "the row is empty",
        11: "column 'dx' holds a list or an object; it must be one text, so give it a column of its own",
        12: "column 'talk': no message is the patient's",
        13: "column 'talk': speaker 'SPEAKER_1' is neither doctor nor patient",
        14: "column 'talk' is no list of {doctor, patient} or {role, content}",
    }


@pytest.mark.parametrize(
    ("mapping", "told_as"),
    [
        ("name: mine\nvignette: story\ndiagnosis: diagnosis\n", r"m\.yaml: diagnosis: cases\.jsonl has no column 'diagnosis' \(it has: story, dx\)"),
        ("name: mine\nvignette: stroy\ndiagnosis: dx\n", r"m\.yaml: vignette: cases\.jsonl has no column 'stroy' \(it has: story, dx\); did you mean 'story'\?"),
        ("name: mine\nvignette: Story \ndiagnosis: DX\n", r"did you mean '(?:dx|story)'\?"),
        ("name: mine\nvignette: story\n", r"m\.yaml: diagnosis is missing; name its column"),
        ("name: mine\ndiagnosis: dx\n", "nothing tells of the patient; name a column of free text"),
        ("name: mine\ndiagnosis: dx\nfacts: [story]\n", "nothing is said first; name a column for opening"),
        ("name: starter\nvignette: story\ndiagnosis: dx\n", "name 'starter' is another source's"),
        ("name: My Cases\nvignette: story\ndiagnosis: dx\n", "name = 'My Cases': "),
        ("name: mine\nvignete: story\ndiagnosis: dx\n", "unknown field vignete; did you mean 'vignette'"),
        ("name: mine\nvignette: story\ndiagnosis: dx\nqqq: dx\n", "unknown field qqq; the fields are: name, diagnosis, vignette"),
        ("name: mine\nvignette: story\ndiagnosis: dx\nfacts: dx\n", "facts = 'dx': write a list of columns, in brackets"),
        ("name: mine\nvignette: story\ndiagnosis: 2\n", "diagnosis = 2: write one text; a number in quotes"),
        ("name: mine\nvignette: story\ndiagnosis: dx\ncategory: {const: Gout}\n", r"category: write the name of a column, or \{constant: text\}"),
        ("name: mine\nvignette: story\ndiagnosis: dx\ncorrections: [a, b]\n", r"corrections = \['a', 'b'\]: write pairs"),
        ("name: mine\nname: yours\n", r"m\.yaml is not valid YAML: found duplicate key .*, line 2; remove one of the two\Z"),
        ("name: [\n", "m.yaml is not valid YAML"),
        ("just words\n", "must say `field: column` on each line"),
    ],
)  # fmt: skip
def test_a_wrong_mapping_is_one_line(place, split, mapping, told_as):
    with pytest.raises(ClinicError, match=told_as) as caught:
        load_source(place([ROW], mapping), split)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "told_as"),
    [
        ("cases.doc", b"x", r"cases\.doc: a table of cases ends in \.jsonl, \.csv"),
        ("cases.csv", b"", r"cases\.csv is empty; its first line must name the columns"),
        ("cases.csv", b"story,dx,dx\n", r"cases\.csv: two columns are named 'dx'"),
        ("cases.csv", "story,dx\n".encode("utf-16"), r"cases\.csv is UTF-16; save it as CSV in UTF-8"),
        ("cases.csv", b"story,dx\nA man comes. It hurts.,Gout\n\"A woman comes. It hurts,Gout\nA boy comes. It hurts.,Gout\n", r"cases\.csv, line 3: .*; close its quotes"),
        ("cases.csv", b'story,dx\n"A man comes.\n""Ow.""",Gout\n"A woman comes. It hurts,Gout\n"A boy comes.",Gout\n', r"cases\.csv, line 4: .*; close its quotes"),
        ("cases.csv", "história,dx\nx,y\n".encode("cp1252"), r"cases\.csv: the header is no UTF-8; save the file as UTF-8"),
        ("cases.csv", "病历,诊断\nx,y\n".encode("gbk"), r"cases\.csv: the header is no UTF-8; save the file as UTF-8"),
        ("cases.jsonl", (json.dumps(ROW) + "\n").encode("utf-16"), r"cases\.jsonl: no row can be read; line 1: byte 0xff is no UTF-8; save"),
        ("cases.json", json.dumps([ROW]).encode(), r"cases\.json: no row can be read; .*; JSON must be an object on each line"),
        ("cases.parquet", b"x", r"cases\.parquet cannot be read \("),
        ("cases.csv.gz", b"x", r"cases\.csv\.gz cannot be read \("),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_read_is_one_line(place, split, name, content, told_as):
    with pytest.raises(ClinicError, match=told_as) as caught:
        load_source(place(content, name=name), split)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there_are_named(place, split, tmp_path):
    given = place([ROW])
    with pytest.raises(ClinicError, match=r"gone\.csv does not exist; correct its path"):
        load_source(given.model_copy(update={"path": str(tmp_path / "gone.csv")}), split)
    with pytest.raises(ClinicError, match=r"gone\.yaml does not exist; .*commands\.cases"):
        load_source(given.model_copy(update={"mapping": str(tmp_path / "gone.yaml")}), split)


def test_a_mapping_belongs_to_own_cases():
    with pytest.raises(ValueError, match="format own needs a mapping"):
        CaseSource(format="own", path="x", cases=0, licence="x")
    with pytest.raises(ValueError, match="has no mapping"):
        CaseSource(format="agentclinic", path="x", cases=0, licence="x", mapping="m.yaml")


def test_words_make_the_group_and_rows_may_move(place, split):
    others = [{**ROW, "story": f"A woman comes with a cough. It began {i} days ago."} for i in range(5)]
    first = {c.case_id: c.split for c in load_source(place([ROW, *others]), split)[0]}
    later = {c.case_id: c.split for c in load_source(place([*others[::-1], ROW]), split)[0]}
    assert first == later
    assert len(first) == 6


def test_an_opening_that_names_the_diagnosis_is_flagged(place, split):
    (case,), _ = load_source(place([{"story": "A man comes with gout. It hurts.", "dx": "Gout"}]), split)
    assert case.flags == (OPENING_STATES_DIAGNOSIS,)


@pytest.mark.parametrize(
    "word",
    [
        "N/A",
        "pending",
        "not done",
        "未查",
        "na",
        "nan",
        "None",
        "null",
        "-",
        "Unknown",
        "TBD",
        "不详",
        ".",
        None,
        float("nan"),
    ],
)
def test_a_word_for_nothing_is_nothing(place, split, word):
    mapping = MAPPING + "group: who\nsynonyms: also\nred_flags: watch\ncategory: kind\nfacts: [more]\n"
    row = {**ROW, "who": word, "also": word, "watch": word, "kind": word, "more": "well"}
    (case, other), _ = load_source(place([row, {**row, "story": STORY.replace("knee", "toe")}], mapping), split)
    assert (case.synonyms, case.urgent, case.red_flags, case.category) == ((), False, (), "unclassified")
    assert case.group_id != other.group_id
    cases, (rejected,) = load_source(place([{**row, "dx": word}], mapping), split)
    assert cases == []
    assert rejected.reason.startswith("no diagnosis: column 'dx' ")


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (pd.Timestamp("2024-03-05"), "Since: 2024-03-05."),
        (date(2024, 3, 5), "Since: 2024-03-05."),
        (pd.Timestamp("2024-03-05 08:30"), "Since: 2024-03-05 08:30:00."),
        (45.0, "Since: 45."),
        (38.5, "Since: 38.5."),
        ("38.0", "Since: 38.0."),
        ("#N/A", None),
        ("#DIV/0!", None),
    ],
)
def test_dates_numbers_and_errors_of_a_sheet_are_told_as_people_write_them(place, split, cell, text):
    source = place([ROW], MAPPING + "facts: [since]\n")
    case = case_of({**ROW, "since": cell}, read_mapping(Path(source.mapping)), source, split)
    assert [fact.text for fact in case.facts if fact.topic == "since"] == ([text] if text else [])


def test_what_a_list_or_an_object_says_is_told_so_that_it_can_be_heard(place, split):
    row = {
        **ROW,
        "symptoms": [{"topic": "fever", "present": False, "text": "Fever"}, {"topic": "rash", "text": "no rash"}],
        "labs": [{"topic": "lipase", "text": "1840 U/L"}],
        "meds": ["apixaban 5 mg", {"name": "furosemide", "value": 40, "unit": "mg"}],
        "seen": [{"name": "Glucose", "value": 412, "unit": "mg/dL"}, {"test": "Nitrite", "result": "negative"}],
        "familyHistory": "gout; no asthma; lupus",
        "pmh": ["No diabetes", "hypertension"],
        "chills": "NO",
        "signs": ["limp", "red"],
        "CRP (mg/L)": 187,
        "Pain score": "bad",
        "Patient weight": "low",
    }
    mapping = (
        MAPPING
        + 'facts: [symptoms, meds, signs, Pain score, familyHistory, pmh, chills]\ntests: [labs, seen, "CRP (mg/L)", Patient weight]\n'
    )
    (case,), _ = load_source(place([row], mapping), split)
    told = {(fact.topic, fact.present, fact.text, kind_of(fact)) for fact in case.facts}
    assert told >= {
        ("fever", False, "No fever.", "history"),
        ("rash", False, "no rash", "history"),
        ("Test results: lipase", True, "Lipase: 1840 U/L.", "test"),
        ("meds", True, "Apixaban 5 mg, furosemide 40 mg.", "history"),
        ("Test results: Glucose", True, "Glucose: 412 mg/dL.", "test"),
        ("Test results: Nitrite", False, "Nitrite: negative.", "test"),
        ("family History (1)", True, "Gout, lupus.", "history"),
        ("family History (2)", False, "No asthma.", "history"),
        ("pmh (1)", True, "Hypertension.", "history"),
        ("pmh (2)", False, "No diabetes.", "history"),
        ("signs (1)", True, "Limp.", "history"),
        ("signs (2)", True, "Red.", "history"),
        ("Test results: CRP (mg/L)", True, "CRP (mg/L): 187.", "test"),
        ("History: Pain score", True, "Bad.", "history"),
        ("Test results: Patient weight", True, "low", "test"),
    }


@pytest.mark.parametrize(
    "turns",
    [
        [{"doctor": "Hello", "patient": "Hi doctor"}, {"patient": "My toe hurts."}, {"doctor": "Fever?", "patient": "I don't know."}, {"doctor": "Red?", "patient": "Yes, red."}],
        [{"speaker": "Doctor", "text": "Hello"}, {"speaker": "Patient", "text": "My toe hurts."}, {"speaker": "Doctor", "text": "Fever?"}, {"speaker": "Patient", "text": "Not sure."}, {"speaker": "Dr", "text": "Red?"}, {"speaker": "Pt", "text": "Yes, red."}],
        [{"role": "assistant", "content": "Hello"}, {"role": "user", "content": "My toe hurts."}, {"role": "assistant", "content": "Red?"}, {"role": "user", "content": "Yes, red."}],
        "[00:00] DR: Hello\n[00:01] PT: My toe hurts.\n[00:04] DR: Red?\n[00:09] PT: Yes, red.",
    ],
)  # fmt: skip
def test_a_dialogue_alone_is_a_case(place, split, turns):
    (case,), rejected = load_source(
        place([{"talk": turns, "dx": "Gout"}], "name: mine\ndialogue: talk\ndiagnosis: dx\n"), split
    )
    assert rejected == []
    assert case.self_report == "My toe hurts."
    assert ("Red?", "Yes, red.") in [(fact.topic, fact.text) for fact in case.facts]
    assert not any("know" in fact.text or "sure" in fact.text for fact in case.facts)


@pytest.mark.parametrize(
    "turns",
    [
        [{"role": "patient", "content": "头疼三天了。"}, {"role": "doctor", "content": "发热吗？"}, {"role": "patient", "content": "没有发热。"}],
        [{"role": "system", "content": "你是医生。"}, {"role": "user", "content": "头疼三天了。"}, {"role": "assistant", "content": "发热吗？"}, {"role": "user", "content": "没有发热。"}],
        [{"from": "human", "value": "头疼三天了。"}, {"from": "gpt", "value": "发热吗？"}, {"from": "human", "value": "没有发热。"}],
        [{"speaker": "患者", "text": "头疼三天了。"}, {"speaker": "医生", "text": "发热吗？"}, {"speaker": "母亲", "text": "没有发热。"}],
        [{"role": "user", "content": [{"type": "text", "text": "头疼三天了。"}]}, {"role": "assistant", "content": "发热吗？"}, {"role": "user", "content": ["没有发热。"]}],
    ],
)  # fmt: skip
def test_messages_have_english_roles_in_any_language(place, split, turns):
    row = {"talk": turns, "dx": "偏头痛", "complaint": ""}
    mapping = "name: mine\nopening: complaint\ndialogue: talk\ndiagnosis: dx\n"
    (case,), rejected = load_source(place([row], mapping, language="zh"), split)
    assert (rejected, case.self_report) == ([], "头疼三天了。")
    assert ("发热吗？", False, "没有发热。") in [(fact.topic, fact.present, fact.text) for fact in case.facts]


def test_an_object_of_names_and_values_tells_each(place, split):
    row = {**ROW, "labs": {"CRP": "187 mg/L", "HIV": False, "ESR": None}, "seen": {"fever": True, "rash": False}}
    mapping = MAPPING + "facts: [seen]\ntests: [labs]\n"
    (case,), _ = load_source(place([row, {**row, "story": "x", "labs": {"CRP": {"value": 1}}}], mapping), split)
    assert [(f.topic, f.present, f.text) for f in case.facts[-4:]] == [
        ("fever", True, "Fever."),
        ("rash", False, "No rash."),
        ("Test results: CRP", True, "CRP: 187 mg/L."),
        ("Test results: HIV", False, "No HIV."),
    ]
    _, (rejected,) = load_source(place([{**row, "labs": {"CRP": {"value": 1}}}], mapping), split)
    assert rejected.reason == "column 'labs': 'CRP' in it holds a list or an object; it must be one value"


@pytest.mark.parametrize(
    "entry",
    [{"name": "Fever", "answer": "no"}, {"test": "HIV", "interpretation": "negative"}, {"name": "CRP", "value": [1]}],
)
def test_an_object_that_says_more_than_is_known_is_told(place, split, entry):
    _, (rejected,) = load_source(place([{**ROW, "seen": [entry]}], MAPPING + "tests: [seen]\n"), split)
    assert rejected.reason.startswith("column 'seen': ")


def test_an_object_with_a_name_may_deny_it(place, split):
    entries = [{"name": "Asthma", "present": False}, {"name": "CRP", "value": "n/a", "result": "raised"}]
    (case,), _ = load_source(place([{**ROW, "pmh": entries}], MAPPING + "facts: [pmh]\n"), split)
    assert [(f.present, f.text) for f in case.facts[-2:]] == [(False, "No asthma."), (True, "CRP raised.")]


@pytest.mark.parametrize(
    "story",
    [
        "A man has a headache. What makes it worse?\na) light\nb) noise\nHe denies fever. He takes aspirin.",
        "A man has a headache. What symptoms do you have?\n1. Nausea\n2. No fever\nPast history: asthma",
    ],
)
def test_what_a_clinician_asks_in_a_note_ends_nothing(place, split, story):
    (case,), rejected = load_source(place([{**ROW, "story": story}], MAPPING), split)
    assert rejected == []
    assert any(not fact.present and "fever" in fact.text for fact in case.facts)


def test_excels_mark_of_an_open_table_is_no_table(place, split, tmp_path):
    (tmp_path / "months").mkdir()
    (tmp_path / "months/~$jan.xlsx").write_bytes(b"me")
    (tmp_path / "months/jan.jsonl").write_text(json.dumps(ROW))
    source = place([ROW]).model_copy(update={"path": str(tmp_path / "months")})
    assert len(load_source(source, split)[0]) == 1


def test_a_mapping_is_guessed_of_common_headers_and_never_of_objects():
    row = {"病案号": "1", "history": ["a"], "notes": STORY, "diagnosis": {"name": "x"}, "Discharge diagnosis": "Gout"}
    guess = guess_mapping(Table(list(row), [(1, row)]), Path("ed.jsonl"))
    assert "\nvignette: notes\n" in guess
    assert "\ndiagnosis: Discharge diagnosis\n" in guess
    assert "\ncase_id: 病案号\n" in guess
    talk = {"turns": [{"doctor": "Ill?", "patient": "Yes."}], "label": "Gout"}
    assert "\ndialogue: turns\n" in guess_mapping(Table(list(talk), [(1, talk)]), Path("talks.jsonl"))


@pytest.mark.parametrize(
    ("asked", "stated"),
    [
        ("Which of the following is the most likely diagnosis?\nA. Gout\nB. Sprain", "A"),
        ("What is the most likely diagnosis? a) Sprain b) Gout c) Bursitis", "b"),
        ("The most likely diagnosis is:\n(A) Sprain\n(B) Gout", "B"),
        ("Which fits best? Options: A. Sprain; B. Gout", "B) Gout"),
        ("What is the most likely diagnosis?\n1) Sprain\n2) Gout", "2"),
        ("What is it? A. Sprain B. Gout", "Gout"),
    ],
)
def test_the_options_of_an_exam_question_tell_nothing_but_what_its_letter_means(place, split, asked, stated):
    story = "A man has a red toe since May. He has no fever. " + asked
    (case,), rejected = load_source(place([{**ROW, "story": story, "dx": stated}], MAPPING), split)
    assert (rejected, case.diagnosis, case.self_report) == ([], "Gout", "A man has a red toe since May.")
    assert [fact.text for fact in case.facts] == ["A man has a red toe since May.", "He has no fever."]


@pytest.mark.parametrize(
    ("note", "want"),
    [
        ("S) Toe pain since May.\nO) Red toe.\nA) Gout\nP) Colchicine", ["+Red toe."]),
        ("S: Toe pain since May. No fall.\nO: US: tophi. CXR: clear.\nA/P: Gout, colchicine", ["-No fall.", "+US: tophi.", "+CXR: clear."]),
        ("S:\n- Toe pain since May\nO:\n- Red toe\nA:\n- Gout\nP:\n- Colchicine", ["+Red toe."]),
        ("【主诉】Toe pain since May【查体】Red toe.【诊断】Gout", ["+Red toe."]),
    ],
)  # fmt: skip
def test_what_a_note_concludes_stays_out_however_its_letters_are_written(note, want):
    language = "zh" if "【" in note else "en"
    assert opening_of(note, language).strip(".") == "Toe pain since May"
    assert [f"{'-+'[s.present]}{s.text}" for s in statements_of(note, language)][1:] == want


@pytest.mark.parametrize(
    "talk",
    [
        "Nurse: Hello, what is it?\nCaller: I feel dizzy.\nNurse: Since when?\nCaller: Since May.",
        "**Doctor:** What is it?\n**Patient:** I feel dizzy.\n**Doctor:** Since when?\n**Patient:** Since May.",
        "Doctor - What is it?\nPatient - I feel dizzy.\nDoctor - Since when?\nPatient - Since May.",
        "Dr. Smith: What is it?\nPatient: I feel dizzy.\nDr. Smith: Since when?\nPatient: Since May.",
        "Call received 14:32\nDoctor: What is it?\nPatient: I feel dizzy.\nDoctor: Since when?\nPatient: Since May.\nDoctor: I think it is Gout.\nPatient: Right.",
    ],
)  # fmt: skip
def test_talks_are_read_however_speakers_are_marked(place, split, talk):
    (case,), rejected = load_source(
        place([{"talk": talk, "dx": "Gout"}], "name: mine\ndialogue: talk\ndiagnosis: dx\n"), split
    )
    assert (rejected, case.self_report) == ([], "I feel dizzy.")
    assert [(fact.topic, fact.text) for fact in case.facts][1:] == [("Since when?", "Since May.")]


def test_what_stands_before_a_talk_is_not_lost_where_it_tells_something():
    talk = "Doctor: What is it?\nPatient: I feel dizzy.\nDoctor: Since when?\nPatient: Since May."
    assert turns_of(f"Call of May 3\n{talk}", "en")
    assert turns_of("Chest pain.\nMother - diabetes\nFather - died\nGP - Dr Smith\nNurse - Jones", "en") == []
    assert (
        turns_of("08:00 Nurse: BP 90/60.\n08:10 Patient: sleepy.\n09:00 Nurse: rash.\n09:10 Patient: awake.", "en")
        == []
    )
    assert turns_of(f"A man of 60 with diabetes calls because he feels dizzy.\n{talk}", "en") == []


def test_english_cases_that_are_called_chinese_are_told(place, split):
    cases, (rejected,) = load_source(place([ROW], MAPPING, language="zh"), split)
    assert cases == []
    assert rejected.reason.startswith("its words are not Chinese, but its language is zh")


def test_none_is_a_denial_where_something_is_told_of_the_patient(place, split):
    row = {**ROW, "Allergies": "none", "scan": "nil", "more": "N/A", "talk": [{"doctor": "Ill?", "patient": "None"}]}
    mapping = MAPPING + "facts: [Allergies, more]\ntests: [scan]\ndialogue: talk\n"
    (case,), _ = load_source(place([row], mapping), split)
    assert texts(case)[-3:] == [("Allergies", False, "None."), ("Test results: scan", False, "nil"), ("Ill?", False, "None")]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "cells", "language", "want"),
    [
        ("chest_pain", "1 0", "en", [(True, "Chest pain."), (False, "No chest pain.")]),
        ("Fever", "TRUE FALSE", "en", [(True, "Fever."), (False, "No fever.")]),
        ("HIV", "y N", "en", [(True, "HIV."), (False, "No HIV.")]),
        ("Rash", "yes N/A no", "en", [(True, "Rash."), None, (False, "No rash.")]),
        ("Rash", [True, None, False], "en", [(True, "Rash."), None, (False, "No rash.")]),
        ("Rash", [1.0, float("nan"), 0.0], "en", [(True, "Rash."), None, (False, "No rash.")]),
        ("Do you smoke?", "1 0", "en", [(True, "Yes."), (False, "No.")]),
        ("发热", "是 否", "zh", [(True, "发热。"), (False, "无发热。")]),
        ("发热", "有 无", "zh", [(True, "发热。"), (False, "无发热。")]),
        ("Children", "0 1 2", "en", [(True, "Children: 0."), (True, "Children: 1."), (True, "Children: 2.")]),
        ("Smoking", "no often", "en", [(False, "No."), (True, "Often.")]),
        ("Sex", "F F", "en", [(True, "Sex: F."), (True, "Sex: F.")]),
        ("Smoker", "Y N ex-smoker", "en", [(True, "Smoker."), (False, "No smoker."), (True, "Ex-smoker.")]),
        ("Fever", "1 0 yes maybe", "en", [(True, "Fever."), (False, "No fever."), (True, "Fever."), (True, "Maybe.")]),
        ("Nausea", "Y N U", "en", [(True, "Nausea."), (False, "No nausea."), None]),
        ("Fever", ["0", "1", "not asked"], "en", [(False, "No fever."), (True, "Fever."), None]),
        ("Weight loss", ["+", "-", ""], "en", [(True, "Weight loss."), (False, "No weight loss."), None]),
        ("Cough", ["(+)", "(-)", "−"], "en", [(True, "Cough."), (False, "No cough."), (False, "No cough.")]),
        ("Rash", ["x", ""], "en", [(True, "Rash."), None]),
        ("Dizzy", "ja nein", "en", [(True, "Dizzy."), (False, "No dizzy.")]),
        (
            "No known drug allergies",
            "yes no",
            "en",
            [(False, "No drug allergies."), (True, "Drug allergies.")],
        ),
        ("否认发热", "是 否", "zh", [(False, "无发热。"), (True, "发热。")]),
        ("无力", "是 否", "zh", [(True, "无力。"), (False, "无无力。")]),
        ("Pain", "0 1 8", "en", [(True, "Pain: 0."), (True, "Pain: 1."), (True, "Pain: 8.")]),
        ("Smoker", ["0", "1", "9"] * 7, "en", [(False, "No smoker."), (True, "Smoker."), None] * 7),
        ("Cough", ["+", "-", "n/a"], "en", [(True, "Cough."), (False, "No cough."), None]),
        ("age", "49.0 50.0", "en", [(True, "Age: 49."), (True, "Age: 50.")]),
        ("temp", "38.0 38.5", "en", [(True, "Temp: 38.0."), (True, "Temp: 38.5.")]),
        ("Rapid test", "positive negative", "en", [(True, "Positive."), (False, "Negative.")]),
        ("Pain", "no 0 1 7", "en", [(False, "No."), (True, "Pain: 0."), (True, "Pain: 1."), (True, "Pain: 7.")]),
    ],
)
def test_a_column_of_flags_tells_its_name(place, split, column, cells, language, want):
    cells = cells.split() if isinstance(cells, str) else cells
    rows = [{**ROW, "story": f"{STORY} {n}.", column: cell} for n, cell in enumerate(cells)]
    cases, rejected = load_source(place(rows, MAPPING + f'facts: ["{column}"]\n', language=language), split)
    assert rejected == []
    found = [next(((f.present, f.text) for f in case.facts if f.topic == column), None) for case in cases]
    assert found == want


@pytest.mark.parametrize("cell", ['["Sleeps badly", "Eats well"]', "['Sleeps badly', 'Eats well']", "['Sleeps badly' 'Eats well']", "[{'text': 'Sleeps badly', 'present': None}, {'text': 'Eats well', 'present': True}]"])  # fmt: skip
def test_a_list_in_a_cell_is_read(place, split, cell):
    (case,), _ = load_source(place([{**ROW, "more": cell}], MAPPING + "facts: [more]\n"), split)
    assert [(f.present, f.text.strip(".")) for f in case.facts[-2:]] == [(True, "Sleeps badly"), (True, "Eats well")]


def test_bytes_of_a_parquet_are_text(place, split, tmp_path):
    frame = pd.DataFrame([{"story": STORY, "dx": b"Gout"}, {"story": STORY, "dx": b"\xe9"}])
    frame.to_parquet(tmp_path / "t.parquet")
    (case,), (rejected,) = load_source(place((tmp_path / "t.parquet").read_bytes(), name="b.parquet"), split)
    assert case.diagnosis == "Gout"
    assert rejected.reason == "byte 0xe9 is no UTF-8; write the column as text"


@pytest.mark.parametrize(
    ("stated", "diagnosis"),
    [
        ("Pneumonia (J18.9)", "Pneumonia"),
        ("J18.9 Pneumonia", "Pneumonia"),
        ("E11.9 - Type 2 diabetes mellitus", "Type 2 diabetes mellitus"),
        ("Type 2 diabetes mellitus [E11.9]", "Type 2 diabetes mellitus"),
        ("Pneumonia, J18.9", "Pneumonia"),
        ("Pneumonia (ICD-10: J18.9)", "Pneumonia"),
        ("J18.9肺炎", "肺炎"),
        ("B12 deficiency", "B12 deficiency"),
        ("T12 fracture", "T12 fracture"),
        ("H1N1 influenza", "H1N1 influenza"),
        ("Whooping cough (A37.90)", "Pertussis"),
        ("Deficiency of vitamin (B12)", "Deficiency of vitamin (B12)"),
        ("Gout", "Gout"),
    ],
)
def test_a_code_is_no_part_of_a_diagnosis(place, split, stated, diagnosis):
    mapping = MAPPING + "corrections: {Whooping cough: Pertussis}\n"
    (case,), _ = load_source(place([{**ROW, "dx": stated}], mapping), split)
    assert case.diagnosis == diagnosis


@pytest.mark.parametrize("stated", ["J189", "ICD-10: J45", "250.00", "Other", "No diagnosis"])
def test_what_names_no_disease_is_no_diagnosis(place, split, stated):
    cases, (rejected,) = load_source(place([{**ROW, "dx": stated}]), split)
    assert cases == []
    assert rejected.reason.startswith(f"diagnosis {stated!r} is ")


def test_the_diagnosis_is_nothing_that_the_patient_tells(place, split):
    with pytest.raises(ClinicError, match="'dx' is the column of the diagnosis; what the patient tells is another"):
        load_source(place([ROW], MAPPING + "facts: [dx]\n"), split)


def test_chinese_cases_that_are_called_english_are_told(place, split):
    row = {"story": "咳嗽3天，伴发热39℃。无胸痛。", "dx": "肺炎"}
    cases, (rejected,) = load_source(place([row]), split)
    assert cases == []
    assert rejected.reason.startswith("its words are Chinese, but its language is en; say `language: zh`")
    mixed = {"story": "A man says 咳嗽. No fever.", "dx": "肺炎"}
    assert len(load_source(place([mixed]), split)[0]) == len(load_source(place([row], language="zh"), split)[0]) == 1


def test_chinese_cases_are_chinese(place, split):
    row = {"病历": "主诉：咳嗽3天\n现病史：伴咳黄痰，无发热、胸痛。\n查体：体温36.8℃。\n诊断：肺炎", "诊断": "肺炎"}
    (case,), rejected = load_source(place([row], "name: mine\nvignette: 病历\ndiagnosis: 诊断\n", language="zh"), split)
    assert rejected == []
    assert (case.language, case.self_report, case.diagnosis) == ("zh", "咳嗽3天", "肺炎")
    assert texts(case)[1:] == [
        ("现病史 (1)", True, "伴咳黄痰。"),
        ("现病史 (2)", False, "无发热。"),
        ("现病史 (3)", False, "无胸痛。"),
        ("查体", True, "体温36.8℃。"),
    ]


@pytest.mark.parametrize(("name", "key"), [("mtmeddialog_cases", "m.jsonl"), ("agentclinic", "a.jsonl")])
def test_recorded_sets_take_the_language_of_their_source(tmp_path, split, name, key):
    talk = {"case_id": "1", "self_report": "咳嗽", "diagnosis": "肺炎", "recommendation": "休息", "dialogue": [{"doctor": ["发热吗？"], "patient": ["没有"]}]}  # fmt: skip
    actor = {"Demographics": "男，40岁", "History": "咳嗽三天", "Symptoms": {"Primary_Symptom": "咳嗽"}}
    osce = {"case_id": "1", "group": "g", "correct_diagnosis": "肺炎", "OSCE_Examination": {"Patient_Actor": actor}}
    (tmp_path / key).write_text(json.dumps(talk if key == "m.jsonl" else osce) + "\n", encoding="utf-8")
    given = {"format": name, "path": str(tmp_path / key), "cases": 0, "licence": "x"}
    (case,), _ = load_source(CaseSource.model_validate({**given, "language": "zh"}), split)
    assert case.language == "zh"
    (case,), _ = load_source(CaseSource.model_validate(given), split)
    assert case.language == "en"


@pytest.mark.parametrize(
    ("text", "present"),
    [
        ("She denies fever.", False),
        ("No history of asthma.", False),
        ("Without rash.", False),
        ("The test was negative for strep.", False),
        ("He doesn't smoke.", False),
        ("He has no relief with rest.", True),
        ("She has not been able to sleep.", True),
        ("Pain is not only at night.", True),
        ("He has no appetite.", True),
        ("The rash has not been improving.", True),
        ("Triple-negative tumour on biopsy.", True),
        ("Nobody else is ill; knowledge is normal.", True),
        ("No fever or chills", False),
        ("Denies fever, chills", False),
        ("Denies tobacco, alcohol, and drug use.", False),
        ("Denies fever, weight loss of more than 5 kg, or night sweats", False),
        ("He has no cough and no fever", False),
        ("He does not smoke, drink alcohol or use drugs", False),
        ("No. It began on Sunday.", False),
        ("A bit sick, but I haven't thrown up.", True),
        ("Headache, although I never vomited.", True),
        ("None", False),
        ("Urine and blood cultures were negative", False),
        ("Heart, lungs and abdomen were unremarkable.", False),
        ("CT head without contrast showed no bleeding", False),
        ("When asked to cough, there is no bulge.", False),
        ("On physical examination, there is no nuchal rigidity.", False),
        ("However, she does not recall any bites.", False),
        ("Stool is negative for blood, pus, and ova.", False),
        ("At discharge, he had no chest pain or dyspnea.", False),
        ("He does not take any medications.", False),
        ("I do not take anything.", False),
        ("She has not taken her insulin for a week.", True),
        ("At rest, chest pain, no dyspnea.", True),
        ("Blood cultures were negative and urine grew E. coli.", True),
        ("ANA negative, anti-CCP positive.", True),
        ("fever, cough, no chills", True),
        ("Cough but no fever", True),
        ("No fever but a rash", True),
        ("Swelling without redness", True),
        ("No fever, no relief with rest", True),
        ("Yes, 39 since Monday, no cough.", True),
        ("Yes. No appetite.", True),
        ("I never fell but I twisted it while skiing.", True),
        ("I don't have a fever.", False),
        ("I haven’t had any cough.", False),
        ("There weren't any rashes.", False),
        ("I don't feel well.", True),
        ("He hasn't eaten since Tuesday.", True),
        ("It isn't getting better.", True),
        ("I don't know.", True),
        ("Nope.", False),
        ("NKDA", False),
        ("Troponin neg.", False),
        ("Headache w/o fever", False),
        ("I'm not on any medicines.", False),
        ("I am not pregnant.", False),
        ("He's not vomiting.", False),
        ("It's not getting better.", True),
        ("I'm not sure.", True),
        ("Paracetamol doesn't help.", True),
        ("It is not known whether he has gallstones.", True),
        ("He has never been well.", True),
        ("He is without fever.", False),
        ("Afebrile.", False),
        ("She is a non-smoker.", False),
        ("Nobody in the family has liver disease.", False),
        ("Cancer was ruled out.", False),
        ("No current medications other than vitamin D.", True),
        ("She has no past medical history apart from hypertension.", True),
        ("Fever (-), chills (-)", False),
        ("Fever (-), chills (-), cough (+)", True),
        ("Hmm, no", False),
        ("Nah", False),
        ("Uh-uh", False),
        ("Well nourished, no fever", True),
        ("Mother: asthma, father: none", True),
        ("Ears: no discharge, throat: red", True),
        ("PE: heart, lungs, abdomen unremarkable", False),
        ("In the abdomen, no masses.", False),
        ("Recently, no fever.", False),
        ("Recently returned from Ghana, took no prophylaxis.", True),
        ("Now short of breath, no fever.", True),
        ("His urgency has settled completely since May.", False),
        ("The rash has settled on the legs.", True),
        ("Nausea is no longer a problem.", False),
        ("She is no longer able to walk.", True),
        ("Cramps not an issue.", False),
        ("CT excluded a bleed.", False),
        ("Infection has not been ruled out.", True),
        ("No change in weight.", False),
        ("No change with antacids.", True),
        ("Effusion was absent, as was lymphadenopathy.", False),
        ("Apart from freckles, the rest of her skin is without lesions.", True),
        ("UDS neg for amphetamines and cocaine.", False),
        ("Stridor when he cries but not at rest.", True),
        ("Not at all.", False),
        ("Sore throat (no rash) for days.", True),
        ("Rash (none)", False),
        ("The mother notes her daughter's lack of words and perceives her as shy.", True),
    ],
)
def test_denials_are_heard(text, present):
    assert is_present(text, "en") is present


@pytest.mark.parametrize(
    ("text", "present"),
    [
        ("无发热", False),
        ("否认腹痛", False),
        ("没有，昨天开始的。", False),
        ("未发热，未呕吐。", False),
        ("不发烧，不咳嗽。", False),
        ("没發燒", False),
        ("无尿频、尿急", False),
        ("心、肺、腹未见异常", False),
        ("入院后，无发热", False),
        ("四肢无力", True),
        ("休息后无缓解", True),
        ("无痛性血尿", True),
        ("没吃药", True),
        ("咳不出来", True),
        ("有，39度，不咳", True),
        ("咳嗽但不发烧", True),
        ("发热、咳嗽，无寒战", True),
        ("不抽烟，喝点红酒。", True),
        ("HBsAg阴性，HCV抗体阳性", True),
        ("双下肢水肿（-）", False),
        ("(-)", False),
        ("压痛（-），Murphy征（+）", True),
        ("咳嗽无痰", True),
        ("无痰", False),
        ("没", False),
        ("不", False),
        ("嗯，没有", False),
        ("嗯", True),
        ("未再发热", False),
        ("未再服药", True),
        ("呕吐已止", False),
        ("胸闷无", False),
        ("胸闷有", True),
        ("胸闷没有", False),
        ("患者无诱因出现腹痛", True),
        ("双侧瞳孔对光反射均消失", True),
    ],
)
def test_chinese_denials_are_heard(text, present):
    assert is_present(text, "zh") is present


def test_a_list_of_denials_is_parted_where_each_part_stands_alone():
    text = "A man comes. He denies cough, chest pain, or fever. There is no urinary or fecal incontinence.He denies pain but has a rash. He tried aspirin without any relief. The skin is warm without redness."
    assert [s.text for s in statements_of(text, "en")][1:] == [
        "He denies cough.",
        "He denies chest pain.",
        "He denies fever.",
        "There is no urinary or fecal incontinence.",
        "He denies pain.",
        "Has a rash.",
        "He tried aspirin without any relief.",
        "The skin is warm.",
        "Without redness.",
    ]


@pytest.mark.parametrize(
    ("text", "language", "want"),
    [
        ("Denies fever; cough; vomiting.", "en", ["-Denies fever.", "-Denies cough.", "-Denies vomiting."]),
        ("Denies chest pain; smoker; 20 pack years.", "en", ["-Denies chest pain.", "+Smoker.", "+20 pack years."]),
        ("No fever; has a cough; a rash.", "en", ["-No fever.", "+Has a cough.", "+A rash."]),
        ("Pertinent negatives: fever, cough. Smokes.", "en", ["-No fever.", "-No cough.", "+Smokes."]),
        ("Well. Relevant negatives include fever or rash.", "en", ["+Well.", "-No fever.", "-No rash."]),
        ("Neg for: haemoptysis, weight loss.", "en", ["-No haemoptysis.", "-No weight loss."]),
        ("Pertinent negatives:\n- fever\n- rash\nSmokes.", "en", ["-No fever.", "-No rash.", "+Smokes."]),
        ("Negatives:\n\n- No fever\n\n- rash\n+ cough\n", "en", ["-No fever.", "-No rash.", "++ cough."]),
        ("ROS: negative: fever, rash", "en", ["-No fever.", "-No rash."]),
        ("阴性症状：发热、胸痛。吸烟。", "zh", ["-无发热。", "-无胸痛。", "+吸烟。"]),
    ],
)
def test_lists_of_what_is_not_there_are_denials(text, language, want):
    first = {"en": "A man comes.\n", "zh": "患者来诊。\n"}[language]
    found = list(statements_of(first + text, language))[1:]
    assert [f"{'-+'[s.present]}{s.text}" for s in found] == want


@pytest.mark.parametrize(
    ("column", "cell", "want"),
    [
        ("pertinent_negatives", "fever, cough", ["-No fever.", "-No cough."]),
        ("Negatives", "No fever", ["-No fever."]),
        ("negative_tests_done", "fever", ["+Fever."]),
        ("阴性症状", "发热、咳嗽", ["-无发热。", "-无咳嗽。"]),
    ],
)
def test_a_column_of_negatives_holds_denials(place, split, column, cell, want):
    language = "zh" if column == "阴性症状" else "en"
    row = {"opening": {"zh": "嗓子疼", "en": "My throat hurts."}[language], column: cell, "dx": "Pharyngitis"}
    mapping = f"name: mine\nopening: opening\ndiagnosis: dx\nfacts: [{column}]\n"
    (case,), _ = load_source(place([row], mapping, language=language), split)
    assert [f"{'-+'[fact.present]}{fact.text}" for fact in case.facts] == want
    assert all(fact.topic.startswith(column) for fact in case.facts)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("Fever: no. Cough: yes.", [("History of present illness", False, "Fever: no."), ("Presentation", True, "Cough: yes.")]),
        ("Rash - No\nCough - Yes, dry", [("History of present illness", False, "Rash - No."), ("Presentation", True, "Cough - Yes, dry")]),
        ("Symptoms: fever, cough.\nAbsent: rash, pain.", [("Presentation", True, "fever, cough."), ("History of present illness", False, "No rash."), ("History of present illness", False, "No pain.")]),
        ("A sore toe.\nPositive: fever.\nNegative: rash.", [("Presentation", True, "A sore toe."), ("History of present illness", True, "Fever."), ("History of present illness", False, "No rash.")]),
        ("No fever.", [("Presentation", False, "No fever.")]),
    ],
)  # fmt: skip
def test_a_case_opens_with_what_is_there_and_a_thing_with_its_answer_is_no_section(text, want):
    assert [(s.topic, s.present, s.text) for s in statements_of(text, "en")] == want
    assert opening_of(text, "en") == next(text for topic, _, text in want if topic == "Presentation")


@pytest.mark.parametrize(
    ("text", "language", "opening", "rest"),
    [
        ("Burning pain for days; worse at night; no melena.", "en", "Burning pain for days", ["+Worse at night.", "-No melena."]),
        ("Cough for a week, no fever", "en", "Cough for a week", ["-No fever."]),
        ("Woman, 45. Hot flushes (no), weight gain (yes), hair loss (no).", "en", "Weight gain (yes).", ["+Woman, 45.", "-Hot flushes (no).", "-Hair loss (no)."]),
        ("Reports: 1) loss of vision 2) no pain 3) floaters", "en", "loss of vision", ["-No pain.", "+Floaters."]),
        ("28-year-old woman. Sore throat. Pain: sharp. Onset: sudden.", "en", "Sore throat.", ["+28-year-old woman.", "+Pain: sharp.", "+Onset: sudden."]),
        ("Pain: sharp. Onset: sudden. Meds: none.", "en", "Pain: sharp.", ["+Onset: sudden.", "-Meds: none."]),
        ("患者男，45岁。腹痛2天。无发热。", "zh", "腹痛2天。", ["+患者男，45岁。", "-无发热。"]),
        ("1、咽痛2天 2、无发热 3、饮食可", "zh", "咽痛2天", ["-无发热。", "+饮食可。"]),
        ("Spinning for weeks with nausea, no diplopia. Walks well.", "en", "Spinning for weeks with nausea", ["-No diplopia.", "+Walks well."]),
        ("A man with no past illness has a cough. Smokes.", "en", "A man with no past illness has a cough.", ["+Smokes."]),
        ("无发热，无胸闷，鼻塞、流涕3天，咽干。", "zh", "鼻塞、流涕3天，咽干。", ["-无发热。", "-无胸闷。"]),
        ("咳嗽有，发热无，咽痛有。", "zh", "咳嗽有。", ["-发热无。", "+咽痛有。"]),
    ],
)  # fmt: skip
def test_an_opening_leaves_something_to_ask(text, language, opening, rest):
    told = list(statements_of(text, language))
    assert opening_of(text, language) == opening
    assert [f"{'-+'[s.present]}{s.text}" for s in told if s.text != opening] == rest
    assert [s.text for s in told if s.topic in ("Presentation", "主诉")] == [opening]
    assert not {s.topic for s in told} & {"Pain", "Onset"}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("HBsAg negative, anti-HAV IgM reactive.", ["-HBsAg negative.", "+Anti-HAV IgM reactive."]),
        ("ANA, CCP negative, RF positive.", ["-ANA, CCP negative.", "+RF positive."]),
        ("Brisk reflexes, clonus nil.", ["+Brisk reflexes.", "-Clonus nil."]),
        ("Mouth moist, eyes not sunken.", ["+Mouth moist.", "-Eyes not sunken."]),
        (
            "Nauseated, not jaundiced, hasn't been vomiting.",
            ["+Nauseated.", "-Not jaundiced.", "-Hasn't been vomiting."],
        ),
        ("(-) malleolar tenderness, (+) ATFL tenderness.", ["-(-) malleolar tenderness.", "+(+) ATFL tenderness."]),
        ("Pos nausea, neg vomiting.", ["+Pos nausea.", "-Neg vomiting."]),
        ("+cough +rash -fever", ["++cough.", "++rash.", "--fever."]),
        ("Vertigo -ve. Tragal tenderness +ve.", ["-Vertigo negative.", "+Tragal tenderness positive."]),
        ("Vomiting=N | Fever=Y | Rash=N", ["-Vomiting: no.", "+Fever: yes.", "-Rash: no."]),
        ("[x] blisters [ ] fever", ["+Blisters: yes.", "-Fever: no."]),
        ("Wheezing - N\nSneezing - Y", ["-Wheezing: no.", "+Sneezing: yes."]),
        ("Bleeding? No. Cramps? Yes, mild.", ["-Bleeding: No.", "+Cramps: Yes, mild."]),
        ("Neg for fever, rash.", ["-Neg for fever.", "-Neg for rash."]),
        ("The spleen could not be felt.", ["-The spleen could not be felt."]),
        ("JVP was not raised and the lungs were clear.", ["-JVP was not raised.", "+The lungs were clear."]),
        ("Heart and lungs are clear.", ["+Heart and lungs are clear."]),
        ("Positive for Giardia and negative for Salmonella.", ["+Positive for Giardia.", "-Negative for Salmonella."]),
        ("The pain is not relieved by rest.", ["+The pain is not relieved by rest."]),
        ("No fever, eats well.", ["-No fever.", "+Eats well."]),
        ("No headache, husband noticed slurred speech.", ["-No headache.", "+Husband noticed slurred speech."]),
        ("No rash, appetite good.", ["-No rash.", "+Appetite good."]),
        ("CBD 4 mm (not dilated).", ["+CBD 4 mm (not dilated)."]),
        ("Not great. Thirsty.", ["+Not great.", "+Thirsty."]),
        ("He is not without nausea.", ["+He is not without nausea."]),
        (
            "Visit 2. AE review: nausea = yes (gr1), rash = no, fever = none.",
            ["+Visit 2.", "+AE review: nausea: yes (gr1).", "-Rash: no.", "-Fever: no."],
        ),
        ("☑ cough □ fever", ["+Cough: yes.", "-Fever: no."]),
        ("☑ cough □ fever. For 3 days.", ["+Cough: yes.", "-Fever: no.", "+For 3 days."]),
        ("The lesion was ■ 2 cm and □ nontender.", ["+The lesion was ■ 2 cm and □ nontender."]),
        ("Fever: □ yes ■ no. Rash: ■ yes □ no.", ["-Fever: no.", "+Rash: yes."]),
        ("□ cough\n□ rash", ["+Cough.", "+Rash."]),
        ("Skin intact, nil bruising.", ["+Skin intact.", "-Nil bruising."]),
        ("Nil smoking, social EtOH.", ["+Nil smoking, social EtOH."]),
        (
            "Weak without any fever, cough, or rash.",
            ["+Weak.", "-Without any fever.", "-Without any cough.", "-Without any rash."],
        ),
        ("Weak without any clear trigger.", ["+Weak without any clear trigger."]),
        ("Resolved: neck stiffness.", ["-No neck stiffness."]),
        ("Stridor when he cries, but not at rest.", ["+Stridor when he cries, but not at rest."]),
        ("Pale stools? Not noticed. Rash? Denies.", ["-Pale stools: Not noticed.", "-Rash: Denies."]),
    ],
)
def test_findings_results_and_answers_are_parted_and_heard(text, want):
    assert [f"{'-+'[s.present]}{s.text}" for s in statements_of(f"A man comes.\n{text}", "en")][1:] == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("查体：麦氏点压痛阳性，反跳痛阴性。", ["+麦氏点压痛阳性。", "-反跳痛阴性。"]),
        ("查体：轻度三凹征，双肺无啰音，口唇无发绀。", ["+轻度三凹征。", "-双肺无啰音。", "-口唇无发绀。"]),
        ("便血（否），高烧（是），家人无不适。", ["-便血（否）。", "+高烧（是）。", "-家人无不适。"]),
        ("血尿：否。尿痛：是。", ["-血尿：否。", "+尿痛：是。"]),
        ("无意识丧失。", ["-无意识丧失。"]),
        ("腹部未扪及包块。", ["-腹部未扪及包块。"]),
    ],
)
def test_chinese_findings_are_parted_and_heard(text, want):
    assert [f"{'-+'[s.present]}{s.text}" for s in statements_of(f"患者来诊。\n{text}", "zh")][1:] == want


def test_things_of_one_sentence_have_kinds_of_their_own():
    text = "A woman comes. She has no flank pain or vomiting, and she is sexually active. Denies tobacco, alcohol, or pills."
    assert [(s.topic, s.text) for s in statements_of(text, "en")][1:] == [
        ("History of present illness", "She has no flank pain."),
        ("History of present illness", "She has no vomiting."),
        ("Social history", "She is sexually active."),
        *(("Social history", f"Denies {habit}.") for habit in ("tobacco", "alcohol", "pills")),
    ]


def test_a_talk_may_stand_in_one_line(place, split):
    talk = "Doctor: What is it? Patient: My chest burns. Doctor: Do you smoke? Patient: No. Doctor: Since when? P: May."
    (case,), _ = load_source(place([{"story": talk, "dx": "Reflux"}]), split)
    assert texts(case) == [
        ("What is it?", True, "My chest burns."),
        ("Do you smoke?", False, "No."),
        ("Since when?", True, "May."),
    ]
    assert turns_of("医生：疼吗？ 患者：疼。 医生：发热吗？ 患者：没有。", "zh")[1]["patient"] == "没有。"
    assert turns_of("He saw a doctor: Dr. X. Patient: 45, male. Plan: rest.", "en") == []
    _, (rejected,) = load_source(place([{"story": "What is it? Since when?", "dx": "Reflux"}]), split)
    assert rejected.reason == (
        "nothing to begin with: column 'story' tells nothing of the patient beside questions and conclusions"
    )


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("Denies fever, chills, or cough.", ["-Denies fever.", "-Denies chills.", "-Denies cough."]),
        ("No fever, no chills.", ["-No fever.", "-No chills."]),
        ("He has no known allergies, takes warfarin daily.", ["-He has no known allergies.", "+Takes warfarin daily."]),
        ("He has no allergies and takes warfarin.", ["-He has no allergies.", "+Takes warfarin."]),
        ("Denies tobacco use, drinks alcohol socially.", ["-Denies tobacco use.", "+Drinks alcohol socially."]),
        ("He denies fever, reports chills.", ["-He denies fever.", "+Reports chills."]),
        ("No fever, BP 90/60, HR 120.", ["-No fever.", "+BP 90/60, HR 120."]),
        (
            "No murmurs, rubs or gallops, lungs clear, abdomen soft.",
            ["-No murmurs.", "-No rubs.", "-No gallops.", "+Lungs clear, abdomen soft."],
        ),
        ("No history of gout, does not smoke.", ["-No history of gout.", "-Does not smoke."]),
        ("No fever, chills, has no cough, rash.", ["-No fever.", "-No chills.", "-Has no cough.", "-Has no rash."]),
        ("He denied any trauma, though he fell last week.", ["-He denied any trauma.", "+He fell last week."]),
        ("No fever, yet he has chills.", ["-No fever.", "+He has chills."]),
        ("No family history of gout or asthma.", ["-No family history of gout.", "-No family history of asthma."]),
        ("Denies any history of gout or asthma.", ["-Denies any history of gout.", "-Denies any history of asthma."]),
        ("No fever or chills, only mild cough.", ["-No fever.", "-No chills.", "+Only mild cough."]),
        ("It feels as though he had no fever.", ["-It feels as though he had no fever."]),
        ("No relief with acetaminophen, heat, or massage.", ["+No relief with acetaminophen, heat, or massage."]),
        ("He sleeps but has not slept well.", ["+He sleeps.", "+Has not slept well."]),
        ("No appetite, nausea, and fatigue.", ["+No appetite, nausea, and fatigue."]),
        ("Wheezes on both sides, no crackles.", ["+Wheezes on both sides.", "-No crackles."]),
        ("In the abdomen, no masses.", ["-In the abdomen, no masses."]),
        ("Tired, no appetite.", ["+Tired, no appetite."]),
        ("No fever; productive cough.", ["-No fever.", "+Productive cough."]),
        ("Denies fever; reports cough.", ["-Denies fever.", "+Reports cough."]),
        ("No fever; lungs clear.", ["-No fever.", "+Lungs clear."]),
        ("He has fever; cough.", ["+He has fever.", "+Cough."]),
        ("X-ray unremarkable except for effusion.", ["+X-ray unremarkable except for effusion."]),
        ("Without treatment the rash spreads.", ["+Without treatment the rash spreads."]),
        ("No matter what he does it itches.", ["+No matter what he does it itches."]),
        ("He was ruled out for MI.", ["-He was ruled out for MI."]),
        ("Temperature is 37.1 C. Crackles at the base.", ["+Temperature is 37.1 C.", "+Crackles at the base."]),
        ("He has pain, no matter what he does.", ["+He has pain, no matter what he does."]),
        ("He is without fever.", ["-He is without fever."]),
        ("Denies bladder or bowel symptoms.", ["-Denies bladder or bowel symptoms."]),
        ("No chest or back pain.", ["-No chest or back pain."]),
        ("No known food or drug allergies.", ["-No known food or drug allergies."]),
        ("No past medical or surgical history.", ["-No past medical or surgical history."]),
        ("No focal motor, sensory, or visual deficits.", ["-No focal motor, sensory, or visual deficits."]),
        ("No weight or appetite changes.", ["-No weight or appetite changes."]),
        ("No cold or fever, nausea, can't eat.", ["-No cold.", "-No fever.", "-No nausea.", "+Can't eat."]),
        ("No fever, mild cough or severe headache.", ["-No fever.", "-No mild cough.", "-No severe headache."]),
        ("No nausea or vomiting, rash.", ["-No nausea.", "-No vomiting.", "-No rash."]),
        ("Soft, without guarding, rebound.", ["+Soft.", "-Without guarding.", "-Without rebound."]),
        ("Breath sounds have disappeared.", ["+Breath sounds have disappeared."]),
        ("Pain has resolved then returned.", ["+Pain has resolved then returned."]),
        ("No fever (male, 25 years old).", ["-No fever (male, 25 years old)."]),
        ("No chest pain or cough.", ["-No chest pain.", "-No cough."]),
        ("His mother denies fever or diarrhea.", ["-His mother denies fever.", "-His mother denies diarrhea."]),
        ("Fever (-), chills (-), cough (+).", ["-Fever (-).", "-Chills (-).", "+Cough (+)."]),
        ("GI: +nausea, -vomiting.", ["++nausea.", "--vomiting."]),
        ("Orthopnoea +, ankle swelling ++, chest pain -.", ["+Orthopnoea +.", "+Ankle swelling ++.", "-Chest pain -."]),
        ("Na+, K+ and Cl- were normal.", ["+Na+, K+ and Cl- were normal."]),
        (
            "CT head without contrast shows subdural hematoma.",
            ["+CT head without contrast shows subdural hematoma."],
        ),
    ],
)
def test_a_denial_reaches_no_further_than_its_list(text, want):
    found = list(statements_of(f"A man comes. {text}", "en"))[1:]
    assert ["-+"[s.present] + s.text for s in found] == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("无咳嗽、咳痰、发热。", ["-无咳嗽。", "-无咳痰。", "-无发热。"]),
        ("無咳嗽、發熱。", ["-無咳嗽。", "-無發熱。"]),
        ("无发热，伴咳嗽。", ["-无发热。", "+伴咳嗽。"]),
        ("无咳嗽，腰痛3天。", ["-无咳嗽。", "+腰痛3天。"]),
        ("无明显诱因出现咳嗽、咳痰、发热。", ["+无明显诱因出现咳嗽、咳痰、发热。"]),
        ("患者昨日，无明显诱因出现咳嗽。", ["+患者昨日，无明显诱因出现咳嗽。"]),
        ("无痛性肉眼血尿、腰痛1月。", ["+无痛性肉眼血尿、腰痛1月。"]),
        ("无力、头晕、恶心。", ["+无力、头晕、恶心。"]),
        ("未发热，未呕吐。", ["-未发热，未呕吐。"]),
        ("无药物过敏史，对虾过敏。", ["-无药物过敏史。", "+对虾过敏。"]),
        ("否认对青霉素、对头孢过敏。", ["-否认对青霉素。", "-否认对头孢过敏。"]),
        ("无高血压、糖尿病家族史。", ["-无高血压、糖尿病家族史。"]),
        ("没有发烧，就是咳嗽。", ["-没有发烧。", "+就是咳嗽。"]),
        ("没有咳嗽，也不流鼻涕。", ["-没有咳嗽。", "-也不流鼻涕。"]),
        ("月经规律，量中，无痛经。", ["+月经规律，量中。", "-无痛经。"]),
        ("可闻及湿啰音，未闻及哮鸣音。", ["+可闻及湿啰音。", "-未闻及哮鸣音。"]),
        ("发热：□有 ☑无；咳嗽：☑有 □无。", ["-发热：无。", "+咳嗽：有。"]),
        ("无肢体无力、偏瘫、失语。", ["-无肢体无力。", "-无偏瘫。", "-无失语。"]),
        ("无胸闷，夜间阵发性呼吸困难，下肢水肿。", ["-无胸闷。", "-无夜间阵发性呼吸困难。", "-无下肢水肿。"]),
        ("不伴胸痛，咯血。", ["-不伴胸痛。", "-不伴咯血。"]),
        ("口服【阿莫西林】后皮疹。", ["+口服【阿莫西林】后皮疹。"]),
        ("无尿急，大便溏薄，不发热。", ["-无尿急。", "+大便溏薄。", "-不发热。"]),
        ("不发烧，不咳嗽，哭的时候有眼泪。", ["-不发烧。", "-不咳嗽。", "+哭的时候有眼泪。"]),
        ("无见红，双下肢轻度浮肿，皮肤不痒。", ["-无见红。", "+双下肢轻度浮肿。", "-皮肤不痒。"]),
        ("☑咳嗽 □胸痛", ["+咳嗽: 有。", "-胸痛: 无。"]),
    ],
)
def test_a_chinese_denial_reaches_no_further_than_its_list(text, want):
    found = list(statements_of(f"患者来诊。{text}", "zh"))[1:]
    assert ["-+"[s.present] + s.text for s in found] == want


def test_sections_keep_their_headings_and_verdicts_stay_out():
    text = "CC: sore knee\nHPI: Swollen but not red.\nLabs:\nCRP: 80\nAssessment: Gout. Give colchicine.\nPMH: none\nWhat is the diagnosis?"
    assert list(statements_of(text, "en")) == [
        Statement("Presentation", True, "sore knee"),
        Statement("HPI", True, "Swollen."),
        Statement("HPI", False, "Not red."),
        Statement("Labs", True, "CRP: 80."),
        Statement("PMH", False, "None."),
    ]


def test_a_section_may_begin_within_a_line_and_before_a_number():
    text = (
        "CC: sore knee. HPI: 54M, swollen. PMH: HTN. ROS: no fever, chills. PE: warm knee. Plan: rest. Imaging: knee.\n"
        "Meds: 2 pills a day"
    )
    assert list(statements_of(text, "en")) == [
        Statement("Presentation", True, "sore knee."),
        Statement("HPI", True, "HPI: 54M, swollen."),
        Statement("PMH", True, "PMH: HTN."),
        Statement("ROS", False, "ROS: no fever."),
        Statement("ROS", False, "ROS: no chills."),
        Statement("PE", True, "PE: warm knee."),
        Statement("Meds", True, "Meds: 2 pills a day."),
    ]
    told = statements_of("主诉：咳嗽5天。现病史：5天前咳嗽，无胸痛。既往史：否认哮喘、肺炎。初步诊断：肺炎。", "zh")
    assert [("-+"[s.present] + s.topic, s.text) for s in told] == [
        ("+主诉", "咳嗽5天。"),
        ("+现病史", "现病史：5天前咳嗽。"),
        ("-现病史", "无胸痛。"),
        ("-既往史", "既往史：否认哮喘。"),
        ("-既往史", "既往史：否认肺炎。"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "CHIEF COMPLAINT\nSore toe\nPAST MEDICAL HISTORY\nAsthma.\nASSESSMENT AND PLAN\nGout likely. Colchicine.",
        "**Chief complaint:** Sore toe\n\n**Past medical history:** Asthma\n\n**Diagnosis:** Gout",
        "## Chief complaint\nSore toe\n## Past medical history\n- Asthma\n## Plan\n- Colchicine",
        "Chief complaint - Sore toe\nPast medical history - Asthma\nImp - gout\nMx - colchicine",
        "Chief complaint: Sore toe\nPast medical history: Asthma\nDDx: gout\nTx: colchicine",
    ],
)
def test_a_heading_may_be_a_line_or_have_a_dash(text):
    told = [(s.topic.lower(), s.text.strip(".")) for s in statements_of(text, "en")]
    assert told == [("presentation", "Sore toe"), ("past medical history", "Asthma")]


def test_a_line_of_two_letters_is_no_heading():
    told = list(statements_of("CC: sore leg\nPMH:\nDVT\nPE", "en"))
    assert [(s.topic, s.text) for s in told[1:]] == [("PMH", "DVT."), ("PMH", "PE.")]


def test_a_doctor_by_occupation_concludes_nothing():
    told = [s.text for s in statements_of("CC: sore toe\nJob:\nDoctor\nNo fever.\nPhysician: Gout.", "en")]
    assert told == ["sore toe", "Doctor.", "No fever."]


def test_a_note_in_s_o_a_and_p_keeps_what_was_concluded_to_itself():
    text = "S: 54M, sore toe. No fever.\nO: Toe red.\nA: Gout\nP: Colchicine"
    want = ["54M, sore toe.", "No fever.", "Toe red."]
    assert [s.text for s in statements_of(text, "en")] == want
    assert [s.text for s in statements_of(text.replace(".\n", ". ").replace("\n", ". "), "en")] == want
    assert [s.text for s in statements_of("Blood group\nA: known", "en")][1:] == ["A: known."]


def test_what_introduces_words_is_no_heading():
    told = list(statements_of("Mum says: “He barks.” Cough at night. His vaccines are up to date.", "en"))
    assert told[0].text == "Mum says: “He barks.”"
    assert [s.topic for s in told[1:]] == ["History of present illness", "Past medical history"]
    assert opening_of("“It’s a shock,” says a woman. It hurts.", "en") == "“It’s a shock,” says a woman."


def test_quotes_and_breaks_around_a_diagnosis_are_none_of_it(place, split):
    (case,), _ = load_source(place([{**ROW, "dx": ' "Ludwig\n angina\n"'}]), split)
    assert (case.diagnosis, case.diagnosis_id) == ("Ludwig angina", "ludwig_angina")


def test_remains_of_html_are_no_words(place, split):
    story = "<p>A man has <b>pain</b>.</p><ul><li>No fever</li></ul>Temp &gt; 38&deg;C&nbsp;today. WBC 9 x 10<sup>9</sup>/L. TSH <0.1, T4 >30."
    (case,), _ = load_source(place([{"story": story, "dx": "<b>Crohn&#39;s disease</b>"}]), split)
    assert case.diagnosis == "Crohn's disease"
    assert text_of("<table><tr><td>Na</td><td>134</td></tr></table>") == "Na 134"
    assert [fact.text for fact in case.facts] == [
        "A man has pain.",
        "No fever.",
        "Temp > 38°C today.",
        "WBC 9 x 10^9/L.",
        "TSH <0.1, T4 >30.",
    ]


TALK = "Doctor: What is it?\nPatient: My chest burns. Since May.\nDr: Do you smoke?\nPatient: No.\nand never did\nDoctor: This is reflux."


def test_a_talk_written_in_lines_is_a_recorded_one(place, split):
    assert turns_of(TALK, "en") == [
        {"doctor": "What is it?", "patient": "My chest burns. Since May."},
        {"doctor": "Do you smoke?", "patient": "No. and never did"},
        {"doctor": "This is reflux."},
    ]
    assert turns_of("Doctor: Rest.\nPatient: Yes.", "en") == turns_of("A man has pain.\nDoctor: x", "en") == []
    assert turns_of("医生：疼吗？\n患者：疼。\n医生：发热吗？\n患者：没有。", "zh")[1] == {
        "doctor": "发热吗？",
        "patient": "没有。",
    }
    (case,), _ = load_source(place([{"story": TALK, "dx": "Reflux"}]), split)
    assert case.self_report == "My chest burns."
    assert texts(case) == [
        ("What is it?", True, "My chest burns. Since May."),
        ("Do you smoke?", False, "No. and never did"),
    ]
    (other,), _ = load_source(place([{**ROW, "talk": TALK}], MAPPING + "dialogue: talk\n"), split)
    assert texts(other)[-2:] == texts(case)


@pytest.mark.parametrize(
    ("note", "foreign"),
    [
        ("Patientin, 30 J., Bauchschmerzen rechts unten. Kein Fieber, keine Übelkeit.", True),
        ("Fièvre absente. Pas fièvre.", True),
        ("Sin fiebre. Dolor abdominal.", True),
        ("CC: cough x3d, T 39, seen in Des Moines", False),
        ("65M c/o SOB x3d. Hx HTN, mit valve replacement 2015.", False),
        ("De Quervain tenosynovitis, left wrist", False),
    ],
)
def test_short_notes_of_other_languages_are_known_by_one_word(note, foreign):
    assert is_foreign(note, "en") == foreign


def test_an_age_ends_no_sentence():
    assert (
        opening_of("Pt is a 54 y.o. M w/ PMHx of HTN presents w/ CP. Denies fever.", "en")
        == "Pt is a 54 y.o. M w/ PMHx of HTN presents w/ CP."
    )

    assert opening_of("Pt is 54 y.o. Denies fever.", "en") == "Pt is 54 y.o."


@pytest.mark.parametrize("head", ["\n\n", "sep=;\n", '"sep=;"\r\n\r\n'])
def test_what_stands_above_a_header_is_passed_over(place, split, head):
    (case,), rejected = load_source(place(f"{head}story;dx\n{STORY};Gout\n".encode(), name="cases.csv"), split)
    assert (case.diagnosis, rejected) == ("Gout", [])


def test_a_bar_parts_columns_too(place, split):
    (case,), _ = load_source(place(f"story|dx\n{STORY}|Gout\n".encode(), name="cases.csv"), split)
    assert case.diagnosis == "Gout"


def test_cases_in_other_languages_are_told(place, split):
    story = "Ein Mann kommt mit Schmerzen. Er hat kein Fieber, und die Haut ist rot."
    cases, (rejected,) = load_source(place([{"story": story, "dx": "Gicht"}]), split)
    assert cases == []
    assert rejected.reason.startswith("its words are neither English nor Chinese")
    assert not is_foreign("de Quervain, mit der Hand. The hand is sore, and he has no fever.", "en")
    assert not is_foreign("54M, HTN, sore toe", "en")


def test_a_sheet_under_a_title_is_told(place, split):
    with pytest.raises(
        ClinicError, match=r"has no column 'dx' \(it has: My ward\); its first row must name the columns"
    ):
        load_source(place(b"My ward,,\nid,story,dx\n1,It hurts. Badly.,Gout\n", name="cases.csv"), split)


def test_marks_of_a_list_are_no_words():
    text = "1. A sore knee\n2) No fever\n- Family history:\n* Mother: gout\n• 1.5 mg of colchicine\n-5 mmHg"
    assert [s.text for s in statements_of(text, "en")] == [
        "A sore knee",
        "No fever.",
        "Mother: gout.",
        "1.5 mg of colchicine.",
        "-5 mmHg.",
    ]
    assert [s.text for s in statements_of("1、咳嗽\n2、无发热", "zh")] == ["咳嗽", "无发热。"]


def test_a_heading_in_a_cell_is_told():
    assert [s.text for s in statements_of("Mother: gout. Father: well.\nBrother: none", "en", "Family")] == [
        "Mother: gout.",
        "Father: well.",
        "Brother: none.",
    ]
    assert list(statements_of("Penicillin: rash", "en", "Allergies")) == [
        Statement("Allergies", True, "Penicillin: rash.")
    ]


@pytest.mark.parametrize(
    ("language", "opening", "heading", "told"),
    [
        *(("en", "A man comes. It hurts.", heading, False) for heading in ("Diagnosis", "Discharge diagnosis", "Assessment and Plan", "Assessment/Plan", "A/P", "Differential diagnosis", "Treatment plan", "Impression & Recommendations", "Final answer")),
        *(("en", "A man comes. It hurts.", heading, True) for heading in ("Past diagnoses", "Previous treatment", "Pain assessment", "Allergies")),
        *(("zh", "患者来诊。疼痛。", heading, False) for heading in ("诊断", "入院诊断", "鉴别诊断", "诊疗计划", "处理意见")),
        *(("zh", "患者来诊。疼痛。", heading, True) for heading in ("既往诊断", "过敏史")),
    ],
)  # fmt: skip
def test_what_a_doctor_concluded_is_not_told(language, opening, heading, told):
    words, colon = ("acute thrombosis", ": ") if language == "en" else ("急性血栓", "：")
    for text in (f"{opening}\n{heading}{colon}{words}", f"{opening}\n{heading}{colon.strip()}\n{words}"):
        assert any(words in s.text.lower() for s in statements_of(text, language)) is told
    if not told:
        for text in (f"{opening} {heading}{colon}{words}", f"{opening} {heading}{colon}1. {words}. Give rest."):
            assert len(list(statements_of(text, language))) == 2


def test_a_verdict_within_a_line_ends_at_the_next_heading():
    text = "HPI: Knee pain. Worse at night. Assessment: gout likely. Plan: colchicine.\nPMH: asthma. He has a plan: to rest."
    assert [s.text for s in statements_of(text, "en")] == [
        "Knee pain.",
        "Worse at night.",
        "Asthma.",
        "He has a plan: to rest.",
    ]


def test_sentences_are_told_apart_by_kind():
    text = (
        "A man comes with pain. His mother has gout. He is allergic to penicillin. He drinks wine. His pulse is 80. The knee is red. "
        "Laboratory studies show a urate of 9 mg/dL. It was 7 before. He feels tired. Surgery was done 3 years ago."
    )
    told = "Na 134, K 3.1. T 38.2. Urine dipstick: protein. Born at 38 weeks. Neither parent had gout. The skin is pale. My legs ache."
    assert [s.topic for s in statements_of(f"A man comes. {told}", "en")][1:] == [
        "Test results",
        "Vital signs",
        "Test results",
        "Past medical history",
        "Family history",
        "Physical examination",
        "History of present illness",
    ]
    assert [s.topic for s in statements_of("患者来诊。血气分析：pH 7.3。尿HCG阳性。", "zh")][1:] == [
        "化验检查",
        "化验检查",
    ]
    assert [s.topic for s in statements_of("A man comes. BP 90/60, HR 100. SpO2 94%. NKDA.", "en")] == [
        "Presentation",
        "Vital signs",
        "Vital signs",
        "Allergies",
    ]
    assert [s.topic for s in statements_of(text, "en")] == [
        "Presentation",
        "Family history",
        "Allergies",
        "Social history",
        "Vital signs",
        "Physical examination",
        "Test results",
        "Test results",
        "History of present illness",
        "Past medical history",
    ]


def test_a_long_first_sentence_is_cut():
    assert len(opening_of("A man " + "comes and " * 60 + "goes. It hurts.", "en").split()) == 60
    assert opening_of("Dr. Smith sees a man at 3 a.m. with pain. It hurts.", "en").endswith("with pain.")
    assert len(opening_of("咳" * 300 + "。", "zh")) == 120


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a man has a sore knee. no fever. he denies cough. he smokes. pt. is well. resp. rate is 18.", ["No fever.", "He denies cough.", "He smokes.", "Pt. is well.", "Resp. rate is 18."]),
        ("a man has a sore knee. temp. 38.2, bp approx. 120/80. no rash.", ["Temp. 38.2, bp approx. 120/80.", "No rash."]),
        ("A man has a sore knee. Weight loss of approx. 5 kg. Pt. James smokes.", ["Weight loss of approx. 5 kg.", "Pt. James smokes."]),
        ("A man comes. He has hepatitis B. He denies fever.", ["He has hepatitis B.", "He denies fever."]),
        ("A man comes. CRP 9 mg/L. No fever. T 38.2 °C. RR 20.", ["CRP 9 mg/L.", "No fever.", "T 38.2 °C.", "RR 20."]),
        ("A man comes. Seen by J. Smith. It hurts… He rests.", ["Seen by J. Smith.", "It hurts…", "He rests."]),
        ("A man has a sore knee. It began in the a.m. hours or so. see above.", ["It began in the a.m. hours or so. see above."]),
    ],
)  # fmt: skip
def test_sentences_without_capitals_end_too_and_abbreviations_end_none(text, want):
    assert [s.text for s in statements_of(text, "en")][1:] == want


def rejections():
    empty = [Rejected("/x/cases.csv", line, "no diagnosis: column 'dx' is empty") for line in range(2, 9)]
    return [*empty, Rejected("/x/cases.csv", 12, "case id '7' is used twice, first in line 3"), Rejected("/x/cases.csv", 13, "case id '8' is used twice, first in line 4")]  # fmt: skip


def test_rejections_are_told_by_reason():
    assert [(len(found), reason) for reason, found in by_reason(rejections())] == [
        (7, "no diagnosis: column 'dx' is empty"),
        (2, "case id '7' is used twice, first in line 3"),
    ]
    assert told("/x/cases.csv", rejections(), 50) == [
        "cases.csv: 9 of 50 records are no cases",
        "  7 x no diagnosis: column 'dx' is empty (lines 2, 3, 4, 5, 6, ...)",
        "  2 x case id '7' is used twice, first in line 3 (lines 12, 13)",
    ]
    assert told("/x/cases.csv", [], 50) == []


def test_what_has_no_line_is_told_without_one():
    found = [Rejected("mine", 0, f"case 'm{n}' is a near-duplicate of 'm0'") for n in (1, 2)]
    assert told("near-duplicates", found, 9)[1:] == ["  2 x case 'm1', 'm2' is a near-duplicate of 'm0'"]
    codes = [Rejected("x.csv", n, f"diagnosis 'J{n}' is a code, no name") for n in range(8)]
    assert told("x.csv", codes, 9)[1].startswith("  8 x diagnosis 'J0', 'J1', 'J2', 'J3', 'J4', ... is a code, no name")
    odd = [Rejected("x.csv", n, f"byte 0x{n}e is no UTF-8; save the file as UTF-8") for n in (9, 8)]
    assert told("x.csv", odd, 9)[1].startswith("  2 x byte 0x9e, 0x8e is no UTF-8")


def test_too_many_rejections_stop_the_stage():
    refuse_too_many("/x/cases.csv", rejections(), 90, 0.1)
    with pytest.raises(
        ClinicError, match=r"cases\.csv: 9 of 89 records are no cases, more than .*= 0\.1; .*\(7\): no diagnosis"
    ) as caught:
        refuse_too_many("/x/cases.csv", rejections(), 89, 0.1)
    assert "\n" not in str(caught.value)
    refuse_too_many("/x/cases.csv", [], 0, 0.0)


def test_the_tables_of_a_folder_share_a_mapping_and_a_case_counts_once(place, split, tmp_path):
    (tmp_path / "tables" / "2026").mkdir(parents=True)
    given = place([ROW])
    (tmp_path / "cases.jsonl").rename(tmp_path / "tables" / "a.jsonl")
    other = STORY.replace("knee", "neck")
    (tmp_path / "tables/2026/b.csv").write_text(f'story,dx\n"{STORY}",Gout\n"{other}",Gout\n"{other} Twice.",\n')
    (tmp_path / "tables/c.json").write_text(json.dumps({**ROW, "story": STORY.replace("knee", "toe")}))
    (tmp_path / "tables/.half.csv").write_text("st")
    (tmp_path / "tables/README.md").write_text("What these are.")
    source = given.model_copy(update={"path": str(tmp_path / "tables")})
    cases, rejected = load_source(source, split)
    assert [case.self_report for case in cases] == [
        "A man of 40 comes with a sore knee.",
        "A man of 40 comes with a sore neck.",
        "A man of 40 comes with a sore toe.",
    ]
    assert [(one.path.rpartition("/")[2], one.line) for one in rejected] == [("b.csv", 4), ("a.jsonl", 1)]
    assert "is used twice, first in b.csv" in rejected[1].reason
    lines = told(source.path, rejected, 5)
    assert lines[0] == "tables: 2 of 5 records are no cases"
    assert any(line.endswith("(2026/b.csv:4)") for line in lines)
    (tmp_path / "none").mkdir()
    assert load_source(given.model_copy(update={"path": str(tmp_path / "none")}), split) == ([], [])


def test_any_text_is_parted_into_facts_with_words():
    chance = random.Random(1)
    pieces = [
        "fever",
        "no ",
        "not ",
        "denies ",
        ", ",
        "; ",
        ". ",
        "\n",
        "- ",
        "[x] ",
        "[ ] ",
        "|",
        "=N",
        ": ",
        "? ",
        "No",
    ]
    pieces += ["(-) ", "+", "-ve", "1) ", "2) ", "Pos ", "PMH:", "Negatives:", "Doctor: ", "A: ", "无", "，", "。", "；", "问：", "*", "…"]  # fmt: skip
    for _ in range(1500):
        text = "".join(chance.choice(pieces) for _ in range(chance.randrange(12)))
        for language in ("en", "zh"):
            told = list(statements_of(text, language))
            assert all(s.text.strip() and s.topic for s in told), text
            assert bool(opening_of(text, language)) == bool(told), text
            turns_of(text, language)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("无疫区久居史，不吸烟，不饮酒，退休会计。", ["-无疫区久居史。", "-不吸烟。", "-不饮酒。", "+退休会计。"]),
        ("无复视、言语不清、肢体麻木。", ["-无复视。", "-无言语不清。", "-无肢体麻木。"]),
        ("无腹泻，末次大便今晨，正常。", ["-无腹泻。", "+末次大便今晨，正常。"]),
        ("无麻木，大小便能控制。无气短，肢体活动没问题。", ["-无麻木。", "+大小便能控制。", "-无气短。", "+肢体活动没问题。"]),
        ("输液三天，症状未见改善，遂来我院。", ["+输液三天。", "+症状未见改善，遂来我院。"]),
        ("第4天双眼发红，无分泌物，不畏光。不反酸、嗳气。", ["+第4天双眼发红。", "-无分泌物。", "-不畏光。", "-不反酸、嗳气。"]),
        ("无腹痛，不能平卧。无咳嗽，不思饮食。", ["-无腹痛。", "+不能平卧。", "-无咳嗽。", "+不思饮食。"]),
    ],
)  # fmt: skip
def test_what_a_chinese_denial_reaches_ends_where_another_clause_begins(text, want):
    assert [f"{'-+'[s.present]}{s.text}" for s in statements_of(f"头痛三天。\n{text}", "zh")][1:] == want


def test_what_another_hospital_looked_for_is_told_and_makes_no_tests_of_what_follows():
    note = "胸背痛5天。到区医院查心电图没事，贴膏药2张不见好。前天洗澡发现红斑。血常规WBC 4.6。外院CT：肺炎。"
    assert [s.topic for s in statements_of(note, "zh")][1:] == ["现病史", "现病史", "化验检查", "化验检查"]


def test_the_head_of_a_chinese_form_is_no_complaint():
    note = "姓名：张某  性别：男  年龄：45岁  职业：教师\n主  诉：腹痛3天\n现 病 史：3天前腹痛。\n诊断：胃炎"
    assert opening_of(note, "zh") == "腹痛3天"
    told = [(s.topic, s.text) for s in statements_of(note, "zh")]
    assert told[-1] == ("患者", "男，45岁，教师。")
    assert not any("张某" in text or "胃炎" in text for _, text in told)


def test_things_under_a_section_of_findings_stay_there():
    note = "头晕三天。\n辅检：纯音测听：右耳聋。声导抗：双A型。梅毒抗体阴性。"
    assert [(s.topic, s.present) for s in statements_of(note, "zh")][1:] == [
        ("辅检", True),
        ("辅检", True),
        ("辅检", False),
    ]


def test_relatives_are_told_from_people_who_are_there(place, split):
    note = "眼痛一天。近来与家人争吵，睡眠差。姐姐有青光眼做过手术。"
    assert [s.topic for s in statements_of(note, "zh")][1:] == ["现病史", "家族史"]
    row = {"complaint": "哭闹", "allergies": "牛奶蛋白？曾湿疹", "dx": "肠套叠"}
    mapping = "name: mine\nopening: complaint\nfacts: [allergies]\ndiagnosis: dx\n"
    (case,), _ = load_source(place([row], mapping, language="zh"), split)
    assert [fact.text for fact in case.facts] == ["牛奶蛋白？", "曾湿疹。"]


@pytest.mark.parametrize(
    ("text", "present"),
    [
        ("月经准的。青霉素过敏，别的没有。", True),
        ("没发烧。也不咳嗽。", False),
        ("别的没有。", False),
        ("没有，小便不疼。就是有小石头。", False),
        ("没有发烧。谢谢医生。", False),
        ("没有发烧，不过有点咳嗽。", True),
        ("其他关节也疼。", True),
        ("腰不痛、腿痛。", True),
        ("不碰也疼。", True),
        ("不欲饮食2天。", True),
        ("体重没有减轻。", False),
    ],
)
def test_a_sentence_that_tells_something_is_not_denied_by_the_next(text, present):
    assert is_present(text, "zh") is present
