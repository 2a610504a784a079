"""Questions in words that the lexicon lacks, understood by the nearest known question; and what a question does not ask."""

import re
from dataclasses import replace

import numpy as np
import pytest
from ruamel.yaml import YAML

from clinic.cases import Fact
from clinic.understanding.asking import FILE, Asking, asking
from clinic.understanding.lexicon import english
from clinic.understanding.matcher import QuestionMatcher
from clinic.understanding.record import kind_of, record_of

LEXICON = english()


def ask(*cosines):
    """An embedder for which every text has these coordinates, whatever it says."""
    return lambda texts: np.tile(np.array(cosines, dtype=np.float32), (len(texts), 1))


def known(cosines, concepts=("smoking", "travel", "onset")):
    """Three known questions at right angles, and a question with these cosines to them."""
    return Asking(concepts, frozenset({"onset"}), np.eye(3, dtype=np.float32), ask(*cosines))


def read(question):
    return LEXICON.read(question, "ask")


def test_every_known_question_asks_for_something_that_the_lexicon_has():
    source = YAML(typ="safe").load(FILE)
    assert set(source["concepts"]) <= set(LEXICON.kinds)
    assert set(source["aspects"]) <= set(LEXICON.aspects["ask"])
    questions = [
        q.strip() for part in source.values() for texts in part.values() for q in re.findall(r"[^?]+\?", texts)
    ]
    assert len(questions) == len(set(questions)) >= 600
    assert all(text.strip().endswith("?") for part in source.values() for text in part.values())


def test_the_lexicon_itself_understands_most_known_questions():
    source = YAML(typ="safe").load(FILE)
    pairs = [(name, q) for name, texts in source["concepts"].items() for q in re.findall(r"[^?]+\?", texts)]
    understood = [
        name in read(q).concepts or any(name in LEXICON.broader[c] for c in read(q).concepts) for name, q in pairs
    ]
    assert np.mean(understood) >= 0.9


def test_the_nearest_question_says_what_is_asked():
    question = "Do you zzz qqq?"
    assert known((0.9, 0.3, 0.1)).understood(question, read(question), LEXICON).concepts == {"smoking"}
    assert known((0.1, 0.3, 0.9)).understood(question, read(question), LEXICON).aspects == {"onset"}


@pytest.mark.parametrize("cosines", [(0.64, 0.3, 0.1), (0.9, 0.87, 0.1)])
def test_a_question_far_from_all_or_between_two_is_not_understood(cosines):
    question = "Do you zzz qqq?"
    assert known(cosines).understood(question, read(question), LEXICON) == read(question)


def test_a_kind_of_the_same_thing_is_no_rival():
    asked = known((0.9, 0.88, 0.1), ("headache", "pain", "onset"))
    assert asked.understood("Do you zzz?", read("Do you zzz?"), LEXICON).concepts == {"headache"}


def test_what_the_lexicon_knows_is_not_asked_of_the_embedder():
    for question in ("Have you been abroad?", "How long has it been going on?"):
        assert known((0.9, 0.1, 0.1)).understood(question, read(question), LEXICON) == read(question)
    since = "When did the qqq start?"
    found = known((0.9, 0.1, 0.1)).understood(since, read(since), LEXICON)
    assert (found.concepts, found.aspects) == ({"smoking"}, {"onset", "time"})


def test_the_known_questions_are_embedded_once():
    calls = []

    def embed(texts):
        calls.append(len(texts))
        return np.ones((len(texts), 2), dtype=np.float32)

    assert asking(embed) is asking(embed)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("question", "concepts"),
    [
        ("Are your testicles sore or tender?", {"testicular_pain"}),
        ("How many pillows do you sleep on?", {"orthopnoea"}),
        ("Do you work with dust or chemicals?", {"exposure"}),
        ("Do you ever miss your tablets?", {"adherence"}),
        ("Do you drink more water than you used to?", {"thirst"}),
        ("Does it hurt to swallow?", {"swallowing"}),
        ("Any bleeding in between your monthlies?", {"vaginal_bleeding"}),
        ("Do you get puffed climbing the stairs?", {"breathlessness"}),
        ("Have you been under the knife?", {"surgery"}),
        ("How many fags do you get through?", {"smoking"}),
    ],
)
def test_a_question_asks_for_the_narrowest_that_it_names(question, concepts):
    assert read(question).concepts == concepts


def test_aspects_that_a_phrase_only_seems_to_ask_for():
    assert read("Did it come on suddenly?").aspects == {"manner"}
    assert "location" not in read("On a scale of nought to ten, where would you put it?").aspects
    assert "amount" not in read("How many days has it been?").aspects


@pytest.fixture
def matcher(make_case):
    facts = {
        "PC (1)": "HPC: cramps round the navel, getting worse.",
        "SH": "Teacher, lives alone",
        "PMH": "Nil",
        "DH": "Ramipril for high blood pressure",
        "Ex": "No rash seen",
    }
    case = make_case(facts=tuple(Fact(t, True, text) for t, text in facts.items()), source="records", opening=())
    return QuestionMatcher(record_of(replace(case, self_report="Stomach ache")))


@pytest.mark.parametrize(
    ("question", "topic"),
    [
        ("Is it getting any worse?", "PC (1)"),
        ("Have you been abroad, and who do you live with?", "SH"),
        ("Do you take anything for your blood pressure?", "DH"),
        ("Have you had your appendix removed?", None),
        ("Any rashes?", None),
    ],
)
def test_the_fact_that_answers(matcher, question, topic):
    assert matcher.match(question) == topic


def test_findings_under_ex_are_of_an_examination():
    assert kind_of(Fact("Ex (2)", True, "No rash seen")) == "test"
    assert kind_of(Fact("Exercise", True, "Runs")) == "history"
