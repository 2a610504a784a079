import json

import pandas as pd
import pytest

from clinic.cases import (
    OPENING_STATES_DIAGNOSIS,
    Fact,
    Rejected,
    flag_opening,
    mention_of,
    read_cases,
    write_cases,
    write_rejected,
)
from clinic.errors import ClinicError
from clinic.starter import draw_cases


def test_parquet_round_trip(tmp_path, make_case, starter, split):
    path = tmp_path / "cases.parquet"
    odd = make_case(
        case_id="中文",
        language="zh",
        self_report='他说："头痛"\n(男, 37岁)',
        opening=(),
        facts=(Fact("a|b", False, "null"), Fact("", True, "½ \u2028")),
        synonyms=(),
        urgent=True,
        flags=("x", "y"),
        split="test",
        recommendation="",
    )
    cases = [odd, make_case(), *draw_cases(starter, 20, 3, split)]
    write_cases(cases, path)
    assert read_cases(path) == cases
    assert read_cases(path, "test") == [c for c in cases if c.split == "test"]
    write_cases(iter(cases), tmp_path / "again.parquet")
    assert path.read_bytes() == (tmp_path / "again.parquet").read_bytes()


def one_line(path, split=None):
    with pytest.raises(ClinicError) as caught:
        read_cases(path, split)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_missing_damaged_and_empty_files_are_one_line(tmp_path, make_case):
    path = tmp_path / "cases.parquet"
    assert "does not exist; run `dvc repro patient_cases`" in one_line(path)
    write_cases([make_case()], path)
    whole = path.read_bytes()
    for broken in (b"", b"not parquet\nat all", whole[: len(whole) // 2], whole[:-4]):
        path.write_bytes(broken)
        assert "is damaged (" in one_line(path)
    path.write_bytes(whole)
    assert "holds no case of split 'test'; raise patient_cases.starter.cases" in one_line(path, "test")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda t: t.drop(columns="facts"),
        lambda t: t.assign(surplus="x"),
        lambda t: t.assign(facts="{"),
        lambda t: t.assign(facts='[{"topic": "a"}]'),
        lambda t: t.assign(opening="null"),
        lambda t: t.assign(synonyms=3.0),
        lambda t: t.drop(columns="split"),
    ],
)
def test_a_wrong_table_is_one_line(tmp_path, make_case, spoil):
    path = tmp_path / "cases.parquet"
    write_cases([make_case()], path)
    spoil(pd.read_parquet(path)).to_parquet(path)
    assert "run `dvc repro --force patient_cases`" in one_line(path, "train")


def test_rejected_records_are_json_lines(tmp_path):
    rejected = [Rejected("a.jsonl", 3, "field x is missing"), Rejected("b", 1, "naïve\nreason")]
    write_rejected(rejected, tmp_path / "rejected.jsonl")
    lines = (tmp_path / "rejected.jsonl").read_text(encoding="utf-8").splitlines()
    assert [Rejected(**json.loads(line)) for line in lines] == rejected


@pytest.mark.parametrize(
    ("report", "flagged"),
    [
        ("I have pneumonia again.", True),
        ("PNEUMONIA, they said", True),
        ("Could it be a Lung Infection?", True),
        ("my chest hurts", False),
        ("pneumonias run in the family", False),
        ("It is bronchopneumonia", False),
        ("it is a chest disease", False),
        ("(pneumonia)", True),
        ("", False),
    ],
)
def test_an_opening_that_states_the_diagnosis_is_flagged(make_case, report, flagged):
    case = flag_opening(make_case(self_report=report, flags=("seen",)))
    assert case.flags == (("seen", OPENING_STATES_DIAGNOSIS) if flagged else ("seen",))
    assert flag_opening(case) == case


def test_chinese_terms_are_found_inside_a_sentence(make_case):
    assert flag_opening(make_case(diagnosis="肺炎", synonyms=(), self_report="我觉得是肺炎吗")).flags == (
        OPENING_STATES_DIAGNOSIS,
    )
    assert flag_opening(make_case(diagnosis="COPD", synonyms=(), self_report="我有COPD吗")).flags == (
        OPENING_STATES_DIAGNOSIS,
    )


def test_terms_are_text_not_patterns():
    mention = mention_of(frozenset({"C. difficile (colitis)", "a+b", ""}))
    assert mention is not None
    assert mention.search("it was C. DIFFICILE (colitis).")
    assert not mention.search("Cx difficile colitis")
    assert mention_of(frozenset({""})) is None
    longest = mention_of(frozenset({"flu", "stomach flu"}))
    assert longest is not None
    assert longest.sub("X", "stomach flu, flu, fluid") == "X, X, fluid"


def test_starter_cases_are_checked_too(toy, split):
    import dataclasses

    named = dataclasses.replace(
        toy, conditions=tuple(dataclasses.replace(c, synonyms=("rash",)) for c in toy.conditions)
    )
    cases = list(draw_cases(named, 30, 0, split))
    assert any("rash" in case.opening for case in cases)
    assert all((OPENING_STATES_DIAGNOSIS in case.flags) == ("rash" in case.self_report.lower()) for case in cases)
