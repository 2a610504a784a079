"""What a question wants beside its subject: a time, a side, a colour, what is taken regularly, what is set aside; and
symptoms that lie near each other.
"""

import pytest

from clinic.cases import Fact
from clinic.patients.base import question_matcher
from clinic.understanding.lexicon import english


@pytest.fixture
def ask(make_case):
    def asked(question, *texts, report="My skin is blotchy", headings=()):
        names = headings or [f"History ({n})" for n in range(len(texts))]
        facts = tuple(Fact(name, True, text) for name, text in zip(names, texts, strict=True))
        match = question_matcher(make_case(facts=facts, self_report=report, opening=(), source="records"))
        return {fact.topic: fact.text for fact in facts}.get(match(question))

    return asked


STARTED = "The rash started on the trunk and spread to the limbs."
LASTED = "He is here with a rash of two days."


@pytest.mark.parametrize(
    ("question", "texts", "told"),
    [
        ("When did the rash appear?", (STARTED, LASTED), LASTED),  # a time goes before a beginning
        ("Where did the rash start?", (LASTED, STARTED), STARTED),
        ("When did the rash appear?", (STARTED,), STARTED),
        ("When was he diagnosed with diabetes?", ("Type 2 diabetes.", "Itchy rash for a week."), None),
        (
            "When was he diagnosed with diabetes?",
            ("Diabetes since 2015.", "Itchy rash for a week."),
            "Diabetes since 2015.",
        ),
        ("When were you diagnosed?", ("Itchy rash for a week.",), None),
        ("How old were you when it began?", ("A 40-year-old man.",), None),
        ("How long have you worked there?", ("Works as an accountant.",), None),
        ("How long have you smoked?", ("Non-smoker.",), "Non-smoker."),
        ("Did you go abroad before it came on?", ("Back from a holiday in Spain.",), "Back from a holiday in Spain."),
    ],
)
def test_a_question_about_a_time_wants_a_time(ask, question, texts, told):
    assert ask(question, *texts) == told


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("Which side is the rash on?", "Blotchy rash of the left arm."),
        ("What colour is the rash?", None),
    ],
)
def test_a_side_or_a_colour_must_be_told(ask, question, told):
    assert ask(question, "A bad rash on the arm.", "Blotchy rash of the left arm.") == told
    assert ask("What colour is the rash?", "A pink rash.") == "A pink rash."


def test_a_denial_tells_nothing_of_where_and_how(ask):
    facts = ("The patient denies headache, belly pain or cough.",)
    assert ask("Do you have a headache?", *facts) == facts[0]
    assert ask("Where is the headache?", *facts) is None


def test_what_was_taken_for_a_while_is_no_regular_medicine(ask):
    given = "She was treated with amoxicillin tablets for ten days."
    taken = "On long-term lisinopril and other tablets for blood pressure."
    assert ask("Which tablets do you take day in, day out?", given, taken) == taken
    assert ask("Which tablets do you take regularly?", given) is None


def test_what_a_question_sets_aside_is_no_answer(ask):
    facts = ("Asthma since childhood.", "Had a stroke in 2010.")
    headings = ("Past Medical History (1)", "Past Medical History (2)")
    assert ask("Any other illness besides asthma?", *facts, headings=headings) == facts[1]
    assert ask("Any other illness besides asthma?", facts[0], headings=headings[:1]) is None


def test_a_recorded_answer_about_something_else_answers_the_same_kind_of_question(ask):
    report, answer = "I have belly pain", "Three days. I feel bloated, too."
    assert (
        ask("When did the pain start?", answer, report=report, headings=("How long has this been going on?",)) == answer
    )
    bloated = "A bit bloated today, yes."
    assert ask("When did the pain start?", bloated, report=report, headings=("Do you feel bloated?",)) is None


@pytest.mark.parametrize(
    ("question", "fact"),
    [
        ("Any ringing in your ears?", "No ear pain, and hearing is normal."),
        ("Have you any sores in your mouth?", "Dry mouth."),
        ("Is your voice hoarse?", "Speech is slurred."),
        ("How is your memory?", "Difficulty concentrating."),
        ("Is your hair falling out?", "Hair growth on the chin."),
        ("Do you get pain in the belly?", "Painless papules on the belly."),
        ("Is your nose blocked or runny?", "Diarrhoea."),
        ("Are you under stress at work?", "Works as an accountant."),
        ("Are you able to work at the moment?", "Works as an accountant."),
        ("Have they tested a stool sample?", "Loose stools three times a day."),
        ("Did anybody else who ate it get ill?", "I ate two pears."),
        ("Is the child growing well?", "It was put down to growing pains."),
        ("Have you been in hospital before?", "The man comes to the emergency department with a rash."),
        ("Have you travelled?", "Cannot climb a flight of stairs."),
        ("Are you short of breath?", "No antibiotics other than for pneumonia."),
        ("How much do you weigh?", "Lost 3 kg."),
    ],
)
def test_near_neighbours_are_told_apart(ask, question, fact):
    assert ask(question, fact) is None


SYMPTOMS = {
    "Is there a hissing noise in your ears?": "tinnitus",
    "Do your eyelids droop?": "ptosis",
    "Have the whites of your eyes gone yellow?": "jaundice",
    "Are your stools pale like clay?": "pale_stool",
    "Do you see any slime in your stools?": "stool_mucus",
    "Any lump on a testicle?": "testicular_lump",
    "Do your hands go cold and white?": "cold_hands",
    "Do you see double?": "double_vision",
    "Do you get flashes or floaters?": "floaters",
    "Do you make yourself sick after meals?": "purging",
    "Do you keep away from places that remind you of it?": "avoidance",
    "Does the baby's soft spot bulge?": "fontanelle",
    "Have you a coil or an implant?": "contraception",
    "Do your gums bleed?": "gum_bleeding",
    "Have you had shingles?": "shingles",
}


@pytest.mark.parametrize(("question", "concept"), SYMPTOMS.items())
def test_lay_words_name_their_symptom_and_no_other(question, concept):
    assert english().read(question, "ask").concepts == {concept}
