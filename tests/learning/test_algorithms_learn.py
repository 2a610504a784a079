"""Every algorithm learns the toy consultation from its rewards alone: the policy knows the words, but not the game.

Three seeds of each, of which two must be solved; which three is for `--base-seed` to say. Variants of an algorithm and
those with a teacher play in `make course`, and all of them the harder game. How often each one learns over many seeds:
`python -m tests.learning.rates`.
"""

from functools import cache

import pytest
import torch

from rl.algorithms import ALGORITHMS
from rl.machine import available_cores
from tests.learning.course import CHANGES, GAMES, STEPS
from tests.learning.rates import processes, run
from tests.learning.toy import School, mean_reward

pytestmark = pytest.mark.timeout(900)  # a run waits for the cores that others have
SLOW = ("ppo_roa", "privileged_distillation")  # a teacher takes processor time
AT_LEISURE = (pytest.mark.slow, pytest.mark.course)
LEVELS = {
    "test_it_learns_to_look_and_to_say_what_it_saw": "easy",
    "test_it_learns_with_more_to_look_for_and_more_to_say": "hard",
}


@pytest.fixture
def one_thread():
    """Tensors this small gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def play(request, base_seed):
    """Gives the future of a run; a process a core plays them, each with one thread.

    The two that every chosen test needs wait in line from the first on.
    """
    with processes(available_cores()) as pool:
        start = cache(lambda name, level, seed: pool.submit(run, name, level, seed, 1))
        chosen = [
            item for item in request.session.items if item.module is request.module and "play" in item.fixturenames
        ]
        for item in chosen:
            for seed in (base_seed, base_seed + 1):
                start(item.callspec.params["name"], LEVELS[item.originalname], seed)
        yield start
        pool.shutdown(cancel_futures=True)


def test_all_algorithms_are_here():
    assert {name.split(",")[0] for name in CHANGES} == set(ALGORITHMS)


@pytest.mark.parametrize("level", GAMES)
def test_random_weights_do_not_speak_and_a_warm_start_only_guesses(level, base_seed, one_thread):
    school = School(GAMES[level], base_seed)
    assert mean_reward(school.rollout(16, 0, 1.0)) < 0
    school.warm_start(960)
    assert mean_reward(school.rollout(16, 0, 1.0)) < GAMES[level].blind


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[*AT_LEISURE]) if name in SLOW or "," in name else name for name in CHANGES],
)
def test_it_learns_to_look_and_to_say_what_it_saw(name, base_seed, play):
    two_of_three(play, name, "easy", base_seed)


@pytest.mark.slow
@pytest.mark.course
@pytest.mark.parametrize("name", CHANGES)
def test_it_learns_with_more_to_look_for_and_more_to_say(name, base_seed, play):
    two_of_three(play, name, "hard", base_seed)


def two_of_three(play, name, level, first):
    """The third is played only if it decides."""
    outcomes = []
    for seed in range(first, first + 3):
        outcomes.append(play(name, level, seed).result())
        assert outcomes[-1].speaks < GAMES[level].blind
        assert outcomes[-1].steps <= STEPS[level]
        solved = sum(outcome.solved for outcome in outcomes)
        if solved == 2 or len(outcomes) - solved == 2:
            break
    assert solved == 2, outcomes
