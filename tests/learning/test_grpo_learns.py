"""GRPO learns the toy consultation from outcomes alone: the policy knows the words, but not the game."""

import time

import pytest
import torch

from rl.algorithms import make_algorithm
from tests.learning.toy import BLIND, OPTIMUM, SAMPLES, School, mean_reward

RECIPE = {
    "name": "grpo", "group_size": SAMPLES, "credit": "episode", "discount": 1.0, "own_turn": [], "own_turn_weight": 1.0, "divide_by_std": "group", "eps": 1e-4, "clip_low": 0.2, "clip_high": 0.2,
    "optimizer": {
        "num_epochs": 2, "mini_batch_size": 32, "learning_rate": 2e-3, "warmup_rollout_steps": 2, "weight_decay": 0.0, "max_grad_norm": 1.0, "micro_batch_tokens": 4096,
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread():
    """The same sums on every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("credit", ["episode", "turn"])
def test_grpo_learns_to_look_and_to_say_what_it_saw(credit):
    started = time.process_time()
    school = School()
    assert mean_reward(school.rollout(16, 0, 1.0)) < 0  # random weights do not even speak
    school.warm_start(960)
    assert mean_reward(school.rollout(16, 0, 1.0)) < BLIND  # speaks, and guesses
    school.train(make_algorithm(RECIPE | {"credit": credit}), steps=120, enough=0.99 * OPTIMUM)
    sampled, greedy = school.rollout(16, 1000, 1.0), school.rollout(1, 1001, 0.0)
    assert mean_reward(greedy) >= 0.95 * OPTIMUM
    assert mean_reward(sampled) >= 0.9 * OPTIMUM
    assert {t.texts[1]["content"] for t in greedy} == {"look"}
    assert time.process_time() - started < 15
