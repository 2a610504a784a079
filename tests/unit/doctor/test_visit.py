"""A consultation in a thread: told turn by turn, answered, left in the middle."""

import threading
import time

import pytest

from clinic.actions import Action, Kind
from clinic.consultation import Reply
from clinic.errors import ClinicError
from clinic.events import Diagnosed, Ending, Examined, FoundPassage, Searched
from doctor.consult import Practice
from doctor.parameters import ROOT, load_params
from doctor.told import lines_heard, lines_said
from doctor.visit import Office, Visit
from rl.experience import Trajectory


def threads() -> int:
    return sum(thread.name == "consultation" for thread in threading.enumerate())


@pytest.fixture(scope="module")
def practice(tmp_path_factory) -> Practice:
    """The bundled base model; only people come."""
    nowhere = tmp_path_factory.mktemp("nothing")
    return Practice(load_params(), ROOT / "models/base", nowhere / "cases", nowhere / "index")


class _Deaf:
    def said(self, *_):
        pass

    def heard(self, *_):
        pass


def _answers():
    said = iter(["for three days", *["no"] * 20])
    return lambda _: next(said)


def visit(practice, patience_s=30.0, complaint="I have a cough") -> Visit:
    return Visit(
        lambda ask, audience: practice.with_person(complaint, "en", ask, audience), practice.budget, patience_s
    )


def test_turns_are_told_until_an_answer_is_wanted_and_to_the_end(practice):
    begun = visit(practice)
    first = list(begun.told())
    assert begun.asked
    assert [one.turn for one in first] == [1]
    assert first[0].left == practice.budget - 1
    assert not list(begun.told())  # it waits
    begun.answer("for three days")
    second = list(begun.told())
    assert second[0].turn == 1
    assert ("Patient", "for three days") in second[0].lines
    while begun.held is None:
        begun.answer("no")
        list(begun.told())
    assert isinstance(begun.held, Trajectory)
    again = practice.with_person("I have a cough", "en", _answers(), _Deaf())
    assert begun.held.token_ids == again.token_ids  # a thread changes nothing
    begun.leave()
    assert threads() == 0


def test_whoever_leaves_ends_it_and_the_doctor_is_free(practice):
    begun = visit(practice)
    list(begun.told())
    begun.leave()
    assert (threads(), begun.open, list(begun.told())) == (0, False, [])
    another = visit(practice)
    assert [one.turn for one in another.told()] == [1]
    another.leave()
    unheard = visit(practice)  # left before the first turn is told
    unheard.leave()
    assert threads() == 0


def test_no_answer_for_long_ends_it_in_a_line(practice):
    begun = visit(practice, patience_s=0.05)
    list(begun.told())
    time.sleep(0.3)
    assert not begun.open
    begun.answer("too late")
    with pytest.raises(ClinicError, match=r"no answer for 0\.05 s"):
        list(begun.told())
    assert list(begun.told()) == []


def test_what_breaks_it_reaches_whoever_follows():
    def broken(ask, audience):
        raise ClinicError("the knowledge base is away")

    begun = Visit(broken, 8)
    with pytest.raises(ClinicError, match="the knowledge base is away"):
        list(begun.told())


def test_a_doctor_sees_one_visitor_at_a_time(practice):
    office = Office()
    first = office.begin("anna", lambda: visit(practice))
    with pytest.raises(ClinicError, match="with another visitor"):
        office.begin("ben", lambda: visit(practice))
    second = office.begin("anna", lambda: visit(practice))  # a new start ends the old one
    assert (first.open, second.open, threads()) == (False, True, 1)
    office.leave("ben")  # who is not there
    assert second.open
    office.leave("anna")
    third = office.begin("ben", lambda: visit(practice))
    office.close()
    assert (third.open, threads()) == (False, 0)


def test_a_doctor_that_cannot_be_loaded_leaves_the_door_open(practice):
    office = Office()

    def missing():
        raise ClinicError("no model there")

    with pytest.raises(ClinicError, match="no model there"):
        office.begin("anna", missing)
    assert office.begin("ben", lambda: visit(practice)).open
    office.close()


def test_a_turn_in_lines():
    diagnosis = Action(Kind.DIAGNOSIS, "Flu", recommendation="Rest")
    assert lines_said("Likely viral", diagnosis) == [
        ("thinks", "Likely viral"),
        ("Doctor [diagnosis]", "Flu"),
        ("advice", "Rest"),
    ]
    assert lines_said("", Action(Kind.QUESTION, "Fever?")) == [("Doctor", "Fever?")]
    assert lines_said("", Action(Kind.INVALID, "hm", error="one answer"))[1] == ("not understood", "one answer")
    passage = FoundPassage(passage_id="1", title="Cough", text="…", source="s", licence="CC0", score=0.5)
    assert lines_heard(Reply("Cough: … (3 turns left)", Searched("cough", (passage,)), None), ()) == [
        ("found", "Cough")
    ]
    assert lines_heard(Reply("nothing", Searched("cough"), None), ()) == [("found", "nothing")]
    seen = Examined(text="X-ray", topic=None, present=None, repeated=False, reply="It is clear.")
    assert lines_heard(Reply("It is clear. (3 turns left)", seen, None), [("Flu", 0.5), ("Cold", 0.25)]) == [
        ("Patient", "It is clear."),
        ("Bayes", "Flu 50%, Cold 25%"),
    ]
    assert lines_heard(Reply(None, Diagnosed("Flu"), Ending.DIAGNOSED), ()) == []
