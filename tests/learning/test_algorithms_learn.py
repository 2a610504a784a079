"""Every algorithm learns the toy consultation from its rewards alone: the policy knows the words, but not the game.

Three seeds of each, of which two must be solved; which three is for `--base-seed` to say. How often each one learns over many seeds: `python -m tests.learning.rates`.
"""

import pytest
import torch

from rl.algorithms import ALGORITHMS
from tests.learning.course import CHANGES, GAMES, STEPS, learn
from tests.learning.toy import School, mean_reward


@pytest.fixture(autouse=True)
def one_thread():
    """Tensors this small gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_all_algorithms_are_here():
    assert {name.split(",")[0] for name in CHANGES} == set(ALGORITHMS)


@pytest.mark.parametrize("level", GAMES)
def test_random_weights_do_not_speak_and_a_warm_start_only_guesses(level, base_seed):
    school = School(GAMES[level], base_seed)
    assert mean_reward(school.rollout(16, 0, 1.0)) < 0
    school.warm_start(960)
    assert mean_reward(school.rollout(16, 0, 1.0)) < GAMES[level].blind


@pytest.mark.parametrize("name", CHANGES)
def test_it_learns_to_look_and_to_say_what_it_saw(name, base_seed):
    two_of_three(name, "easy", base_seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_it_learns_with_more_to_look_for_and_more_to_say(name, base_seed):
    two_of_three(name, "hard", base_seed)


def two_of_three(name, level, first):
    """The third is played only if it decides."""
    outcomes = []
    for seed in range(first, first + 3):
        outcomes.append(learn(name, level, seed))
        assert outcomes[-1].speaks < GAMES[level].blind
        assert outcomes[-1].steps <= STEPS[level]
        solved = sum(outcome.solved for outcome in outcomes)
        if solved == 2 or len(outcomes) - solved == 2:
            break
    assert solved == 2, outcomes
