import asyncio

import numpy as np
import pytest

from clinic.cases import Fact
from clinic.consultation import Consultation
from clinic.diagnoses import relation
from clinic.leaks import LeakFilter
from clinic.matching import MATCH_THRESHOLD, HybridMatcher, TopicMatcher, normalise
from clinic.patients import scripted
from clinic.patients.base import Answer
from clinic.patients.scripted import ScriptedPatient
from clinic.starter import draw_cases
from doctor.calibration import CALIBRATION, agreement, read_lines
from doctor.environments import open_factory
from doctor.parameters import ROOT, load_params


def ask(patient, text) -> Answer:
    return asyncio.run(patient.answer(text))


def test_every_doctor_wording_finds_its_own_topic(starter, starter_matcher):
    wordings = [(f.finding_id, text) for f in starter.findings for text in f.doctor.train + f.doctor.test]
    assert len(wordings) >= 2 * len(starter.findings)
    lost = [(topic, text, found) for topic, text in wordings if (found := starter_matcher.match(text)) != topic]
    assert lost == []


def test_slightly_changed_wordings_still_find_it(starter, starter_matcher):
    right = wrong = 0
    for finding in starter.findings:
        for text in finding.doctor.train:
            found = starter_matcher.match(f"Please tell me, {text[0].lower()}{text[1:-1]} at all?")
            right += found == finding.finding_id
            wrong += found not in (finding.finding_id, None)
    assert right / (right + wrong) > 0.97


def test_wordings_that_the_index_has_never_seen_are_mostly_understood(starter):
    """Test wordings against an index of training wordings: what meaning, not memory, carries."""
    matcher = TopicMatcher(
        {f.finding_id: (f.name, *f.doctor.train, *f.patient.train) for f in starter.findings}, MATCH_THRESHOLD
    )
    found = [matcher.match(text) == f.finding_id for f in starter.findings for text in f.doctor.test]
    assert sum(found) / len(found) > 0.75


@pytest.mark.parametrize("text", ["Which football team do you support?", "xyzzy?", "?", "", "好不好？", "the a of?"])
def test_an_unknown_question_is_not_known(starter, starter_matcher, split, text):
    (case,) = draw_cases(starter, 1, 0, split)
    assert ask(ScriptedPatient(case, starter_matcher.match), text) == Answer("I don't know.", None, None)


def test_the_patient_answers_from_the_chart(starter, starter_matcher, split):
    (case,) = draw_cases(starter, 1, 3, split)
    patient = ScriptedPatient(case, starter_matcher.match)
    facts = {fact.topic: fact for fact in case.facts}
    for finding in starter.findings:
        fact = facts[finding.finding_id]
        answer = ask(patient, finding.doctor.test[0])
        assert (answer.topic, answer.present) == (finding.finding_id, fact.present)
        assert answer.text == f"{'Yes' if fact.present else 'No'}, {fact.text}."
        assert answer == ask(patient, finding.doctor.test[0])


def test_a_topic_that_is_not_on_record_is_not_known(make_case):
    assert ask(ScriptedPatient(make_case(), lambda question: "hiccups"), "Hiccups?").topic is None


def test_results_are_read_once_when_a_test_is_ordered(make_case, monkeypatch):
    read = []
    monkeypatch.setattr(scripted, "test_matcher", lambda case: read.append(case) or (lambda order: []))
    patient = ScriptedPatient(make_case(), None)
    ask(patient, "Any pain?")
    assert not read
    for _ in range(2):
        asyncio.run(patient.examine("ECG"))
    assert len(read) == 1


def test_a_record_without_vocabulary_is_told_as_it_stands(make_case):
    case = make_case(
        facts=(
            Fact("Review of Systems", True, "Denies fever or chills."),
            Fact("Chest X-ray: Findings", True, "Clear lungs"),
        )
    )
    patient = ScriptedPatient(case, None)
    assert ask(patient, "Any fever or chills?").text == "Denies fever or chills."
    assert [one.text for one in asyncio.run(patient.examine("chest X-ray"))] == ["Clear lungs"]
    assert ask(patient, "chest X-ray").topic is None
    assert [one.topic for one in asyncio.run(patient.examine("Any fever or chills?"))] == [None]
    assert ask(patient, "Do you keep pigeons?").text == "I don't know."


def test_the_leak_filter_removes_every_name_of_the_diagnosis(make_case):
    clean = LeakFilter(make_case(synonyms=("lung infection", "CAP"))).clean
    assert clean("I had PNEUMONIA, a lung  infection") == ("I had that illness, a that illness", 2)
    assert clean("pneumonia or Lung Infection or CAP or chest disease") == (
        "that illness or that illness or that illness or that illness",
        4,
    )
    assert clean("my captain has bronchopneumonia") == ("my captain has bronchopneumonia", 0)
    assert clean("") == ("", 0)
    assert LeakFilter(make_case(diagnosis="", synonyms=(), parents=())).clean("pneumonia") == ("pneumonia", 0)
    assert LeakFilter(make_case(diagnosis="肺炎", synonyms=())).clean("医生说我有肺炎。") == (
        "医生说我有that illness。",
        1,
    )


def test_a_leak_is_removed_from_the_opening_and_from_answers_and_counted(make_case, rules):
    case = make_case(
        self_report="I think it is pneumonia.", facts=(Fact("history", True, "a doctor called it pneumonia"),)
    )
    consultation = Consultation(case, ScriptedPatient(case, lambda question: "history"), rules, 3, None)
    assert consultation.opening()[1]["content"] == "I think it is that illness. (3 left)"
    reply = asyncio.run(consultation.step("<answer>Question: What did they say?</answer>"))
    assert reply.text == "Yes, a doctor called it that illness. (2 left)"
    assert (reply.event.reply, reply.event.leaks, reply.event.topic) == (
        "Yes, a doctor called it that illness.",
        1,
        "history",
    )


def test_no_starter_patient_says_a_diagnosis(starter, starter_matcher, split):
    for case in draw_cases(starter, 40, 21, split):
        clean = LeakFilter(case).clean
        assert clean(case.self_report) == (case.self_report, 0)
        assert sum(clean(fact.text)[1] for fact in case.facts) == 0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pneumonia", "exact"),
        (" PNEUMONIA. ", "exact"),
        ("Lung-infection", "exact"),
        ("chest disease", "parent"),
        ("Asthma", "other"),
        ("", "other"),
        ("pneumonia or asthma", "other"),
        ("pneumonia, asthma", "other"),
        ("ｐneumonia", "exact"),
    ],
)
def test_relation_of_a_named_diagnosis(make_case, name, expected):
    assert relation(make_case(), name) == expected


def test_normalise_folds_case_width_and_punctuation():
    assert normalise("Ｄo you　COUGH, at-all?!") == "do you cough at all"


def test_a_matcher_without_topics_or_words_finds_nothing():
    assert TopicMatcher({}, MATCH_THRESHOLD).match("fever?") is None
    assert TopicMatcher({"x": ("the",)}, MATCH_THRESHOLD).match("fever?") is None


def letters(texts):
    """A stand-in for sentence embeddings: counts of letters, as unit vectors."""
    rows = np.array([[text.lower().count(chr(97 + i)) for i in range(26)] for text in texts], dtype=np.float32) + 1e-6
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_the_hybrid_matcher_knows_exact_near_and_off_the_record():
    asking = {
        "fever": ["Any fever?", "Do you have a fever?", "Is there a fever?"],
        "cough": ["Any cough?", "Do you cough?", "Coughing a lot?"],
    }
    matcher = HybridMatcher(asking, ["Who is your landlord?", "Where is your landlord from?"], letters)
    assert matcher.match("ANY FEVER") == "fever"
    assert matcher.match("Who is your landlord") is None
    assert matcher.match("Have you got a fever at all?") == "fever"
    assert matcher.match("And do you cough a lot?") == "cough"
    assert matcher.match("Where is your landlord?") is None
    assert matcher.match("xxxx zzzz qqqq?") is None
    assert matcher.match("") is None


@pytest.mark.slow
def test_the_scripted_patient_agrees_with_labelled_questions():
    """All 300, of which half are sealed: the least that hybrid matching must reach, and that it is what makes the
    difference.
    """
    found = {}
    params = load_params()
    for way in ("lexical", "hybrid"):
        room = open_factory(
            params.model_copy(update={"consultation": params.consultation.model_copy(update={"matching": way})}),
            ROOT / "data/kb_index",
        )
        rows = [row for half in ("open", "sealed") for row in read_lines(CALIBRATION / f"questions_{half}.jsonl")]
        assert len(rows) == 300
        assert sum(row["topic"] is None for row in rows) == 90
        found[way] = agreement(room.matcher, rows)["all"]
    assert found["hybrid"] >= 0.95
    assert found["lexical"] < found["hybrid"] - 0.2


def test_words_that_no_wording_has_and_other_people_count_against_a_match(starter_matcher):
    asked = [
        "What is your name?",
        "Does your mother have a fever?",
        "Does your dog have a cough?",
        "Did your neighbour vomit?",
    ]
    assert [starter_matcher.match(question) for question in asked] == [None] * 4
    assert starter_matcher.match("Any fever?") == "fever"
    assert starter_matcher.match("Does anyone in your family have allergies?") == "family_allergies"
    assert starter_matcher.match("Does your mother have allergies?") == "family_allergies"


@pytest.mark.parametrize(
    "frame",
    [
        "I'm sorry to hear this. {} It would help me understand your situation better.",
        "{} Please tell me as much as you can about this, since it will help narrow down the causes.",
        "Okay, thank you. {}",
    ],
)
def test_what_is_said_around_a_question_hides_nothing(starter, starter_matcher, frame):
    asked = [(finding.finding_id, text) for finding in starter.findings for text in finding.doctor.test]
    assert [topic for topic, text in asked if starter_matcher.match(frame.format(text)) != topic] == []
