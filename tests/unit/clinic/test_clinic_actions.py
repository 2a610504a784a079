import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clinic.actions import MAX_DIAGNOSIS_CHARS, Action, Kind, diagnosis, parse, question
from clinic.language import EN, ZH, phrases

PIECES = st.sampled_from(
    [
        "<answer>",
        "</answer>",
        "<think>",
        "</think>",
        "Question:",
        "question：",
        "Queſtion:",
        "dıagnosis:",
        "TEST :",
        "teſt:",
        "Search:",
        "Diagnosis:",
        "Recommendation:",
        "recommendation：",
        "Do you have a fever?",
        "？",
        "?",
        "\n",
        " ",
        "\u3000",
        "flu",
        "x" * 130,
        "\x00",
        "\ud800",
        "İ",
        "ſ",
        "问题：",
        "诊断:",
        "检查：",
        "检索：",
        "建议：",
        "你发烧吗？",
        "Evidence: a#0",
        "\n依据：",
    ]
)


@settings(max_examples=10_000, deadline=None)
@given(
    st.one_of(
        st.text(),
        st.lists(PIECES).map("".join),
        st.lists(st.one_of(PIECES, st.text(max_size=4))).map(lambda parts: f"<answer>{''.join(parts)}</answer>"),
    )
)
def test_any_text_parses(turn):
    assert parse(turn, ZH).kind is parse(turn).kind
    action = parse(turn)
    assert isinstance(action.kind, Kind)
    assert (action.kind is Kind.INVALID) == bool(action.error)
    if action.kind is not Kind.INVALID:
        assert action.text == action.text.strip() != ""
        assert "<answer>" not in action.text
        assert "</answer>" not in action.text


VALID = [
    ("<answer>问题：你发烧吗？</answer>", Action(Kind.QUESTION, "你发烧吗？")),
    ("<think>诊断：肺炎?</think><answer>检查：胸片</answer>", Action(Kind.TEST, "胸片")),
    ("<answer>诊断：肺炎\n建议：拍胸片</answer>", Action(Kind.DIAGNOSIS, "肺炎", "拍胸片")),
    ("<answer>Question: Do you have a fever?</answer>", Action(Kind.QUESTION, "Do you have a fever?")),
    ("  <answer>\nquestion:Fever?\n</answer>\n", Action(Kind.QUESTION, "Fever?")),
    ("<answer>QUESTION ： 你发烧吗？</answer>", Action(Kind.QUESTION, "你发烧吗？")),
    ("<think>It may be flu?</think>\n<answer>Question: Fever?</answer>", Action(Kind.QUESTION, "Fever?")),
    ("<think></think><answer>Search: chest pain on breathing</answer>", Action(Kind.SEARCH, "chest pain on breathing")),
    ("<think>a <b> Question: what?</think><answer>Test: chest X-ray</answer>", Action(Kind.TEST, "chest X-ray")),
    ("<answer>Diagnosis: Flu</answer>", Action(Kind.DIAGNOSIS, "Flu")),
    ("<answer>Diagnosis: Flu\nRecommendation: Rest.\nDrink.</answer>", Action(Kind.DIAGNOSIS, "Flu", "Rest.\nDrink.")),
    ("<answer>diagnosis：Flu recommendation： Rest</answer>", Action(Kind.DIAGNOSIS, "Flu", "Rest")),
    ("<answer>Diagnosis: Flu\nRecommendation:</answer>", Action(Kind.DIAGNOSIS, "Flu")),
    (f"<answer>Diagnosis: {'x' * MAX_DIAGNOSIS_CHARS}</answer>", Action(Kind.DIAGNOSIS, "x" * MAX_DIAGNOSIS_CHARS)),
]


@pytest.mark.parametrize(("turn", "action"), VALID)
def test_the_grammar(turn, action):
    assert parse(turn) == action


INVALID = {
    "write exactly one <answer>": [
        "",
        "Do you have a fever?",
        "<answer>Question: Fever?",
        "Question: Fever?</answer>",
        "<answer>Question: a?</answer> and more",
        "well <answer>Question: a?</answer>",
        "<answer>Question: a?</answer><answer>Question: b?</answer>",
        "<answer>Question: a?</answer> b </answer>",
        "<think>never closed <answer>Question: a?</answer>",
        "<answer>Question: a?</answer><think>late</think>",
        "<ANSWER>Question: a?</ANSWER>",
    ],
    "begin the answer with": [
        "<answer></answer>",
        "<answer>Fever?</answer>",
        "<answer>Ask: Fever?</answer>",
        "<answer>Queſtion: Fever?</answer>",
        "<answer>Dıagnosis: x</answer>",
    ],
    "the question is empty": ["<answer>Question: </answer>"],
    "the search is empty": ["<answer>Search:</answer>"],
    "the test is empty": ["<answer>Test:\n</answer>"],
    "ask exactly one question": [
        "<answer>Question: Fever</answer>",
        "<answer>Question: Fever? Cough?</answer>",
        "<answer>Question: 发烧？cough?</answer>",
    ],
    "the diagnosis is empty": ["<answer>Diagnosis:</answer>", "<answer>Diagnosis:\nRecommendation: Rest</answer>"],
    "give one diagnosis": [
        "<answer>Diagnosis: Flu\nCold</answer>",
        f"<answer>Diagnosis: {'x' * (MAX_DIAGNOSIS_CHARS + 1)}</answer>",
    ],
}


@pytest.mark.parametrize(("error", "turn"), [(error, turn) for error, turns in INVALID.items() for turn in turns])
def test_what_breaks_the_grammar_is_invalid_and_says_why(error, turn):
    action = parse(turn)
    assert action.kind is Kind.INVALID
    assert action.error.startswith(error)


def test_what_we_write_we_can_read():
    assert parse(question("Any pain?")) == Action(Kind.QUESTION, "Any pain?")
    assert parse(diagnosis("Flu", "Rest")) == Action(Kind.DIAGNOSIS, "Flu", "Rest")
    assert parse(diagnosis("Flu", "")) == Action(Kind.DIAGNOSIS, "Flu", "")


@pytest.mark.timeout(10)
def test_long_turns_parse_in_linear_time():
    gap = "\n" * 50000
    for turn in (
        "<think>" * 20000,
        "<answer>" + "</answer> " * 20000 + "x",
        "<think>" + "</think> " * 20000,
        f"<answer>Diagnosis: x{gap}y</answer>",
    ):
        assert parse(turn).kind is Kind.INVALID
    assert parse(f"<answer>Diagnosis: {gap}Flu{gap}Recommendation: {gap}Rest{gap}</answer>") == Action(
        Kind.DIAGNOSIS, "Flu", "Rest"
    )


def test_errors_are_in_the_language_of_the_consultation():
    assert parse("hello", ZH).error == ZH.one_answer
    assert parse("<answer>hello</answer>").error == EN.begin_with
    assert parse("<answer>诊断：</answer>", ZH).error == "诊断是空的"
    assert parse("<answer>Diagnosis: </answer>").error == "the diagnosis is empty"


def test_what_a_doctor_writes_is_read_back_in_every_language():
    for code in ("en", "zh"):
        words = phrases(code)
        assert parse(question("发烧吗？", "肺炎", words), words) == Action(Kind.QUESTION, "发烧吗？")
        assert parse(diagnosis("肺炎", "休息", words), words) == Action(Kind.DIAGNOSIS, "肺炎", "休息")
    with pytest.raises(ValueError, match="language 'fr' is not spoken here; use one of: en, zh"):
        phrases("fr")


@pytest.mark.parametrize(
    ("body", "recommendation", "evidence"),
    [
        ("Gout\nRecommendation: Rest\nEvidence: gout#0, gout#3", "Rest", ("gout#0", "gout#3")),
        ("Gout\nEvidence: [gout#0]; gout#0 a/b.md#1", "", ("gout#0", "a/b.md#1")),
        ("Gout\nRecommendation: Rest\nEVIDENCE:", "Rest", ()),
        ("痛风\n建议：休息\n依据：痛风#0、痛风#1。", "休息", ("痛风#0", "痛风#1")),
        # evidence that is no line of its own, or not the last, is advice
        ("Gout\nRecommendation: Rest. Evidence: weak", "Rest. Evidence: weak", ()),
        ("Gout\nRecommendation: Rest\nEvidence: x\nDrink", "Rest\nEvidence: x\nDrink", ()),
    ],
)
def test_a_third_line_cites_passages(body, recommendation, evidence):
    action = parse(f"<answer>{'诊断：' if '痛' in body else 'Diagnosis: '}{body}</answer>")
    assert (action.kind, action.recommendation, action.evidence) == (Kind.DIAGNOSIS, recommendation, evidence)


def test_what_is_cited_is_read_as_it_is_written():
    for words in (EN, ZH):
        action = parse(diagnosis("x", "y", words, ("a#0", "b#1")), words)
        assert (action.text, action.recommendation, action.evidence) == ("x", "y", ("a#0", "b#1"))
        assert parse(diagnosis("x", "y", words), words).evidence == ()
        assert words.full.count(words.evidence.strip()) == 1


def test_evidence_alone_is_no_diagnosis():
    assert parse("<answer>Diagnosis: \nEvidence: a#0</answer>").kind is Kind.INVALID
    assert parse("<answer>Diagnosis: Evidence: a#0</answer>").kind is Kind.INVALID


@pytest.mark.parametrize("name", ["...", "\u200b", "🤒", "flu\u2028cold", "flu\x0bcold"])
def test_a_diagnosis_names_something_on_one_line(name):
    assert parse(f"<answer>Diagnosis: {name}</answer>").kind is Kind.INVALID
