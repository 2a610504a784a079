"""Every algorithm learns the toy consultation from its rewards alone: the policy knows the words, but not the game."""

import time

import pytest
import torch

from rl.algorithms import ALGORITHMS, make_algorithm
from tests.learning.toy import EASY, HARD, SAMPLES, School, mean_reward
from tests.recipes import recipe

GROUPED = {"own_turn": [], "credit": "turn"}
BY_GROUP = GROUPED | {"divide_by_std": "group"}
ONCE = {"num_epochs": 1}
ONLINE = {"margin": 0.05, "pairs_per_group": 8}
CHANGES = {
    "grpo": BY_GROUP,
    "grpo, episode credit": BY_GROUP | {"credit": "episode"},
    "dr_grpo": GROUPED | {"constant_length": 4, "entropy_coefficient": 0.03, "optimizer": ONCE},
    "rloo": GROUPED | {"kl": {"place": "reward", "estimator": "k1", "coefficient": 1e-3}, "entropy_coefficient": 0.03, "optimizer": ONCE},
    "reinforce_pp": {"baseline": "none", "entropy_coefficient": 0.08, "optimizer": ONCE},
    "reinforce_pp, group baseline": {"baseline": "group", "entropy_coefficient": 0.08, "optimizer": ONCE},
    "dapo": BY_GROUP | {"dynamic_sampling": {"max_draws": 3, "by": "reward"}, "overlong": {"max_tokens": 8, "buffer_tokens": 2, "penalty": 0.1}},
    "gspo": BY_GROUP | {"clip_low": 0.1, "clip_high": 0.1},
    "cispo": BY_GROUP,
    "ppo": {"trace": 0.95, "critic": {"learning_rate": 2e-3, "trunk": "own"}, "entropy_coefficient": 0.05},
    "ppo, shared trunk": {"trace": 0.95, "critic": {"learning_rate": 5e-3, "trunk": "shared"}, "entropy_coefficient": 0.05, "optimizer": ONCE},
    "online_dpo": ONLINE | {"beta": 1.0},
    "online_dpo, and the chosen's likelihood": ONLINE | {"beta": 0.3, "chosen_weight": 1.0},
    "dpo": {"group_size": 32, "margin": 1.05, "pairs_per_group": 8, "beta": 0.5, "chosen_weight": 1.0, "optimizer": {"num_epochs": 4, "learning_rate": 4e-3}},
}
MORE = {"group_size": 32, "optimizer": {"learning_rate": 1e-3, "mini_batch_size": 64}}  # rarer hits: more samples, shorter steps
ENTROPY_SHARE = 0.4  # of the easy game's bonus: with more words to spread over it would pay more than manners cost
TOY = {"num_epochs": 2, "mini_batch_size": 32, "learning_rate": 2e-3, "warmup_rollout_steps": 2}


@pytest.fixture(autouse=True)
def one_thread():
    """The same sums on every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def toy_recipe(name, game):
    changes = {"group_size": SAMPLES} | CHANGES[name]
    optimizer = TOY | changes.get("optimizer", {})
    if game is HARD:
        optimizer |= MORE["optimizer"]
        changes |= MORE | {name: ENTROPY_SHARE * value for name, value in changes.items() if name == "entropy_coefficient"}
    return recipe(name.split(",")[0], **changes | {"optimizer": optimizer})


def test_all_algorithms_are_here():
    assert {name.split(",")[0] for name in CHANGES} == set(ALGORITHMS)


@pytest.mark.parametrize("name", CHANGES)
def test_it_learns_to_look_and_to_say_what_it_saw(name):
    learn(name, EASY, dialogues=960, steps=300, seconds=15)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_it_learns_with_more_to_look_for_and_more_to_say(name):
    learn(name, HARD, dialogues=1920, steps=400, seconds=60)


def learn(name, game, dialogues, steps, seconds):
    started = time.process_time()
    school = School(game)
    assert mean_reward(school.rollout(16, 0, 1.0)) < 0  # random weights do not even speak
    school.warm_start(dialogues)
    assert mean_reward(school.rollout(16, 0, 1.0)) < game.blind  # speaks, and guesses
    algorithm = make_algorithm(toy_recipe(name, game))
    school.train(algorithm, steps if algorithm.on_policy else 120, enough=0.99 * game.optimum)
    sampled, greedy = school.rollout(16, 1000, 1.0), school.rollout(1, 1001, 0.0)
    assert mean_reward(greedy) >= 0.95 * game.optimum
    if algorithm.on_policy:  # one that never plays again keeps its warm start's temperature
        assert mean_reward(sampled) >= 0.9 * game.optimum
    assert {t.texts[1]["content"] for t in greedy} == {game.questions[0]}
    assert time.process_time() - started < seconds
