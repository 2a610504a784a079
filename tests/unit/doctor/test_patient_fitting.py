"""The weights of the decision are learned: the fit, what is left out of the lexicon for it, how its answers are counted."""

import random
from dataclasses import replace
from string import ascii_lowercase

import numpy as np
import pytest
from ruamel.yaml import YAML

from clinic.understanding.answering import Answering
from clinic.understanding.decision import FILE, Decision, decision
from clinic.understanding.evidence import Evidence
from clinic.understanding.lexicon import FILE as LEXICON
from clinic.understanding.phrases import parted
from doctor.parameters import ParameterError, load_params
from doctor.patient_calibration import BLIND, digest, untold_case
from doctor.patient_fitting import (
    FOLDS,
    HANDS,
    Asked,
    _Likelihood,
    _questions,
    _write,
    fit,
    fit_lines,
    remembering,
    remembering_pairs,
    shares,
    thinned,
)


def asked(values, answer):
    """A question to facts with these values of the one number that matters."""
    values = np.array(values)
    noise = np.random.default_rng(len(values)).normal(size=len(values))
    found = Evidence({"near": values, "noise": noise}, {"always": 1.0, "words": float(len(values))})
    answers = np.array([i == answer for i in range(len(values))])
    return Asked(
        hand="first",
        share=0.0,
        withheld=False,
        found=found,
        answers=answers,
        on_record=answer is not None,
        ruled=None,
    )


CASE = untold_case(
    "c", "records", "CC0-1.0", "A cough", [("History", "Cough for a week"), ("Social History", "Has never smoked")]
)

HEADED = ["History: Cough for a week", "Social History: Has never smoked"]


def by_letters(texts):
    """How often a text has each letter."""
    counts = np.array([[text.lower().count(letter) for letter in ascii_lowercase] for text in texts], dtype=np.float32)
    return counts / np.linalg.norm(counts, axis=1, keepdims=True)


SET = [
    asked([0.9, 0.1, 0.2], 0),
    asked([0.1, 0.8], 1),
    asked([0.1, 0.2, 0.1, 0.7], 3),
    asked([0.2, 0.1, 0.3], None),
    asked([0.1, 0.2], None),
] * 40


def test_what_tells_answers_from_others_is_learned():
    found = fit(SET, (0.5, 0.5))
    assert found.facts["near"] > 5 * abs(found.facts["noise"])
    assert found.probabilities(SET[0].found).argmax() == 0
    assert found.probabilities(SET[0].found)[0] > 0.7
    assert found.probabilities(SET[3].found).sum() < 0.4
    assert fit(SET, (0.5, 0.5)) == found
    assert found.answer(SET[3].found) is None


def test_the_gradient_is_that_of_the_loss():
    chance = np.random.default_rng(3)
    likelihood = _Likelihood(
        chance.normal(size=(5, 2)),
        chance.normal(size=(2, 2)),
        [np.array([True, False, True]), np.array([False, False])],
    )
    weights = chance.normal(size=4)
    _, slope = likelihood.loss(weights, 2)
    for k in range(4):
        step = np.eye(4)[k] * 1e-5
        by_steps = (likelihood.loss(weights + step, 2)[0] - likelihood.loss(weights - step, 2)[0]) / 2e-5
        assert slope[k] == pytest.approx(by_steps, rel=1e-4, abs=1e-6)


def decided(probabilities, answer):
    """A question whose facts have these probabilities, and weights that say so."""
    found = Evidence({"log": np.log(probabilities)}, {"log": float(np.log(1 - sum(probabilities)))})
    weights = Decision(answered=0.67, likeliest=0.4, facts={"log": 1.0}, none={"log": 1.0})
    return replace(asked(probabilities, answer), found=found), weights


def test_shares_at_a_threshold():
    pairs = [decided([0.8, 0.1], 0)] * 90 + [decided([0.6, 0.3], 1)] * 10
    pairs += [decided([0.85, 0.1], None)] * 4 + [decided([0.1, 0.1], None)] * 96
    assert shares(pairs, 0.5) == (0.9, 0.1, 0.04)
    assert shares(pairs, 0.89) == (0.9, 0.1, 0.04)
    assert shares(pairs, 0.93) == (0.0, 0.0, 0.04)
    assert shares([decided([0.35, 0.33], 0)], 0.6) == (0.0, 0.0, 0.0)  # likely that one answers, but not which


def test_wordings_are_left_out_by_a_seed():
    source = YAML(typ="safe").load(LEXICON)
    some, same, other = (thinned(source, 0.5, random.Random(seed)) for seed in (1, 1, 2))
    assert some == same != other
    cough = source["symptoms"]["cough"]
    assert some["symptoms"]["cough"]["broader"] == cough["broader"]
    assert "both" not in some["symptoms"]["cough"]
    whole = thinned(source, 0.0, random.Random(1))
    left = {
        side: sum(len(parted(entry[side])) for entry in some["symptoms"].values())
        / sum(len(parted(entry[side])) for entry in whole["symptoms"].values())
        for side in ("ask", "tell")
    }
    assert left == {"ask": pytest.approx(0.5, abs=0.05), "tell": pytest.approx(0.8, abs=0.05)}
    assert parted(whole["symptoms"]["cough"]["tell"]) == parted(cough["both"]) + parted(cough.get("tell", ""))


def test_the_file_is_what_the_clinic_reads(tmp_path):
    made = Decision(answered=0.7, likeliest=0.4, facts={"near": 1.23456}, none={"always": -2.0})
    _write(made, tmp_path / "decision.yaml")
    assert decision(tmp_path / "decision.yaml") == replace(made, facts={"near": 1.235})
    assert FILE.read_text().splitlines()[0].startswith("# Written by `python -m commands.calibration fit_patient`")


def test_a_folder_without_the_sets_writes_nothing(tmp_path):
    with pytest.raises(ParameterError, match="does not exist; give --cases"):
        fit_lines(load_params(), tmp_path, tmp_path)
    assert not list(tmp_path.iterdir())
    assert sorted(hand for fold in FOLDS for hand in fold) == sorted(HANDS)
    assert not set(BLIND) & set(HANDS)


def test_a_text_is_embedded_once():
    asked = []

    def embed(texts):
        asked.extend(texts)
        return np.array([[len(text), 1] for text in texts], dtype=np.float32)

    once = remembering(embed)
    assert once(["a", "bb", "a"]).tolist() == [[1, 1], [2, 1], [1, 1]]
    assert once(["bb", "ccc"]).tolist() == [[2, 1], [3, 1]]
    assert asked == ["a", "bb", "ccc"]


def test_a_question_on_record_is_asked_again_without_its_answers(monkeypatch):
    rows = [
        {"case_id": "c", "question": "Do you smoke?", "answers": [digest(CASE.facts[1])]},
        {"case_id": "c", "question": "Have you been abroad?", "answers": []},
    ]
    monkeypatch.setattr("doctor.patient_fitting.HANDS", {"first": ("open",)})
    monkeypatch.setattr("doctor.patient_fitting.read_lines", lambda _: rows)
    learned = Answering(np.eye(26, dtype=np.float32), np.eye(26, dtype=np.float32))
    read = []

    def compare(question, texts):
        read.append((question, list(texts)))
        return np.zeros(len(texts), dtype=np.float32)

    whole, withheld, off = _questions({"c": CASE}, by_letters, learned, compare, 0.0, 0)
    assert (whole.on_record, whole.withheld, whole.answers.tolist()) == (True, False, [False, True])
    assert (withheld.on_record, withheld.withheld, withheld.answers.tolist()) == (False, True, [False])
    assert (off.on_record, off.withheld, off.answers.tolist()) == (False, False, [False, False])
    assert whole.ruled == 1
    assert withheld.ruled is None
    assert whole.found.facts["answer"] == pytest.approx(2 * whole.found.facts["nearest"])
    assert [len(one.found.facts["cross"]) for one in (whole, withheld, off)] == [2, 1, 2]
    assert [sorted(texts) for _, texts in read] == [sorted(HEADED), HEADED[:1], sorted(HEADED)]


def test_a_pair_is_read_once():
    read = []

    def compare(question, texts):
        read.append((question, list(texts)))
        return np.array([len(text) for text in texts], dtype=np.float32)

    once = remembering_pairs(compare)
    assert once("q", ["a", "bb"]).tolist() == [1, 2]
    assert once("q", ["bb", "ccc"]).tolist() == [2, 3]
    assert once("other", ["a"]).tolist() == [1]
    assert once("q", ["a"]).tolist() == [1]
    assert read == [("q", ["a", "bb"]), ("q", ["ccc"]), ("other", ["a"])]
