"""What the Chinese lexicon reads in questions and facts, and which fact of a record answers."""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from clinic.loaders.records import numbered
from clinic.patients.base import question_matcher
from clinic.understanding.chinese import FILE, chinese
from clinic.understanding.fit import ALLERGY, DATED, GENERIC, REQUIRED
from clinic.understanding.lexicon import FILE as ENGLISH
from clinic.understanding.record import kind_of, record_of
from doctor.calibration import read_lines
from doctor.parameters import ROOT, load_params
from doctor.patient_calibration import chinese_patient_lines

FACTS = (
    ("现病史", "半年前开始双手指间关节肿痛，呈对称性。"),
    ("现病史", "晨起僵硬约两小时，活动后减轻。"),
    ("现病史", "无口腔溃疡。"),
    ("既往史", "十年前行阑尾切除术。"),
    ("家族史", "姐姐有类似关节痛。"),
    ("个人史", "吸烟20年，每日一包。"),
    ("血压高不高？", "有点高，吃着降压药。"),
    ("发烧吗？", "没有。"),
    ("体格检查", "双手指间关节压痛。"),
)


@pytest.fixture(scope="module")
def lexicon():
    return chinese()


@pytest.fixture
def ask(make_case):
    facts = numbered([(heading, not text.startswith(("无", "没有")), text) for heading, text in FACTS])
    case = make_case(language="zh", facts=facts, self_report="双手关节肿痛半年。", opening=())
    match, text_of = question_matcher(case), {fact.topic: fact.text for fact in facts}
    return lambda question: text_of.get(match(question))


@pytest.mark.parametrize(
    ("question", "concepts", "aspects"),
    [
        ("什么时候开始头疼的？", {"headache"}, {"onset"}),
        ("疼痛会不会放射到后背？", {"pain"}, {"radiation"}),
        ("家里人有糖尿病吗？", {"diabetes"}, {"family"}),
        ("有没有高血压？", {"hypertension"}, set()),
        ("痰里带血吗？", {"haemoptysis"}, set()),
        ("吃什么能让肚子疼好一点？", {"abdominal_pain"}, {"relieve"}),
        ("止痛药管用吗？", set(), {"treatment"}),
        ("您养了几只猫？", {"pets"}, set()),
        ("天气不错？", set(), set()),
    ],
)
def test_questions_are_read(lexicon, question, concepts, aspects):
    reading = lexicon.read(question, "ask")
    assert (set(reading.concepts), set(reading.aspects)) == (concepts, aspects)


def test_what_nothing_accounts_for_is_left_in_pairs(lexicon):
    assert lexicon.read("有没有打羽毛球？", "ask").rest == {"打羽", "毛球"}
    assert "羽毛" in lexicon.read("我打羽毛球。", "tell").stems


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("关节疼了多久？", "半年前"),
        ("早上手指僵不僵？", "晨起僵硬"),
        ("嘴里长过溃疡吗？", "无口腔溃疡"),
        ("开过刀没有？", "阑尾"),
        ("家里还有谁关节不好？", "姐姐"),
        ("抽烟吗？", "吸烟20年"),
        ("有高血压吗？", "有点高"),
        ("有没有发热？", "没有。"),
        ("怎么样会好一些？", "活动后减轻"),
    ],
)
def test_the_fact_that_answers_is_told(ask, question, told):
    assert told in (ask(question) or "")


@pytest.mark.parametrize(
    "question",
    ["有糖尿病吗？", "喝酒吗？", "月经规律吗？", "眼睛干不干？", "父亲得过癌症吗？", "打羽毛球吗？", "今天星期几？"],
)
def test_what_is_off_the_record_is_not_told(ask, question):
    assert ask(question) is None


def test_what_was_found_is_no_answer(ask, make_case):
    facts = numbered([(heading, True, text) for heading, text in FACTS])
    kinds = {fact.topic: kind_of(fact) for fact in facts}
    assert kinds["体格检查"] == "test"
    assert kind_of(numbered([("做过胃镜检查吗？", True, "去年做过。")])[0]) == "history"
    assert "压痛" not in (ask("手指关节疼吗？") or "")
    assert record_of(make_case(language="zh", facts=facts)).lexicon is chinese()


def test_both_lexicons_are_of_one_form():
    zh, en = (YAML(typ="safe").load(path) for path in (FILE, ENGLISH))
    assert zh.keys() == en.keys()
    assert zh["aspects"].keys() == en["aspects"].keys()
    assert zh["places"].keys() == en["places"].keys()
    concepts = {name for section in ("symptoms", "diseases", "topics") for name in zh[section]}
    assert concepts >= ALLERGY | DATED | GENERIC
    assert zh["aspects"].keys() >= REQUIRED
    for section in ("symptoms", "diseases", "topics"):
        for name, entry in zh[section].items():
            assert {word.strip() for word in entry.get("broader", "").split(",") if word.strip()} <= concepts, name
            assert not re.search(r"[\u4e00-\u9fff]，|、[\u4e00-\u9fff]+\"", str(entry.get("heading", ""))), name


def test_the_labelled_questions_are_understood_as_well_as_is_said():
    opened, sealed = chinese_patient_lines(load_params())
    for line in (opened, sealed):
        shares = {name: float(value) for name, value in re.findall(r"(\w+) (\d\.\d+)", line)}
        assert shares["right"] >= 0.70
        assert max(shares["wrong"], shares["invented"]) <= 0.03


def test_the_halves_share_no_case_and_their_labels_are_on_record():
    halves = [read_lines(ROOT / f"data/calibration/patient_zh_{half}.jsonl") for half in ("open", "sealed")]
    one, other = ({row["case_id"] for row in rows} for rows in halves)
    assert not one & other
    assert len(one | other) == 16
    assert sum(map(len, halves)) == 143
    assert Path(ROOT / "data/calibration/patient_zh_cases.jsonl").read_text().count("\n") == 16
