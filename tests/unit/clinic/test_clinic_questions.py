import asyncio
import json

import pytest

from clinic.config import CaseSource
from clinic.errors import ClinicError
from clinic.events import Answered, Ending
from clinic.loaders import load_source
from clinic.questions import SingleTurn

EIGHT = [
    "患者出现胸痛症状，应该如何诊断？",
    "高血压患者的用药建议是什么？",
    "糖尿病的并发症有哪些？",
    "如何进行心电图解读？",
    "肺炎的治疗方案有哪些？",
    "肝功能异常的原因分析",
    "神经系统检查的步骤",
    "急性阑尾炎的诊断要点",
]


@pytest.fixture
def questions(starter_folder, split):
    path = starter_folder.parent / "questions" / "examples.jsonl"
    return load_source(CaseSource(format="questions", path=str(path), cases=0, licence="CC0-1.0"), split)


def test_the_eight_questions_are_the_first_examples(questions):
    cases, rejected = questions
    assert [case.self_report for case in cases[:8]] == EIGHT
    assert {case.language for case in cases[:8]} == {"zh"}
    assert all(len(case.facts) >= 5 for case in cases)
    assert rejected == []


def test_one_answer_and_it_is_over(questions):
    environment = SingleTurn(questions[0][0])
    system, user = environment.opening()
    assert user["content"] == EIGHT[0]
    assert "请回答" in system["content"]
    reply = asyncio.run(environment.step("  先查心电图。"))
    assert (reply.text, reply.stop_reason, reply.event) == (None, Ending.ANSWERED, Answered("先查心电图。"))
    with pytest.raises(RuntimeError, match="was answered"):
        asyncio.run(environment.step("again"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"points": []}, "points"),
        ({"points": "rest"}, "points"),
        ({"language": "fr"}, "'fr' is not spoken"),
        ({"question": " "}, "question is empty"),
    ],
)
def test_a_bad_question_is_rejected_with_its_line(tmp_path, split, change, told):
    good = {"question_id": "q1", "language": "en", "category": "heart", "question": "What helps?", "points": ["rest"]}
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in (good, good | {"question_id": "q2"} | change)))
    cases, rejected = load_source(CaseSource(format="questions", path=str(path), cases=0, licence="x"), split)
    assert [case.case_id for case in cases] == ["q1"]
    assert rejected[0].line == 2
    assert told in rejected[0].reason


def test_a_missing_file_is_one_line(split):
    with pytest.raises(ClinicError, match=r"nowhere\.jsonl does not exist"):
        load_source(CaseSource(format="questions", path="nowhere.jsonl", cases=0, licence="x"), split)
