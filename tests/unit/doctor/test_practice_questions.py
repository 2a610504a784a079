"""Practice questions: what the files hold, and which of them are learned from."""

from collections import Counter

from clinic.cases import Case, Fact
from doctor import practice_questions
from doctor.calibration import read_lines
from doctor.patient_calibration import digest, untold_case
from doctor.practice_questions import INVENTED, PUBLIC, invented, practised

ROWS = read_lines(INVENTED)


def test_invented_patients_are_of_three_kinds_of_record_and_their_labels_name_facts():
    assert len({row["case"] for row in ROWS}) == len(ROWS) == 315
    assert Counter(row["kind"] for row in ROWS) == {"A": 105, "B": 105, "C": 105}
    for row in ROWS:
        assert set(row) == {"case", "kind", "report", "facts", "questions"}
        assert all(heading.strip() and text.strip() for heading, text in row["facts"])
        assert len({one["q"] for one in row["questions"]}) == len(row["questions"]) == 14
        assert all(1 <= number <= len(row["facts"]) for one in row["questions"] for number in one["answers"])
    off = sum(not one["answers"] for row in ROWS for one in row["questions"])
    assert 0.3 < off / (14 * len(ROWS)) < 0.45


def test_an_invented_patient_is_a_case_with_questions():
    row = {
        "case": "X0-001",
        "kind": "C",
        "report": "Cough 2 months",
        "facts": [["Note", "Cough 2/12."], ["Note", "No CP."], ["SH", "Smokes."]],
        "questions": [
            {"q": "Smoker?", "answers": [3]},
            {"q": "Any pain?", "answers": [2]},
            {"q": "Asthma?", "answers": []},
        ],
    }
    case, labelled = invented(row)
    assert (case.case_id, case.self_report) == ("X0-001", "Cough 2 months")
    assert [fact.text for fact in case.facts] == ["Cough 2/12.", "No CP.", "Smokes."]
    assert labelled == [
        ("Smoker?", {case.facts[2].topic}),
        ("Any pain?", {case.facts[1].topic}),
        ("Asthma?", set()),
    ]
    assert len({fact.topic for fact in case.facts}) == 3


def test_what_only_an_examination_answers_is_not_learned_from(monkeypatch):
    case: Case = untold_case(
        "c", "records", "CC0-1.0", "A cough", [("History", "Cough for a week"), ("Chest X-ray", "Normal")]
    )
    cough, xray = case.facts
    rows = {PUBLIC: [row("How long?", [cough]), row("X-ray?", [xray]), row("Smoker?", [])], INVENTED: ROWS[:1]}
    monkeypatch.setattr(practice_questions, "read_lines", rows.__getitem__)
    first, second, *others = practised({"c": case})
    assert (first.question, first.answers.tolist(), first.complaint) == ("How long?", [True], "A cough")
    assert first.headed == ["History: Cough for a week"]
    assert (second.question, second.answers.tolist()) == ("Smoker?", [False])
    assert len(others) == 14


def row(question: str, answers: list[Fact]) -> dict[str, object]:
    """A line of the public practice questions."""
    return {"case_id": "c", "question": question, "answers": [digest(fact) for fact in answers], "writer": "first 1"}
