"""What each algorithm is given to learn the toy consultation with, and whether it did."""

import time
from dataclasses import dataclass
from typing import Any

from rl.algorithms import make_algorithm
from tests.learning.toy import EASY, HARD, SAMPLES, Game, School, mean_reward
from tests.recipes import recipe

GROUPED = {"own_turn": [], "credit": "turn"}
BY_GROUP = GROUPED | {"divide_by_std": "group", "entropy_coefficient": 0.01}
# reward units: once all is solved the deviation over the batch is that of the noise, and dividing by it would make
# noise as large as signal
FLOOR = 0.1
ONCE = {"num_epochs": 1}
# more samples, so that a rare hit stays among them
WIDE = {
    "group_size": 64,
    "optimizer": ONCE | {"mini_batch_size": 128},
}
# to the warm start, so that no answer dies
TIED = {"kl": {"place": "reward", "estimator": "k1", "coefficient": 0.02}}
ONLINE = {"margin": 0.05, "pairs_per_group": 16}
CHANGES: dict[str, dict[str, Any]] = {
    "grpo": BY_GROUP,
    "grpo, episode credit": BY_GROUP | {"credit": "episode"},
    "dr_grpo": GROUPED | WIDE | TIED | {"constant_length": 4, "entropy_coefficient": 0.015},
    "rloo": GROUPED | WIDE | TIED | {"entropy_coefficient": 0.015},
    "reinforce_pp": {"entropy_coefficient": 0.05, "eps": FLOOR, "optimizer": ONCE},
    "reinforce_pp, group baseline": WIDE | {"baseline": "group", "entropy_coefficient": 0.03, "eps": FLOOR},
    "reinforce_pp, turn credit": {"credit": "turn", "entropy_coefficient": 0.05, "eps": FLOOR, "optimizer": ONCE},
    "dapo": BY_GROUP
    | {
        "dynamic_sampling": {"max_num_gen_batches": 3, "by": "reward"},
        "overlong": {"max_tokens": 8, "buffer_tokens": 2, "penalty": 0.1},
    },
    "gspo": BY_GROUP | {"clip_low": 0.1, "clip_high": 0.1},
    "cispo": BY_GROUP | WIDE,
    "ppo": WIDE
    | {
        "gae_lambda": 0.95,
        "eps": FLOOR,
        "critic": {"learning_rate": 2e-3, "trunk": "own"},
        "entropy_coefficient": 0.05,
    },
    "ppo, shared trunk": {
        "gae_lambda": 0.95,
        "eps": FLOOR,
        "critic": {"learning_rate": 5e-3, "trunk": "shared"},
        "entropy_coefficient": 0.05,
        "optimizer": ONCE,
    },
    # a smaller bonus than for ppo: who was told the answer gains little by asking, and would rather say anything; the
    # student has ppo's, or an answer dies
    "ppo_roa": WIDE
    | {
        "train_steps": 30,
        "gae_lambda": 0.95,
        "eps": FLOOR,
        "critic": {"learning_rate": 2e-3, "trunk": "own"},
        "entropy_coefficient": 0.03,
        "student_entropy_coefficient": 0.05,
        "feature": {"chart": "facts", "learning_rate": 5e-3},
        "adaptation": {"learning_rate": 3e-3, "tau": 0.3, "mini_batch_size": 128},
        "regularisation": {"coefficient": 0.02, "ramp_steps": 5},
    },
    # nobody taught this policy to read a chart: at first who is told the colour says no more than who is not
    "privileged_distillation": BY_GROUP | {"distillation": {"turns": "all", "coefficient": 0.03, "tau": 0.3}},
    "online_dpo": ONLINE | {"beta": 0.5},
    "online_dpo, and the chosen's likelihood": ONLINE | {"beta": 1.0, "chosen_weight": 0.2},
    "dpo": {
        "margin": 1.25,
        "pairs_per_group": 8,
        "beta": 0.5,
        "chosen_weight": 1.0,
        "optimizer": {"num_epochs": 4, "mini_batch_size": 32},
    },
}
# rarer hits: more samples, shorter steps
MORE = {
    "group_size": 32,
    "optimizer": {"learning_rate": 1e-3, "mini_batch_size": 64},
}
ENTROPY_SHARE = (
    0.7  # of the easy game's bonus: there are more words to spread over, and first guesses are right less often
)
TOY = {"num_epochs": 2, "mini_batch_size": 64, "learning_rate": 2e-3, "warmup_rollout_steps": 2}
GAMES = {"easy": EASY, "hard": HARD}
DIALOGUES = {"easy": 960, "hard": 1920}  # of the warm start
STEPS = {"easy": 300, "hard": 400}  # at most
STORED = {"easy": 120, "hard": 240}  # of an algorithm that plays everything before it learns


@dataclass(frozen=True)
class Outcome:
    """What came of one run. Rewards are means over episodes."""

    name: str
    game: str
    seed: int
    speaks: float  # reward after the warm start
    steps: int  # rollout steps played
    sampled: float
    greedy: float
    looks: bool  # asks the good question whenever it takes its likeliest word
    seconds: float  # of the processor
    solved: bool


def toy_recipe(name: str, game: Game) -> dict[str, Any]:
    """The committed recipe with the course's changes."""
    changes = {"group_size": SAMPLES} | CHANGES[name]
    optimizer = TOY | changes.get("optimizer", {})
    if game is HARD:
        optimizer |= MORE["optimizer"]
        changes |= MORE | {
            name: ENTROPY_SHARE * value for name, value in changes.items() if name.endswith("entropy_coefficient")
        }
    return recipe(name.split(",")[0], **changes | {"optimizer": optimizer})


def learn(name: str, level: str, seed: int, device: str = "cpu") -> Outcome:
    """Random weights, a warm start that teaches the words alone, then the algorithm until the game is solved or the
    steps are used up.
    """
    started = time.process_time()
    game = GAMES[level]
    school = School(game, seed, device)
    school.warm_start(DIALOGUES[level])
    speaks = mean_reward(school.rollout(16, 0, 1.0))
    algorithm = make_algorithm(toy_recipe(name, game))
    rewards = school.train(algorithm, (STEPS if algorithm.on_policy else STORED)[level], enough=0.99 * game.optimum)
    sampled, greedy = school.rollout(16, 1000, 1.0), school.rollout(1, 1001, 0.0)
    looks = {t.texts[1]["content"] for t in greedy} == {game.questions[0]}
    solved = looks and mean_reward(greedy) >= 0.95 * game.optimum
    if algorithm.on_policy:  # one that never plays again keeps its warm start's temperature
        solved = solved and mean_reward(sampled) >= 0.9 * game.optimum
    return Outcome(
        name,
        level,
        seed,
        speaks,
        len(rewards),
        mean_reward(sampled),
        mean_reward(greedy),
        looks,
        time.process_time() - started,
        solved,
    )
