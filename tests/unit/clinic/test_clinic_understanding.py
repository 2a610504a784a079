"""What a question asks for and what a fact tells: by type and by meaning, on a record written for this test."""

import asyncio
import time
from dataclasses import replace

import numpy as np
import pytest

from clinic.cases import Fact
from clinic.patients.base import question_matcher
from clinic.patients.llm import LanguageModelPatient
from clinic.patients.scripted import ScriptedPatient
from clinic.understanding.coordination import written_out
from clinic.understanding.lexicon import english, stem
from clinic.understanding.matcher import QuestionMatcher
from clinic.understanding.record import _COUNTER_QUESTION, kind_of, record_of

FACTS = {
    "Demographics": "51-year-old woman",
    "History (1)": "Cramping pain in the upper abdomen began six days ago and comes on an hour after meals.",
    "History (2)": "The pain goes through to the back and is eased by sitting forward.",
    "History (3)": "Her mother had gallstones.",
    "Symptoms: Secondary Symptoms": "Nausea",
    "Past Medical History": "Type 2 diabetes, treated with metformin; appendectomy at 20.",
    "Allergies": "Penicillin causes hives.",
    "Social History (1)": "Works as a baker and lives with her sister.",
    "Social History (2)": "Ten cigarettes a day; no alcohol.",
    "Review of Systems": "Denies fever, jaundice and any urinary symptoms.",
    "Vital Signs: Blood Pressure": "142/88 mmHg",
    "Blood Work: Lipase": "Normal",
}


@pytest.fixture
def record(make_case):
    return make_case(
        self_report="My stomach hurts (51-year-old woman)",
        opening=("Demographics",),
        facts=tuple(Fact(topic, True, text) for topic, text in FACTS.items()),
        source="records",
        persona="plain",
    )


def ask(patient, text):
    return asyncio.run(patient.answer(text))


@pytest.mark.parametrize(
    ("question", "topic"),
    [
        ("How long has this been going on?", "History (1)"),
        ("When did your tummy start to ache?", "History (1)"),
        ("What sort of pain is it?", "History (1)"),
        ("Does it spread anywhere?", "History (2)"),
        ("Is there anything that makes it better?", "History (2)"),
        ("Do any illnesses run in your family?", "History (3)"),
        ("Have you felt queasy?", "Symptoms: Secondary Symptoms"),
        ("Are you diabetic?", "Past Medical History"),
        ("Which tablets do you take?", "Past Medical History"),
        ("Have you ever been operated on?", "Past Medical History"),
        ("Is there any drug you react badly to?", "Allergies"),
        ("What is your job?", "Social History (1)"),
        ("Who's at home with you?", "Social History (1)"),
        ("Do you smoke?", "Social History (2)"),
        ("How much do you drink?", "Social History (2)"),
        ("Have you been running a temperature?", "Review of Systems"),
        ("Have your eyes turned yellow?", "Review of Systems"),
        ("Does it sting when you pass water?", "Review of Systems"),
    ],
)
def test_a_question_is_understood_by_type_and_by_meaning(record, question, topic):
    answer = ask(ScriptedPatient(record, None), question)
    assert answer.topic == topic
    assert answer.text == FACTS[topic]  # as it stands: a denial stays one


@pytest.mark.parametrize(
    "question",
    [
        "Is there blood in your stool?",  # not the blood pressure
        "Do you have a cough?",
        "Does your mother have asthma?",  # not her gallstones
        "Do you have gallstones?",  # her mother's are not hers
        "Have you been abroad?",
        "Does your shoulder hurt?",
        "Do you keep pigeons?",
        "What was your blood pressure?",
        "Was the lipase normal?",
        "",
        "?!",
    ],
)
def test_what_is_not_on_record_is_not_known(record, question):
    assert ask(ScriptedPatient(record, None), question).topic is None


def test_a_list_of_all_symptoms_is_no_question(record):
    match = question_matcher(record)
    assert match("Any nausea, vomiting, fever, chills or weight loss?") is not None
    assert match("Any nausea, vomiting, fever, chills, weight loss, cough, rash or headache?") is None
    assert match("nausea vomiting fever chills weight loss cough rash headache?") is None


def test_tests_reach_what_was_examined_and_nothing_else(record):
    patient = ScriptedPatient(replace(record, persona="reluctant"), None)
    assert [one.text for one in asyncio.run(patient.examine("Vital signs: blood pressure"))] == ["142/88 mmHg"]
    for topic, text in FACTS.items():
        told = {one.topic for one in asyncio.run(patient.examine(text))}
        assert told <= {None, "Vital Signs: Blood Pressure", "Blood Work: Lipase"}, topic


@pytest.mark.parametrize(
    ("topic", "text", "kind"),
    [
        ("Review of Systems: Psychiatric (2)", "Anxious", "history"),
        ("Medications", "None", "history"),
        ("Do you have any blood test results?", "No", "history"),
        ("Abdominal Examination: Palpation", "Soft", "test"),
        ("Rheumatoid Factor: Result", "Negative", "test"),
        ("Note (3)", "On examination the abdomen is soft.", "test"),
        ("Note (4)", "The pain is worse at night.", "history"),
        ("血常规", "白细胞升高", "test"),
        ("既往史", "高血压", "history"),
    ],
)
def test_the_heading_says_who_knows_a_fact(topic, text, kind):
    assert kind_of(Fact(topic, True, text)) == kind


def test_a_recorded_answer_counts_for_what_it_answers(make_case):
    facts = (
        Fact("How long has it been? Is it severe?", True, "Six months."),
        Fact("Do you have a fever? Do you cough?", True, "No."),
        Fact("Are your bowels normal?", True, "I live by the sea and could not come earlier because of the storm."),
    )
    match = question_matcher(make_case(facts=facts, self_report="A sore knee", opening=(), source="records"))
    assert match("Since when?") == facts[0].topic
    assert match("Have you been coughing?") == facts[1].topic
    assert match("Any diarrhoea?") is None
    assert match(facts[2].topic) == facts[2].topic  # the very question of the record


def test_other_languages_are_matched_by_words_and_only_against_the_history(make_case):
    facts = (Fact("咳嗽", True, "咳嗽三天，有痰"), Fact("化验", True, "咳嗽变异性检查：白细胞升高"))
    match = question_matcher(make_case(facts=facts, language="zh", opening=(), source="records"))
    assert match("你咳嗽吗？") == "咳嗽"
    assert match("白细胞升高吗？") is None


def vectors(texts):
    """Stand-in embeddings: everything about moods is near everything about moods."""
    rows = np.array(
        [[1.0, 0.1] if {"wistful", "gloomy"} & set(text.lower().strip("?.").split()) else [0.0, 1.0] for text in texts]
    )
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_embeddings_answer_where_the_lexicon_names_nothing(make_case):
    facts = (Fact("History (1)", True, "He grew gloomy."), Fact("History (2)", True, "Cough"))
    case = make_case(facts=facts, opening=(), self_report="-", source="records")
    assert QuestionMatcher(record_of(case)).match("Somewhat wistful?") is None
    assert QuestionMatcher(record_of(case), vectors).match("Somewhat wistful?") == "History (1)"
    assert QuestionMatcher(record_of(case), vectors).by_rules("Wistful rash?") is None  # named, and not on record


def test_an_empty_record_knows_nothing(make_case):
    case = make_case(facts=(), opening=(), source="records")
    assert QuestionMatcher(record_of(case), vectors).match("Do you cough?") is None


def test_a_model_that_says_it_does_not_know_has_told_nothing(record):
    async def unknowing(messages):
        return "I don't know."

    answer = ask(LanguageModelPatient(record, None, unknowing), "Do you smoke?")
    assert (answer.text, answer.topic) == ("I don't know.", None)


def test_the_lexicon_knows_its_own_names():
    lexicon = english()
    known = set(lexicon.kinds)
    assert all(wider <= known for wider in lexicon.broader.values())
    assert set(lexicon.headings) <= known | set(lexicon.aspects["ask"])
    assert lexicon.broader["knee_pain"] >= {"leg_pain", "joint_pain", "pain"}
    read = lexicon.read("Any bleeding between periods?", "ask")
    assert read.concepts == {"vaginal_bleeding"}  # the longer phrase stands for itself
    assert lexicon.read("What makes it better or worse?", "ask").aspects == {"aggravate", "relieve"}
    assert (stem("vomiting"), stem("was")) == ("vomit", "was")


LISTS = {
    "no back/loin pain": "no back pain or loin pain",
    "pain in your chest, jaw or arm": "pain in chest or pain in jaw or pain in arm",
    "no neck pain/stiffness": "no neck pain or neck stiffness",
    "a sore throat and a cold": "a sore throat and a cold",
}


@pytest.mark.parametrize(("listed", "written"), LISTS.items())
def test_lists_of_parts_of_the_body_are_written_out(listed, written):
    assert written_out(listed) == written


@pytest.mark.parametrize(
    ("question", "concepts", "aspects"),
    [
        ("Any low mood or loss of interest?", {"low_mood", "anhedonia"}, set()),
        ("Are your testicles sore or tender?", {"testicular_pain"}, set()),
        ("How long have you had this?", set(), {"onset", "time"}),
        ("How long does each attack last?", set(), {"pattern"}),
        ("At what time of day is it worst?", set(), {"timing"}),
        ("Have you had this kind of pain before?", {"pain"}, {"previous"}),
        ("Does it come on when you walk?", set(), {"aggravate"}),
        ("Do you get breathless when you walk?", {"breathlessness"}, {"occasion"}),
        ("Has your appendix been taken out?", {"appendix"}, set()),
        ("Do you drink enough water?", {"fluids"}, set()),
        ("How much coffee do you drink?", {"caffeine"}, {"amount"}),
        ("Has anyone else in the family been ill?", {"sick_contacts"}, set()),
    ],
)
def test_what_a_question_names_is_parted_from_what_it_asks(question, concepts, aspects):
    read = english().read(question, "ask")
    assert read.concepts == concepts
    assert read.aspects == aspects


def test_passing_over_patterns_changes_no_reading():
    lexicon = english()
    slow = replace(lexicon, starts={})
    texts = [*FACTS.values(), *LISTS, "Any E+D issues, N/V or pins and needles?", "T2DM, HTN; SOBOE ++"]
    assert any(lexicon.starts["ask"].values())
    for side in ("ask", "tell"):
        assert [lexicon.read(text, side) for text in texts] == [slow.read(text, side) for text in texts]


OTHERS = {
    "Note (1)": "Chest pain for two hours, worse after meals.",
    "Note (2)": "Ankle swelling since last year",
    "Note (3)": "Taking ibuprofen, no relief",
    "Note (4)": "Works in a shoe factory",
    "Note (5)": "Ate porridge this morning",
    "Note (6)": "No mucus, no blood",
    "Note (7)": "Hx eczema as a child, used creams ? which.",
    "Note (8)": "Expect to be better in a week",
    "Note (9)": "Unable to obtain a sleep history",
    "PMH": "Smokes ten a day",
}


@pytest.mark.parametrize(
    ("question", "topic"),
    [
        ("How long has the chest pain been there?", "Note (1)"),
        ("How long has it been going on?", "Note (1)"),  # and not how long the ankles have been swollen
        ("Is it worse after eating?", "Note (1)"),
        ("Is it worse when you lie down?", None),  # another circumstance
        ("Did you take antibiotics?", None),  # another medicine
        ("Have you taken any painkillers?", "Note (3)"),
        ("Have you had a takeaway?", None),  # a narrower question
        ("What did you eat today?", "Note (5)"),
        ("Did you have eczema when you were small?", "Note (7)"),  # "?" in a note is a doubt, no counter-question
        ("When will it be over?", None),  # what the clinician expects
        ("How do you sleep?", None),
        ("Any past illnesses?", "Note (7)"),  # and no habit, though under "past medical history"
        ("Do you smoke?", "PMH"),
    ],
)
def test_what_is_near_is_no_answer(make_case, question, topic):
    facts = tuple(Fact(heading, True, text) for heading, text in OTHERS.items())
    case = make_case(facts=facts, self_report="My chest hurts", opening=(), source="records")
    assert question_matcher(case)(question) == topic


def test_blood_is_that_of_the_complaint(make_case):
    facts = (Fact("Note", True, "No mucus, no blood"),)
    for complaint, found in (("I have diarrhoea", "Note"), ("My ear aches", None)):
        case = make_case(facts=facts, self_report=complaint, opening=(), source="records")
        assert question_matcher(case)("Is there blood in your stools?") == found


def test_the_patient_of_whom_a_relative_tells_is_no_family_history(make_case):
    facts = (Fact("Are there medicines that your mother can't take?", True, "She has no drug allergies."),)
    for report, found in (("My mother has a cough", facts[0].topic), ("I have a cough", None)):
        case = make_case(facts=facts, self_report=report, opening=(), source="records")
        assert question_matcher(case)("Is she allergic to any medicine?") == found


def test_a_sentence_as_long_as_a_chart_is_read_in_its_length():
    began = time.process_time()
    assert _COUNTER_QUESTION.sub(" ", "It was" + " long" * 20_000 + ". Why? He fell. Is it") == "It was" + (
        " long" * 20_000 + ".  He fell. Is it"
    )
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    ("fact", "question"),
    [
        ("I have had a pericarditis", "Have you ever had a pericarditis?"),
        ("I have never had a pericarditis", "Have you ever had a pericarditis?"),
        ("Has coughed up a little blood", "Have you brought up any blood?"),
        ("Keeps pigeons in the garden", "Any pets?"),
        ("Quit drinking ten years ago", "Do you drink alcohol?"),
    ],
)
def test_a_fact_is_found_however_it_is_put(make_case, fact, question):
    facts = (Fact("a", True, "Works in a bakery"), Fact("b", True, fact))
    assert question_matcher(make_case(facts=facts, opening=()))(question) == "b"
