"""Chinese lines from their mapping to the report, without a model: nothing that a person reads turns English."""

import json
import re
from html import unescape
from pathlib import Path

import pytest

from clinic.cases import read_cases, write_cases
from clinic.config import CaseSource, ConsultationParams, SplitParams
from clinic.consultation import Consultation, at_once
from clinic.loaders import load_source
from clinic.metrics import by_category, measure, paired
from clinic.patients.scripted import ScriptedPatient
from clinic.tables import Evaluation
from doctor.evaluation_text import table_text
from doctor.report_texts import language_of, texts
from tracking.report_page import Seen, write_report

MAPPING = "name: zh\nopening: 主诉\nfacts: [现病史, 过敏史]\ntests: [检查]\ndiagnosis: 诊断\nrecommendation: 建议\ncategory: {constant: 呼吸科}\n"
ROWS = [
    {
        "主诉": "我咳嗽三天了。",
        "现病史": "咳黄脓痰。发烧39度。没有胸痛。",
        "过敏史": "青霉素过敏。",
        "检查": "胸片右下肺阴影",
        "诊断": "肺炎",
        "建议": "用抗生素",
    },
    {
        "主诉": "我喘不上氣。",
        "现病史": "夜裡咳醒。呼吸有哨音。沒有發燒。",
        "过敏史": "對塵蟎過敏。",
        "检查": "肺功能下降",
        "诊断": "支氣管哮喘",
        "建议": "吸入激素",
    },
]
RULES = ConsultationParams(
    turn_budget=4, instructions="short", search_results=2, search_tokens=96, max_questions=1, matching="lexical"
)
TURNS = (
    "<think>先问发烧。</think><answer>问题：有没有发烧？</answer>",
    "<answer>检查：胸片</answer>",
    "我想想",
    "<answer>诊断：{}\n建议：用抗生素</answer>",
)


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
    (folder / "zh.jsonl").write_text(lines, encoding="utf-8")
    (folder / "m.yaml").write_text(MAPPING, encoding="utf-8")
    stated = {"format": "own", "path": str(folder / "zh.jsonl"), "mapping": str(folder / "m.yaml")}
    source = CaseSource.model_validate({**stated, "language": "zh", "cases": 0, "licence": "CC0-1.0"})
    found, rejected = load_source(source, SplitParams(salt="x", validation=0.0, test=0.0))
    assert rejected == []
    write_cases(found, folder / "cases.parquet")
    return read_cases(folder / "cases.parquet")


def played(case, named):
    consultation = Consultation(case, ScriptedPatient(case, None), RULES, 4, None)
    messages, events = consultation.opening(), []
    for turn in TURNS:
        messages.append({"role": "assistant", "content": turn.format(named)})
        reply = at_once(consultation.step(turn.format(named)))
        events.append(reply.event)
        if reply.text is not None:
            messages.append({"role": "user", "content": reply.text})
    return messages, events


def test_from_the_mapping_to_the_report(cases, tmp_path):
    assert {case.language for case in cases} == {"zh"}
    seen, rows = [], {"trained": [], "warm_start": []}
    for case in cases:
        messages, events = played(case, "支气管哮喘")
        rows["trained"].append(measure(case, events, 0.5, 12, ()))
        rows["warm_start"].append(measure(case, played(case, "感冒")[1], 0.1, 9, ()))
        rewards = [{"turn": -0.01}, {"turn": -0.01, "test": -0.02}, {"invalid": -0.1}, {"diagnosis": 1.0}]
        right = rows["trained"][-1]["accuracy"] == 1.0
        seen.append(
            Seen(case=case, messages=messages, events=events, rewards=rewards, stop_reason="diagnosed", correct=right)
        )
    assert [one.correct for one in sorted(seen, key=lambda one: one.case.diagnosis)] == [
        True,
        False,
    ]  # 支氣管哮喘, 肺炎
    metrics = Evaluation(
        doctors={f"{name}@zh": by_category(cases, found, 0.25) for name, found in rows.items()},
        comparisons={"trained@zh minus warm_start@zh": paired(rows["trained"], rows["warm_start"], 0.25)},
    )
    words = texts(language_of(case.language for case in cases))
    write_report(tmp_path / "report.html", "问诊", {"patients": "scripted"}, metrics, [], seen)
    page = (tmp_path / "report.html").read_text(encoding="utf-8").partition("</style>")[2]
    attributes = " ".join(re.findall(r'(?:title|aria-label)="([^"]*)"', page))
    told = unescape(re.sub(r"<[^>]*>", " ", page) + attributes)
    for text in (told, table_text(metrics, words)):
        assert re.findall(r"[A-Za-z]{2,}", re.sub(r"McNemar|ROUGE-L|@zh|\bzh-\w+|</?answer>", "", text)) == []
    for shown in (
        "发烧39度",
        "沒有發燒",
        "胸片右下肺阴影",
        "不合格式",
        "从未问到的情况",
        "青霉素过敏",
        "按规则回答",
        "只有 2 例",
    ):
        assert shown in told + table_text(metrics, words)
    assert Path(tmp_path / "report.html").stat().st_size > 5000
