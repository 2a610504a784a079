import pytest

from clinic.cases import Fact, read_cases, write_cases
from clinic.worth import is_normal, with_worth


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
    common = with_worth(seen[:1], seen)[0].facts[1].worth
    assert worth["Vital Signs: Pulse"] == 0.0
    assert worth["Echo: Findings"] > worth["History"] > common > 0.0
    assert all(0.0 <= value <= 1.0 for value in worth.values())


def test_only_training_cases_of_the_same_source_count(seen, make_case):
    stranger = make_case(case_id="x", source="other", facts=(Fact("History", True, "cough and fever"),))
    alone = with_worth([stranger], seen)[0].facts[0].worth
    assert alone == 1.0  # nothing is known of that source
    assert with_worth([stranger], [stranger])[0].facts[0].worth == 0.0


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
