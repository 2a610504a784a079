"""What the warm start reads."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from clinic.events import FoundPassage
from clinic.library import Fits
from clinic.starter import draw_cases
from doctor.environments import ConsultationFactory, open_factory
from doctor.parameters import ROOT, Params, load_params
from doctor.warm_start import examples
from rl.chat import ChatFormat
from rl.models import load_model


class Shelf:
    """A library that always finds the same."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.beforehand: list[str] = []
        self.tokens = len

    def find_beforehand(self, queries: Sequence[str]) -> None:
        self.beforehand += queries

    async def search(self, query: str, results: int, fits: Fits) -> Sequence[FoundPassage]:
        self.asked.append(query)
        return [FoundPassage(passage_id="9", title="Scurvy", text="Gums bleed.", source="s", licence="CC0", score=1.0)]


def with_searches(every: int | None) -> Params:
    params = load_params()
    section = params.warm_start.model_copy(update={"searches_every": every})
    return params.model_copy(update={"warm_start": section})


def test_the_warm_start_learns_what_to_make_of_a_search_and_not_to_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params, shelf = with_searches(4), Shelf()
    monkeypatch.setattr(ConsultationFactory, "library", lambda *_: shelf)
    monkeypatch.setattr(ConsultationFactory, "shelf", shelf)
    factory = open_factory(params, tmp_path)
    cases = list(draw_cases(factory.clinic, 40, 5, params.patient_cases.split, keep=["train"]))
    chat = ChatFormat(load_model(str(ROOT / "models/base"), "float32")[1])
    searched = cases[3::4]
    taught = examples(chat, factory, cases, params)[3 : len(cases) : 4]
    assert shelf.asked == shelf.beforehand == [case.self_report for case in searched]
    for case, example in zip(searched, taught, strict=True):
        text = chat.tokenizer.decode(example.token_ids)
        learned = chat.tokenizer.decode([i for i, on in zip(example.token_ids, example.loss_mask, strict=True) if on])
        assert f"<answer>Search: {case.self_report}</answer>" in text
        assert text.index("Gums bleed.") < text.index(" left)", text.index(" left)") + 1)
        assert text.count("Question:") == learned.count("Question:") < params.consultation.turn_budget - 1
        assert "Search:" not in learned
        assert learned.count(f"Diagnosis: {case.diagnosis}\n") == 1


@pytest.mark.parametrize("rules", [{"search_results": 0}, {"turn_budget": 1}])
def test_where_nothing_can_be_looked_up_nothing_is_taught_of_it(tmp_path: Path, rules: dict[str, int]) -> None:
    params = with_searches(4)
    params = params.model_copy(update={"consultation": params.consultation.model_copy(update=rules)})
    factory = open_factory(params, tmp_path)
    cases = list(draw_cases(factory.clinic, 20, 5, params.patient_cases.split, keep=["train"]))
    chat = ChatFormat(load_model(str(ROOT / "models/base"), "float32")[1])
    taught = examples(chat, factory, cases, params)
    assert len(taught) == len(cases) + len(cases[:: params.warm_start.charts_every])


def test_the_warm_start_sees_every_budget_and_whole_charts(tmp_path: Path):
    params = with_searches(None)
    rules, section = params.consultation, params.warm_start
    factory = open_factory(params, tmp_path)
    cases = list(draw_cases(factory.clinic, 200, 5, params.patient_cases.split, keep=["train"]))
    chat = ChatFormat(load_model(str(ROOT / "models/base"), "float32")[1])
    texts = [chat.tokenizer.decode(example.token_ids) for example in examples(chat, factory, cases, params)]
    dialogues, charts = texts[: len(cases)], texts[len(cases) :]
    assert not any("Search:" in text for text in dialogues)
    assert len(charts) == len(cases) // section.charts_every
    assert all(chart.count(" left)") == 1 and "(1 left)" in chart for chart in charts)
    budgets = [int(re.search(r"\((\d+) left\)", text)[1]) for text in dialogues]
    short = Counter(budgets[:: section.short_every])
    assert set(short) == set(range(1, rules.turn_budget))
    assert Counter(budgets)[rules.turn_budget] == len(cases) - sum(short.values())
    assert all(text.count("Question:") < budget for text, budget in zip(dialogues, budgets, strict=True))
