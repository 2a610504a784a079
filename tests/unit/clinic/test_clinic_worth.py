import pytest

from clinic.cases import Fact, read_cases, write_cases
from clinic.worth import ROUTINE, commonest_inquiries, is_normal, with_worth


@pytest.fixture
def seen(make_case):
    def case(i, *facts):
        return make_case(case_id=str(i), source="records", facts=tuple(Fact(t, True, x) for t, x in facts))

    pulse = ("Vital Signs: Pulse", "90 a minute")
    return [case(i, pulse, ("History", "cough and fever")) for i in range(9)] + [
        case(9, pulse, ("History", "cough with a barking seal sound"), ("Echo: Findings", "flail leaflet"))
    ]


def test_what_is_rare_is_worth_more_and_what_everybody_has_nothing(seen):
    *_, last = with_worth(seen, seen)
    worth = {fact.topic: fact.worth for fact in last.facts}
    assert worth["Vital Signs: Pulse"] == 0.0
    assert worth["Echo: Findings"] > worth["History"] > 0.0
    assert all(0.0 <= value <= 1.0 for value in worth.values())
    assert sum(worth.values()) <= 1.0


def test_only_training_cases_of_the_same_source_count(seen, make_case):
    stranger = make_case(case_id="x", source="other", facts=(Fact("History", True, "cough and fever"),))
    alone = with_worth([stranger], seen)[0].facts[0].worth
    assert alone == 0.25  # nothing is known of that source, and the general history asks for a fever
    assert with_worth([stranger], [stranger])[0].facts[0].worth == 0.0


def test_what_routine_questions_bring_out_is_worth_less(make_case):
    def case(i, *facts):
        return make_case(case_id=str(i), source="records", facts=tuple(Fact(t, True, x) for t, x in facts))

    often, once = "Have you noticed any swelling in your ankles?", "Does your tongue burn?"
    seen = [case(i, (often, f"swelling {word}")) for i, word in enumerate("abcdefghij")]
    many = [case(f"m{i}", (f"Is there {i}?", "x")) for i in range(ROUTINE)]
    both = case("both", (often, "quince quail"), (once, "cactus candle"))
    rare = {fact.topic: fact.worth for fact in with_worth([both], [*seen, *seen, *many])[0].facts}
    assert commonest_inquiries(seen) == [("history", often.removesuffix("?"))]
    assert rare == {often: 0.125, once: 0.5}


def test_the_general_history_is_routine_in_the_language_of_the_case(make_case):
    fact = Fact("您发过烧吗？", True, "我前天发过烧")
    chinese, other = (make_case(source="records", language=code, facts=(fact,)) for code in ("zh", "en"))
    assert [with_worth([case], [])[0].facts[0].worth for case in (chinese, other)] == [0.25, 1.0]


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("Denies fever, cough or rash", True),
        ("Normal", True),
        ("Heart sounds are normal.", True),
        ("No known allergies", True),
        ("正常", True),
        ("Denies fever but reports a rash", False),
        ("Not oriented, but calm", False),
        ("Swollen knee", False),
        ("Nausea", False),
    ],
)
def test_normal_findings_are_worth_nothing(seen, make_case, text, normal):
    assert is_normal(text) == normal
    (case,) = with_worth([make_case(source="records", facts=(Fact("History", True, text),))], seen)
    assert (case.facts[0].worth == 0.0) == normal


def test_worth_is_stored_with_the_case_and_left_out_where_there_is_none(seen, make_case, tmp_path):
    cases = [*with_worth(seen[-1:], seen), make_case(case_id="drawn")]
    write_cases(cases, tmp_path / "cases.parquet")
    assert read_cases(tmp_path / "cases.parquet") == cases
    assert "worth" not in __import__("pandas").read_parquet(tmp_path / "cases.parquet")["facts"][1]
