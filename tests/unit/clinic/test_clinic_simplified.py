"""Simplified and traditional characters are one in names, questions, records and leaks; what is shown stays as written."""

from clinic.diagnoses import relation
from clinic.language import says_unknown
from clinic.leaks import LeakFilter
from clinic.loaders.free_text import is_present, statements_of
from clinic.matching import MATCH_THRESHOLD, TopicMatcher, normalise
from clinic.naming import words
from clinic.patients.base import question_matcher
from clinic.simplified import _PAIRS, simplified

RECORD = "主诉：咳嗽3天。\n现病史：咳黄痰，发热，无胸痛、气短。\n查体：体温38.5℃。\n过敏史：对青霉素过敏。"
TRADITIONAL = "主訴：咳嗽3天。\n現病史：咳黃痰，發熱，無胸痛、氣短。\n查體：體溫38.5℃。\n過敏史：對青黴素過敏。"


def test_the_table_is_one_character_for_one_and_needs_no_second_look():
    pairs = _PAIRS.split()
    assert {len(pair) for pair in pairs} == {2}
    assert len({pair[0] for pair in pairs}) == len(pairs) > 850
    text = "".join(pair[0] for pair in pairs)
    assert simplified(simplified(text)) == simplified(text) == "".join(pair[1] for pair in pairs)


def test_simplified_texts_stay_as_they_are(starter_folder):
    for path in (starter_folder / "zh").rglob("*.*"):
        text = path.read_text()
        assert simplified(text) == text, path


def test_the_same_words_are_compared_alike():
    assert normalise("頭暈、嘔吐") == normalise("头晕、呕吐")
    assert TopicMatcher({"fever": ("您发烧吗？",)}, MATCH_THRESHOLD).match("您發燒嗎？") == "fever"
    assert words("類風濕關節炎") == words("类风湿关节炎")
    assert says_unknown("我記不清了", "zh")


def test_a_traditional_diagnosis_is_right_and_a_traditional_name_is_masked(make_case):
    case = make_case(language="zh", diagnosis="类风湿关节炎", synonyms=("类风湿",), parents=("关节疾病",))
    assert relation(case, "類風濕關節炎") == "exact"
    text, leaks = LeakFilter(case).clean("醫生說我是類風濕關節炎。")
    assert leaks == 1
    assert "類風濕" not in text
    assert text.startswith("醫生說我是")


def test_a_traditional_record_is_read_like_a_simplified_one():
    for before, after in zip(statements_of(RECORD, "zh"), statements_of(TRADITIONAL, "zh"), strict=True):
        assert (simplified(after.topic), after.present, simplified(after.text)) == (
            before.topic,
            before.present,
            before.text,
        )
    assert not is_present("沒有發燒", "zh")


def test_traditional_questions_find_facts_in_either_script(make_case):
    from clinic.loaders.records import numbered

    for record in (RECORD, TRADITIONAL):
        facts = numbered([(s.topic, s.present, s.text) for s in statements_of(record, "zh")])
        case = make_case(language="zh", facts=facts, self_report="咳嗽3天。", opening=())
        told = {fact.topic: simplified(fact.text) for fact in facts}
        for script in ("痰是什么颜色的？", "痰是什麼顏色的？"):
            assert "黄痰" in told[question_matcher(case)(script)]
        assert "过敏" in told[question_matcher(case)("有沒有藥物過敏？")]
