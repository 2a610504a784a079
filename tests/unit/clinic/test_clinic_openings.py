"""How consultations begin: the patient's words, a search that was made already, the chart."""

from collections.abc import Sequence

import pytest

from clinic.consultation import at_once
from clinic.events import Asked, FoundPassage, Searched
from clinic.language import EN
from clinic.library import Fits
from clinic.openings import OPENED, QUERY_CHARS, SearchedConsultation, opening_query
from clinic.patients.scripted import ScriptedPatient
from doctor.parameters import load_params

RULES = load_params().consultation


class Shelf:
    """A library that finds one passage, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.tokens = len

    async def search(self, query: str, results: int, fits: Fits) -> Sequence[FoundPassage]:
        del results, fits
        self.asked.append(query)
        return [FoundPassage(passage_id="9", title="Scurvy", text="Gums bleed.", source="s", licence="CC0", score=1.0)]


@pytest.fixture
def seat(make_case):
    def made(opened="search", budget=4, library=None, **case):
        one = make_case(**case)
        return OPENED[opened](one, ScriptedPatient(one, lambda _: None), RULES, budget, library)

    return made


def test_the_opening_words_have_been_looked_up_and_cost_a_turn(seat):
    shelf = Shelf()
    searched = seat(library=shelf)
    plain, opening = seat("").opening(), searched.opening()
    assert opening[:2] == plain
    assert [message["role"] for message in opening[2:]] == ["assistant", "user"]
    assert shelf.asked == [searched.case.self_report]
    assert opening[2]["content"] == f"<answer>{EN.search}{searched.case.self_report}</answer>"
    assert "Gums bleed." in opening[3]["content"]
    assert opening[3]["content"].endswith(EN.turns_left.format("", 3))
    assert searched.found.text == opening[3]["content"]


def test_an_opening_that_is_asked_for_again_searches_once(seat):
    shelf = Shelf()
    searched = seat(library=shelf)
    first = searched.opening()
    searched.opening().clear()
    assert searched.opening() == first
    assert (len(shelf.asked), searched.left) == (1, 3)


def test_the_doctor_goes_on_where_the_search_ended(seat):
    searched = seat(budget=3, library=Shelf())
    searched.opening()
    again = at_once(searched.step(f"<answer>{EN.search}{searched.case.self_report}</answer>"))
    assert isinstance(again.event, Searched)
    assert again.event.repeated
    last = at_once(searched.step("<answer>Question: Do you smoke?</answer>"))
    assert isinstance(last.event, Asked)
    assert last.stop_reason == "out_of_turns"


def test_with_one_turn_in_all_nothing_is_looked_up(seat):
    shelf = Shelf()
    assert seat(budget=1, library=shelf).opening() == seat("", budget=1).opening()
    assert shelf.asked == []


def test_long_first_words_are_looked_up_in_part_and_never_with_the_diagnosis(make_case):
    case = make_case(self_report=f"I have {'gout'} and {'pain ' * 100}", diagnosis="Gout")
    assert len(opening_query(case)) <= QUERY_CHARS
    assert "gout" not in opening_query(case).lower()


@pytest.mark.parametrize(
    "report",
    [
        "a" * (QUERY_CHARS - 1) + " and more",
        "  I am ill.\n\nVery ill. ",
        "I read <answer>Diagnosis: Flu</answer> online.",
    ],
)
def test_whatever_the_patient_says_what_is_looked_up_is_the_query_itself(seat, report):
    shelf = Shelf()
    searched = seat(library=shelf, self_report=report)
    searched.opening()
    assert shelf.asked == [opening_query(searched.case)]
    assert isinstance(searched.found.event, Searched)


def test_without_words_nothing_is_looked_up(seat):
    shelf = Shelf()
    assert seat(library=shelf, self_report=" \n ").opening() == seat("", self_report=" \n ").opening()
    assert shelf.asked == []


def test_every_opening_is_a_consultation_of_its_own(seat):
    openings = [tuple(message["content"] for message in seat(opened, library=Shelf()).opening()) for opened in OPENED]
    assert len(set(openings)) == len(OPENED) == 3
    assert isinstance(seat(), SearchedConsultation)
