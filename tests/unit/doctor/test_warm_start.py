"""What the warm start reads."""

import re
from collections import Counter
from pathlib import Path

from clinic.starter import draw_cases
from doctor.environments import open_factory
from doctor.parameters import ROOT, load_params
from doctor.warm_start import examples
from rl.chat import ChatFormat
from rl.models import load_model


def test_the_warm_start_sees_every_budget_and_whole_charts(tmp_path: Path):
    params = load_params()
    rules, section = params.consultation, params.warm_start
    factory = open_factory(params, tmp_path)
    cases = list(draw_cases(factory.clinic, 200, 5, params.patient_cases.split, keep=["train"]))
    chat = ChatFormat(load_model(str(ROOT / "models/base"), "float32")[1])
    texts = [chat.tokenizer.decode(example.token_ids) for example in examples(chat, factory, cases, params)]
    dialogues, charts = texts[: len(cases)], texts[len(cases) :]
    assert len(charts) == len(cases) // section.charts_every
    assert all(chart.count(" left)") == 1 and "(1 left)" in chart for chart in charts)
    budgets = [int(re.search(r"\((\d+) left\)", text)[1]) for text in dialogues]
    short = Counter(budgets[:: section.short_every])
    assert set(short) == set(range(1, rules.turn_budget))
    assert Counter(budgets)[rules.turn_budget] == len(cases) - sum(short.values())
    assert all(text.count("Question:") < budget for text, budget in zip(dialogues, budgets, strict=True))
