"""The words of the reports: every language has all of them, and a table in Chinese stands straight in a terminal."""

import re
from collections.abc import Mapping
from pathlib import Path
from string import Formatter

import pytest
from ruamel.yaml import YAML

from clinic.actions import Kind
from clinic.events import Ending
from clinic.language import PHRASES
from clinic.metrics import MEASURES, WITHOUT_A_TURN
from clinic.rewards import REWARD_COMPONENTS
from clinic.tables import Evaluation
from doctor.evaluation_text import table_text
from doctor.report_texts import FILE, Texts, columns_wide, padded, texts
from rl.experience import StopReason

ROOT = Path(__file__).resolve().parents[3]
SAME = ("phrases", "counted", "speakers", "kinds", "remarks", "doctors", "measures", "table")


def holes(phrase: str) -> int:
    return sum(field is not None for _, field, _, _ in Formatter().parse(phrase))


def test_every_language_has_the_same_words_with_the_same_holes() -> None:
    said = YAML(typ="safe").load(FILE)
    assert set(said) == set(PHRASES)
    for language in set(said) - {"en"}:
        for section in SAME:
            assert said[language][section].keys() == said["en"][section].keys(), (language, section)
        for key, phrase in said["en"]["phrases"].items():
            assert holes(said[language]["phrases"][key]) == holes(phrase), (language, key)


def test_nothing_that_a_run_can_show_lacks_a_chinese_name() -> None:
    specialties = {
        entry["specialty"]
        for path in (ROOT / "data/starter/conditions").glob("*.yaml")
        for entry in YAML(typ="safe").load(path)
    }
    zh = texts("zh")
    shown = {*specialties, *REWARD_COMPONENTS, *Ending, *StopReason, *zh.doctors, WITHOUT_A_TURN.reason}
    assert {name for name in shown if zh.known(str(name)) == str(name)} == set()
    assert zh.columns.keys() == zh.measures.keys() == set(MEASURES)
    assert zh.kinds.keys() == set(Kind)


def test_every_phrase_that_the_page_says_is_there() -> None:
    page = (ROOT / "tracking/templates/report.html.j2").read_text()
    said = set(re.findall(r'\bt\.say\("(\w+)"', page))
    assert said <= texts("en").phrases.keys()
    assert len(said) > 50


def test_a_missing_phrase_is_an_error() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        texts("zh").say("nonsense")


def test_what_is_filled_in_is_escaped() -> None:
    assert texts("en").say("last", "<b>") == ", last &lt;b&gt;"


@pytest.mark.parametrize("language", sorted(PHRASES))
def test_columns_of_the_table_stand_straight(language: str) -> None:
    half = {"mean": 0.5, "low": 0.4, "high": 0.6}
    row = {"overall": {"cases": 99, "accuracy": half, "top3": half, "reward": half, "turns": half, "fact_recall": None}}
    words = texts(language)
    head, *rows = table_text(Evaluation.from_json({"trained": row, "bayes_no_questions": row}), words).splitlines()
    assert {columns_wide(line) for line in (head, *rows)} == {columns_wide(head)}
    assert all(line.endswith("0.50    0.50   0.50       -") for line in rows)
    assert all(head_of in head for head_of in words.table.values())


def test_a_chinese_table_has_no_english_word() -> None:
    half = {"mean": 0.5, "low": 0.4, "high": 0.6}
    cut = {"cases": 50, "missing": {"1": "failed"}, "accuracy": None}
    metrics: Mapping[str, object] = {
        "trained": {"overall": {"cases": 9, "accuracy": half, "unplaced": half}},
        "warm_start@病例": {"overall": cut},
        "trained minus warm_start": {"accuracy": half | {"only_first": 1, "only_second": 0, "p": 1.0}},
    }
    text = table_text(Evaluation.from_json(metrics), texts("zh"))
    assert re.findall(r"[A-Za-z]{2,}", text.replace("McNemar", "")) == []
    assert "训练前@病例" in text
    assert "不适用：2% 出错" in text


def test_cells_are_padded_by_what_a_terminal_shows() -> None:
    assert (padded("轮数", 6), padded("轮数", -6), padded("轮数", 2)) == ("轮数  ", "  轮数", "轮数")
    assert isinstance(texts("en"), Texts)
