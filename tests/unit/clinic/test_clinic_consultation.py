import asyncio

import pytest
from pydantic import ValidationError

from clinic.actions import diagnosis, parse, question, questions_in
from clinic.config import ConsultationParams
from clinic.consultation import Consultation, draw_turn_budget, privileged
from clinic.events import (
    Asked,
    Diagnosed,
    Ending,
    Examined,
    FoundPassage,
    Invalid,
    Searched,
    event_from_json,
    one_by_one,
    told_topics,
)
from clinic.language import EN
from clinic.matching import MATCH_THRESHOLD, TopicMatcher
from clinic.patients.scripted import ScriptedPatient

WORDINGS = {
    "pain": ("Does your chest hurt?",),
    "cough": ("Do you cough?", "Is there a cough at all?"),
    "sweat": ("Do you sweat at night?",),
    "smoking": ("Do you smoke?",),
    "fever": ("Do you have a fever?",),
}


@pytest.fixture
def seat(make_case, rules):
    def make(budget=4, library=None, params=None, **changes):
        case = make_case(**changes)
        return Consultation(
            case,
            ScriptedPatient(case, TopicMatcher(WORDINGS, MATCH_THRESHOLD).match),
            params or rules,
            budget,
            library,
        )

    return make


def take(consultation, *turns):
    return [asyncio.run(consultation.step(turn)) for turn in turns]


def test_opening_messages_and_budget_count_down(seat):
    consultation = seat(3)
    assert consultation.opening() == [
        {"role": "system", "content": EN.short},
        {"role": "user", "content": "My chest hurts. (3 left)"},
    ]
    first, second = take(consultation, question("Do you cough?"), question("Do you have a fever?"))
    assert (first.text, first.stop_reason) == ("Yes, I cough all day. (2 left)", None)
    assert (second.text, second.stop_reason) == ("No, I have no fever. (1 left)", None)
    assert first.event == Asked(
        text="Do you cough?", topic="cough", present=True, repeated=False, reply="Yes, I cough all day."
    )
    assert second.event.present is False


def test_full_instructions_are_a_choice(seat, rules):
    params = rules.model_copy(update={"instructions": "full"})
    assert seat(params=params).opening()[0]["content"] == EN.full


def test_a_diagnosis_ends_it_and_nothing_is_revived(seat):
    consultation = seat(5)
    (reply,) = take(consultation, diagnosis("Pneumonia", "Rest"))
    assert (reply.text, reply.stop_reason) == (None, Ending.DIAGNOSED)
    assert reply.event == Diagnosed("Pneumonia", "Rest")
    for turn in (question("Do you cough?"), diagnosis("Flu", ""), ""):
        with pytest.raises(RuntimeError, match="case c1: the consultation is over"):
            take(consultation, turn)


def test_running_out_of_turns_ends_it_and_nothing_is_revived(seat):
    consultation = seat(2)
    first, last = take(consultation, question("Do you cough?"), question("Do you smoke?"))
    assert first.stop_reason is None
    assert (last.text, last.stop_reason) == (None, Ending.OUT_OF_TURNS)
    assert last.event.topic == "smoking"
    with pytest.raises(RuntimeError, match="the consultation is over"):
        take(consultation, diagnosis("Pneumonia", ""))


def test_the_last_turn_may_be_the_diagnosis(seat):
    *_, last = take(seat(2), question("Do you cough?"), diagnosis("Flu", ""))
    assert last.stop_reason is Ending.DIAGNOSED
    (only,) = take(seat(1), diagnosis("Flu", ""))
    assert only.stop_reason is Ending.DIAGNOSED


def test_an_invalid_turn_costs_a_turn_and_says_why(seat):
    consultation = seat(3)
    first, second, third = take(consultation, "hello?", question("Fever? Cough?"), "")
    assert first.text == "Not understood: write exactly one <answer>...</answer> and nothing after it. (2 left)"
    assert first.event == Invalid("hello?", "write exactly one <answer>...</answer> and nothing after it")
    assert second.event.error.startswith("ask exactly one question")
    assert third.stop_reason is Ending.OUT_OF_TURNS


def test_repeats_are_by_meaning_by_text_and_from_the_opening(seat):
    asked = [
        "Do you cough?",
        "Is there a cough at all?",
        "do you COUGH ?",
        "What is your favourite song?",
        "What is your favourite song?",
        "Does your chest hurt?",
        "Do you smoke?",
    ]
    replies = take(seat(9), *map(question, asked))
    assert [reply.event.repeated for reply in replies] == [False, True, True, False, True, True, False]
    assert [reply.event.topic for reply in replies] == ["cough", "cough", "cough", None, None, "pain", "smoking"]
    assert replies[3].text == "I don't know. (5 left)"


def test_a_test_is_answered_like_a_question(seat):
    (reply,) = take(seat(), "<answer>Test: cough</answer>")
    assert isinstance(reply.event, Examined)
    assert reply.event.topic == "cough"


def passage(title, text, section=""):
    return FoundPassage(
        passage_id=f"{title}#0", title=title, section=section, text=text, source="a book", licence="CC0-1.0", score=0.5
    )


class Shelf:
    """A library of these passages, whose reader counts words; shows them whole as long as they fit."""

    def __init__(self, *passages):
        self.passages, self.asked = passages, []

    def tokens(self, text):
        return len(text.split())

    async def search(self, query, results, fits):
        self.asked.append((query, results))
        return next((found for n in range(results, 0, -1) if fits(found := self.passages[:n])), ())


def test_a_search_shows_so_many_passages_set_off_from_what_the_consultation_says(seat):
    library = Shelf(passage("A", "one", "Signs"), passage("B", ""), passage("C", "three"))
    (reply,) = take(seat(library=library), "<answer>Search: chest pain</answer>")
    assert library.asked == [("chest pain", 2)]
    assert reply.text == "Library <<\n[A#0] A, Signs: one\n[B#0] B\n>> (3 left)"
    assert reply.event == Searched("chest pain", library.passages[:2])
    assert take(seat(library=Shelf()), "<answer>Search: x</answer>")[0].text == "Nothing found. (3 left)"
    assert take(seat(), "<answer>Search: x</answer>")[0].text == "There is no knowledge base here. (3 left)"
    chinese = seat(library=Shelf(passage("痛风", "关节红肿。")), language="zh")
    assert take(chinese, "<answer>检索：关节</answer>")[0].text == "资料库<<\n[痛风#0] 痛风: 关节红肿。\n>>（还剩3轮）"


def test_the_whole_reply_is_within_the_budget_of_a_search(seat, rules):
    long = Shelf(passage("A", "word " * 40), passage("B", "word " * 40))
    for most, shown in ((100, 2), (60, 1)):
        (reply,) = take(
            seat(library=long, params=rules.model_copy(update={"search_tokens": most})), "<answer>Search: x</answer>"
        )
        assert len(reply.event.passages) == shown
        assert len(reply.text.split()) <= most


def test_what_was_looked_up_before_is_a_repeat(seat):
    replies = take(
        seat(9, library=Shelf(passage("A", "one"))),
        *(f"<answer>Search: {query}</answer>" for query in ("chest pain", "Chest  PAIN!", "pain in the chest")),
    )
    assert [reply.event.repeated for reply in replies] == [False, True, False]


def test_turn_budget_is_fixed_or_drawn_from_the_seed(rules):
    assert draw_turn_budget(rules, (1, 2)) == 4
    random = rules.model_copy(update={"turn_budget": -1})
    drawn = [draw_turn_budget(random, (7, step)) for step in range(300)]
    assert drawn == [draw_turn_budget(random, (7, step)) for step in range(300)]
    assert set(drawn) == set(range(2, 11))
    for impossible in (0, -2):
        with pytest.raises(ValidationError, match="is impossible; use a positive number of turns or -1"):
            ConsultationParams.model_validate(rules.model_dump() | {"turn_budget": impossible})


def test_privileged_information_is_the_chart(make_case):
    told = privileged(make_case())
    charts = told.pop("chart")
    assert "pneumonia" not in charts["facts"].lower()
    assert charts["facts_and_diagnosis"] == f"{charts['facts']} Diagnosis: Pneumonia"
    assert told == {
        "diagnosis_id": "pneumonia",
        "opening": ["pain"],
        "present": ["pain", "cough", "sweat", "smoking"],
    }


@pytest.mark.parametrize("mark", ["?", "？", "﹖", "؟", "\u037e", "⸮", "՞", "⁇", "❓"])
def test_a_second_question_mark_of_any_script_is_a_second_question(mark):
    assert parse(question(f"Do you cough{mark}")).kind == "question"
    assert parse(question(f"Do you cough{mark} Fever?")).kind == "invalid"
    assert parse(question(f"Do you cough{mark} Fever?"), max_questions=2).kind == "question"
    assert questions_in(f"Do you cough{mark} Fever?") == [f"Do you cough{mark}", "Fever?"]
    assert questions_in(f"{mark}{mark}") == []


def test_several_questions_of_a_turn_are_answered_up_to_the_limit_and_each_counts_as_a_turn(seat, rules):
    several = rules.model_copy(update={"max_questions": 2})
    consultation = seat(5, params=several)
    (reply,) = take(consultation, question("Do you cough? Do you have a fever? Do you smoke?"))
    assert reply.text == "Yes, I cough all day. No, I have no fever. (3 left)"
    assert [asked.topic for asked in one_by_one([reply.event])] == ["cough", "fever"]
    assert told_topics([reply.event]) == {"cough", "fever"}
    assert event_from_json(reply.event.to_json()) == reply.event
    again = take(consultation, question("Do you sweat at night? Do you cough?"))[0].event
    assert (again.repeated, again.further[0].repeated) == (False, True)


def test_no_more_questions_are_answered_than_turns_are_left(seat, rules):
    consultation = seat(2, params=rules.model_copy(update={"max_questions": 3}))
    (reply,) = take(consultation, question("Do you cough? Do you have a fever? Do you smoke?"))
    assert len(list(one_by_one([reply.event]))) == 2
    assert reply.stop_reason == Ending.OUT_OF_TURNS


def test_one_question_a_turn_is_recorded_as_ever(seat):
    (reply,) = take(seat(), question("Do you cough?"))
    assert "further" not in reply.event.to_json()
