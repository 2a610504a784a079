"""The map of answers is learned: what is said in other words than it was asked is found, and what answers nothing is not."""

import numpy as np
import pytest

from doctor import answer_fitting
from doctor.answer_fitting import Pairing, _Likelihood, fit_map

ASKED = ("smoke", "drink", "travel", "sleep")
TOLD = ("cigarettes", "beer", "abroad", "insomnia")
WORDS = (*ASKED, *TOLD)


def embed(texts):
    """A coordinate for each word: questions and what is told have none in common."""
    rows = np.array([[float(word in text) for word in WORDS] + [0.1] for text in texts], dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def pairing(question, facts, answer):
    answers = np.array([fact == answer for fact in facts])
    return Pairing(question=question, texts=[[fact, f"{fact} too"] for fact in facts], answers=answers)


PAIRINGS = [
    pairing(asked, [told for told in TOLD if told != withheld], right)
    for asked, right in zip(ASKED, TOLD, strict=True)
    for withheld in (None, right)
] * 8


def test_an_answer_in_other_words_is_learned_to_be_near():
    learned = fit_map(PAIRINGS, embed)
    told = embed(TOLD)
    for i, question in enumerate(embed(ASKED)):
        assert (told @ question).argmax() == 0  # by the cosine alone they are all alike
        near = learned.nearness(question, told)
        assert near.argmax() == i
        assert near[i] > np.delete(near, i).max() + 0.2


def test_the_same_map_is_learned_again():
    first, again = fit_map(PAIRINGS, embed), fit_map(PAIRINGS, embed)
    assert np.array_equal(first.asks_DK, again.asks_DK)
    assert np.array_equal(first.tells_DK, again.tells_DK)
    assert first.asks_DK.shape == (len(WORDS) + 1, answer_fitting.COLUMNS)


def test_the_gradient_of_the_map_is_that_of_the_loss(monkeypatch):
    monkeypatch.setattr(answer_fitting, "COLUMNS", 2)
    likelihood = _Likelihood(PAIRINGS[:5], embed)
    chance = np.random.default_rng(1)
    found = np.concatenate([chance.normal(scale=0.3, size=2 * likelihood.dimensions * 2), [1.0, 0.5]])
    _, slopes = likelihood.loss(found)
    for k in (*range(0, len(found) - 2, 5), len(found) - 2, len(found) - 1):
        step = np.eye(len(found))[k] * 1e-2
        by_steps = (likelihood.loss(found + step)[0] - likelihood.loss(found - step)[0]) / 2e-2
        assert slopes[k] == pytest.approx(by_steps, rel=0.02, abs=0.02)
