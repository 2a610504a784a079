"""The Bayes arithmetic against an enumeration of the generative story, written a second time from its description."""

import itertools
import math

import numpy as np
import pytest

FINDINGS = ("fever", "cough", "rash", "age")
COMPLAINT = (1.0, 0.5, 2.0, 0.0)
PRIOR = {"flu": 0.5, "measles": 0.1, "bronchitis": 0.4}
TABLE = {"flu": (0.9, 0.6, 0.05, 0.3), "measles": (0.8, 0.2, 0.95, 0.3), "bronchitis": (0.1, 0.97, 0.05, 0.7)}
SECOND = 0.4


def worlds():
    """Every (condition, opening, presence of the four findings) with its probability."""
    for condition, prior in PRIOR.items():
        weight = [p * w for p, w in zip(TABLE[condition], COMPLAINT, strict=True)]
        for first in range(4):
            for second in [None, *(i for i in range(4) if i != first)]:
                chance = weight[first] / sum(weight)
                chance *= 1 - SECOND if second is None else SECOND * weight[second] / (sum(weight) - weight[first])
                opening = (first,) if second is None else (first, second)
                others = [i for i in range(4) if i not in opening]
                for bits in itertools.product([True, False], repeat=len(others)):
                    presence = dict.fromkeys(opening, True) | dict(zip(others, bits, strict=True))
                    rest = math.prod(TABLE[condition][i] if presence[i] else 1 - TABLE[condition][i] for i in others)
                    yield condition, opening, presence, prior * chance * rest


WORLDS = [world for world in worlds() if world[3] > 0]


def test_the_enumeration_is_a_distribution():
    assert math.fsum(p for *_, p in WORLDS) == pytest.approx(1.0, abs=1e-12)


def test_posterior_equals_enumeration_for_every_opening_and_every_set_of_answers(toy):
    checked = 0
    for opening in sorted({world[1] for world in WORLDS}):
        others = [i for i in range(4) if i not in opening]
        for known in itertools.product([None, True, False], repeat=len(others)):
            answers = {i: bit for i, bit in zip(others, known, strict=True) if bit is not None}
            mass = dict.fromkeys(PRIOR, 0.0)
            for condition, heard, presence, p in WORLDS:
                if heard == opening and all(presence[i] == bit for i, bit in answers.items()):
                    mass[condition] += p
            expected = np.array(list(mass.values())) / sum(mass.values())
            np.testing.assert_allclose(toy.posterior(opening, answers), expected, atol=1e-12)
            checked += 1
    assert checked == 3 * 27 + 6 * 9


def test_posterior_without_an_opening_is_plain_bayes(toy):
    np.testing.assert_allclose(toy.posterior([], {}), [0.5, 0.1, 0.4])
    joint = np.array([0.5 * 0.9 * (1 - 0.6), 0.1 * 0.8 * (1 - 0.2), 0.4 * 0.1 * (1 - 0.97)])
    np.testing.assert_allclose(toy.posterior([], {0: True, 1: False}), joint / joint.sum())


def test_an_answer_about_the_opening_itself_changes_nothing(toy):
    np.testing.assert_array_equal(toy.posterior([2], {2: True}), toy.posterior([2], {}))


def entropy(*p: float) -> float:
    return -sum(x * math.log(x) for x in p if x > 0)


def test_information_gain_by_hand(toy):
    gain = toy.information_gain(np.array([0.5, 0.0, 0.5]))
    # fever: P(yes) = .5 (.9 + .1) = .5, and each answer leaves (.9, .1): ln 2 - H(.9, .1) = .693147 - .325083
    assert gain[0] == pytest.approx(0.368064, abs=1e-6)
    # rash: both conditions say .05, so the answer tells nothing
    assert gain[2] == pytest.approx(0.0, abs=1e-12)
    # age: P(yes) = .5 (.3 + .7) = .5, each answer leaves (.3, .7): ln 2 - H(.3, .7) = .693147 - .610864
    assert gain[3] == pytest.approx(0.082283, abs=1e-6)


def test_information_gain_is_the_expected_entropy_drop(toy):
    posterior = toy.posterior([1], {})
    gain = toy.information_gain(posterior)
    for column in (0, 2, 3):
        yes = float(posterior @ toy.probability_CF[:, column])
        after = yes * entropy(*toy.posterior([1], {column: True})) + (1 - yes) * entropy(
            *toy.posterior([1], {column: False})
        )
        assert gain[column] == pytest.approx(entropy(*posterior) - after, abs=1e-12)
    assert (gain >= -1e-12).all()


def test_a_sure_doctor_learns_nothing_more(toy):
    np.testing.assert_allclose(toy.information_gain(np.array([0.0, 1.0, 0.0])), 0.0, atol=1e-12)


def test_drawn_patients_follow_the_enumeration(toy):
    rng, n = np.random.default_rng(0), 20000
    counts: dict[tuple, int] = {}
    for _ in range(n):
        row, opening, present = toy.draw(rng)
        assert present[list(opening)].all()
        key = (toy.conditions[row].condition_id, opening, tuple(bool(x) for x in present))
        counts[key] = counts.get(key, 0) + 1
    expected = {(c, o, tuple(presence[i] for i in range(4))): p for c, o, presence, p in WORLDS}
    assert counts.keys() <= expected.keys()
    distance = sum(abs(counts.get(key, 0) / n - p) for key, p in expected.items()) / 2
    assert distance < 0.04
