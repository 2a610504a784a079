"""What speaks for a fact, weighed: the numbers of the evidence, and the fact that is told or none."""

import numpy as np
import pytest

from clinic.cases import Fact
from clinic.understanding.answering import Answering
from clinic.understanding.asking import Asking
from clinic.understanding.comparison import CANDIDATES, LEAST, compared
from clinic.understanding.decision import CROSS_ENCODER, FILE, Decision, decision
from clinic.understanding.evidence import Evidence, lead
from clinic.understanding.matcher import QuestionMatcher
from clinic.understanding.record import record_of

WORDS = ("cough", "smoke", "garden")


def embed(texts):
    """A coordinate for each of `WORDS` that a text has, and one for none of them."""
    rows = np.array([[float(word in text.lower()) for word in WORDS] + [0.2] for text in texts])
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


KNOWN = Asking(
    ("cough", "smoking", "onset"), frozenset({"onset"}), embed(["Do you cough?", "Do you smoke?", "When?"]), embed
)


def weighed(facts, none, likeliest=0.5):
    return Decision(answered=0.5, likeliest=likeliest, facts=facts, none=none)


@pytest.fixture
def matcher(make_case):
    facts = (
        Fact("History", True, "Cough for a week"),
        Fact("Social History", True, "Has never smoked. Works in a garden."),
        Fact("Do you have a fever?", False, "No."),
        Fact("Chest X-ray", True, "Normal"),
    )
    case = make_case(facts=facts, opening=(), self_report="A cough", source="records")
    return QuestionMatcher(record_of(case), embed, KNOWN)


def test_the_evidence_holds_what_the_decision_weighs_and_no_more(matcher):
    found = matcher.evidence("Do you smoke?")
    assert set(found.facts) == set(decision().facts)
    assert set(found.none) == set(decision().none)
    assert all(len(numbers) == len(matcher.topics) == 3 for numbers in found.facts.values())


def test_the_numbers_of_a_question(matcher):
    found = matcher.evidence("Do you smoke?")
    assert found.facts["choice"].tolist() == [0, 1, 0]
    assert found.facts["complaint"].tolist() == [1, 0, 0]
    assert found.facts["nearest"].argmax() == found.facts["score"].argmax() == 1
    assert found.facts["meaning"].argmax() == 1
    assert found.facts["answer"].tolist() == found.facts["nearest"].tolist()  # to this embedder no map is known
    assert found.facts["lead"][1] > 0 > found.facts["lead"][0]
    assert found.none["chosen"] == found.none["on_record"] == 1
    assert found.none["known"] == pytest.approx(1)
    off = matcher.evidence("Have you been abroad?")
    assert off.none["chosen"] == off.none["on_record"] == 0


def test_a_map_brings_what_answers_nearer(make_case):
    facts = (Fact("History", True, "Cough"), Fact("Social History", True, "Works in a garden"))
    record = record_of(make_case(facts=facts, opening=(), self_report="A cough", source="records"))
    smoke_to_garden = Answering(np.eye(4, dtype=np.float32)[:, [1]], np.eye(4, dtype=np.float32)[:, [2]])
    found = QuestionMatcher(record, embed, KNOWN, smoke_to_garden).evidence("Do you smoke?")
    assert found.facts["answer"][1] > 0.9 + found.facts["nearest"][1]
    assert found.facts["answer"][0] == pytest.approx(found.facts["nearest"][0])


def test_the_nearest_sentence_and_the_recorded_question_count(matcher):
    assert matcher.evidence("Garden?").facts["nearest"][1] == pytest.approx(1, abs=1e-5)
    hot = matcher.evidence("Zzz?").facts["nearest"]
    assert hot[2] == pytest.approx(1)  # "Do you have a fever?" has none of the words either


@pytest.mark.parametrize(("score", "told"), [(1.0, 1), (-1.0, None)])
def test_the_likeliest_fact_is_told_where_none_is_less_likely(score, told):
    weights = weighed({"score": 1.0}, {"always": 0.0})
    found = Evidence({"score": np.array([-3.0, score])}, {"always": 1.0})
    assert weights.probabilities(found).sum() < 1
    assert weights.answer(found) == told


def test_two_facts_that_both_answer_do_not_keep_each_other_silent():
    found = Evidence({"score": np.array([1.0, 1.1, -3.0])}, {"always": 1.0})
    probabilities = weighed({"score": 1.0}, {"always": 1.0}).probabilities(found)
    assert probabilities.max() < 0.4 < 0.6 < probabilities.sum()
    assert weighed({"score": 1.0}, {"always": 1.0}, likeliest=0.35).answer(found) == 1
    assert weighed({"score": 1.0}, {"always": 1.0}, likeliest=0.4).answer(found) is None  # it could be either
    assert weighed({"score": 1.0}, {"always": 2.0}, likeliest=0.1).answer(found) is None  # as likely that none does


def test_probabilities_of_large_sums_are_finite():
    found = Evidence({"score": np.array([1e4, 0.0])}, {"always": 1.0})
    assert weighed({"score": 1.0}, {"always": 1.0}).probabilities(found).tolist() == [1.0, 0.0]


def test_a_fact_leads_by_what_it_is_before_the_best_other():
    assert lead(np.array([0.2, 0.9, 0.5])).tolist() == pytest.approx([-0.7, 0.4, -0.4])
    assert lead(np.array([0.9, 0.9])).tolist() == [0, 0]
    assert lead(np.array([0.3])).tolist() == [0.3]


def test_hybrid_patients_tell_what_the_weights_choose(matcher, monkeypatch):
    assert matcher.match("Do you have a fever?") == "Do you have a fever?"  # the very question of the record
    monkeypatch.setattr("clinic.understanding.matcher.decision", lambda _: weighed({"nearest": 9.0}, {"always": 7.0}))
    assert matcher.match("Garden?") == "Social History"
    monkeypatch.setattr("clinic.understanding.matcher.decision", lambda _: weighed({"nearest": 1.0}, {"always": 9.0}))
    assert matcher.match("Do you smoke?") is None
    assert matcher.by_rules("Do you smoke?") == "Social History"


def test_a_cross_encoder_reads_the_nearest_facts_and_none():
    read = []

    def compare(question, texts):
        read.append((question, list(texts)))
        return np.array([0.0, 40.0, -1.0, -40.0, 0.0], dtype=np.float32)

    near = np.array([0.1, 0.9, 0.8, 0.7, 0.2, 0.3, 0.0])
    found = compared("Q", list("abcdefg"), near, compare)
    assert read == [("Q", ["b", "c", "d", "f", "e"])]
    assert CANDIDATES == 5
    assert found["cross"].tolist() == [LEAST, 0, 8, -1, 0, LEAST, LEAST]
    odds = np.exp(found["cross"])
    assert found["cross_share"] == pytest.approx(odds / (odds.sum() + 1))


def test_with_a_cross_encoder_its_numbers_are_weighed_too(make_case, monkeypatch):
    facts = (Fact("History", True, "Cough"), Fact("Social History (2)", True, "Works in a garden"))
    record = record_of(make_case(facts=facts, opening=(), self_report="A cough " * 20, source="records"))
    read = []

    def compare(question, texts):
        read.append((question, list(texts)))
        return np.array([9.0 if "garden" in text else -9.0 for text in texts], dtype=np.float32)

    matcher = QuestionMatcher(record, embed, KNOWN, compare=compare)
    found = matcher.evidence("Fond of roses?")
    assert set(found.facts) == set(decision(CROSS_ENCODER).facts)
    assert set(found.none) == set(decision(CROSS_ENCODER).none)
    assert set(found.facts) - set(decision(FILE).facts) == {"cross", "cross_share"}
    ((question, texts),) = read
    assert question == ("A cough " * 20)[:60] + " ? Fond of roses?"
    assert sorted(texts) == ["History: Cough", "Social History: Works in a garden"]
    assert found.facts["cross"].tolist() == [-6, 8]
    weights = {
        FILE: weighed({"nearest": 1.0}, {"always": 9.0}),
        CROSS_ENCODER: weighed({"cross": 1.0}, {"always": 0.0}),
    }
    monkeypatch.setattr("clinic.understanding.matcher.decision", weights.get)
    assert matcher.match("Fond of roses?") == "Social History (2)"
    assert QuestionMatcher(record, embed, KNOWN).match("Fond of roses?") is None


def test_without_embeddings_the_rules_decide(make_case):
    case = make_case(facts=(Fact("SH", True, "Smokes"),), opening=(), self_report="-", source="records")
    lexical = QuestionMatcher(record_of(case))
    assert lexical.match("Do you smoke?") == "SH"
    with pytest.raises(ValueError, match="no evidence"):
        lexical.evidence("Do you smoke?")
