"""A consultation as somebody follows it: a person as the patient, and a patient of the run."""

from pathlib import Path

import pytest

from clinic.cases import read_cases, write_cases
from clinic.errors import ClinicError
from clinic.ratings import ask_for_ratings, read_ratings, transcript_id
from clinic.starter import draw_cases, load_starter
from doctor.consult import Practice, held_out, rate
from doctor.parameters import ROOT, load_params

PARAMS = load_params()


class Listening:
    """Writes down what it is told, and answers from a list."""

    def __init__(self, answers=()):
        self.turns, self.replies, self.views, self.asked = [], [], [], []
        self.answers = iter(answers)

    def said(self, turn, thought, action):
        self.turns.append((turn, thought, action))

    def heard(self, reply, views):
        self.replies.append(reply)
        self.views.append(views)

    def ask(self, question):
        assert self.turns[-1][2].text == question  # it was told before it is answered
        self.asked.append(question)
        return next(self.answers)


@pytest.fixture(scope="module")
def practice(tmp_path_factory) -> Practice:
    """The bundled base model, in front of a few patients."""
    cases = tmp_path_factory.mktemp("cases")
    clinic = load_starter(ROOT / "data/starter", 0.8)
    write_cases(draw_cases(clinic, 60, 3, PARAMS.patient_cases.split), cases / "cases.parquet")
    return Practice(PARAMS, ROOT / "models/base", cases, Path("no index"))


def test_a_person_is_asked_each_question_and_every_turn_is_told(practice):
    seen = Listening(["I cough at night", "", *["no"] * 20])
    held = practice.with_person("I have a cough", "en", seen.ask, seen)
    assert len(seen.asked) >= 2
    assert [turn for turn, _, _ in seen.turns] == list(range(1, len(held.turns) + 1))
    said = [message["content"] for message in held.texts if message["role"] == "user"]
    assert said[0].startswith("I have a cough")
    assert said[1].startswith("I cough at night")
    assert said[2].startswith("I don't know")  # nothing was said
    assert seen.replies[-1].text is None
    assert all(not views for views in seen.views)
    assert all("<" not in action.text and "think" not in thought for _, thought, action in seen.turns)


def test_the_same_answers_give_the_same_consultation(practice):
    first, second = (practice.with_person("My knee hurts", "en", lambda _: "yes", Listening()) for _ in range(2))
    assert first.token_ids == second.token_ids


def test_bayes_follows_a_patient_of_the_starter_clinic(practice):
    case = practice.case(next(case.case_id for case in read_cases(practice.cases / "cases.parquet", "test")))
    seen = Listening()
    practice.with_case(case, seen)
    assert len(seen.views) == len(seen.turns) >= 2
    for views in seen.views:
        assert len(views) == 3
        shares = [share for _, share in views]
        assert shares == sorted(shares, reverse=True)
        assert 0 < sum(shares) <= 1
    told = [reply.event for reply in seen.replies if getattr(reply.event, "topic", None)]
    assert len(set(seen.views)) > 1 or not told


def test_an_unknown_case_is_refused_in_a_line(practice):
    with pytest.raises(ClinicError, match="no test case 'starter-x' in "):
        practice.case("starter-x")


def test_a_rating_is_what_the_reward_preset_reads_and_the_last_one_counts(practice, tmp_path):
    path = tmp_path / "ratings.jsonl"
    other = [{"role": "user", "content": "somebody else's words\u2028in two lines"}]
    ask_for_ratings(path, [("starter-1", other)])
    held = practice.with_person("My knee hurts", "en", lambda _: "yes", Listening())
    rate(path, held, 2)
    rate(path, held, 4)
    assert read_ratings(path) == {transcript_id(held.texts): 4.0}  # the other is still to be rated
    assert len(path.read_text(encoding="utf-8").split("\n")) == 3


def test_no_case_table_holds_no_cases(practice, tmp_path):
    assert held_out(tmp_path) == {}
    assert all(case.split == "test" for case in held_out(practice.cases).values())
