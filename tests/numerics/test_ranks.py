"""Two ranks learn what one learns: every algorithm, with what goes with it."""

import pytest
import torch
from safetensors.torch import load_file

from rl.algorithms import ALGORITHMS
from rl.batching import micro_batches, sibling_batches
from rl.models import new_tokenizer, save_model
from rl.privileged import PrivilegedPolicy
from rl.ranks import Ranks
from tests.numerics.ranks import (
    OPTIMIZER,
    VARIANTS,
    experience_of,
    grown_apart,
    in_ranks,
    learned,
    make_learner,
    make_trainer,
    updated,
)
from tests.numerics.test_invariance import base, experience  # noqa: F401  fixtures

QUESTION = ([[5, 6, 7], [8, 9]], [[10], [11, 12]])
SAVED = ("grpo", "ppo, own trunk", "grpo, lora, replicate", "ppo_roa, teacher, replicate")

TAUGHT, SEEDS = "ppo_roa, teacher, replicate", (1, 2, 3)
TINY = 1e-7  # a gradient of rounding's size, which AdamW's first step divides by itself


def everything(shards, replicas, base, experience, folder):  # noqa: F811
    """What the two are to do, in one go: starting them is what takes time."""
    found = {}
    for variant in VARIANTS:
        ranks = replicas if "replicate" in variant else shards
        mine = experience_of(variant, experience)
        found[variant] = updated(make_learner(base, variant, ranks), mine)
        if variant not in SAVED:
            continue
        trainer = make_trainer(folder / "base", variant, ranks)
        found[variant, "ranked"] = trainer.rank(*QUESTION)
        learned(trainer, mine, 1)
        trainer.save(folder / variant, 1)
        on_alone, on_saved = learned(trainer, mine, 2), folder / variant / "global_step_1"
        again = make_trainer(folder / "base", variant, ranks)
        again.restore(on_saved)
        found[variant, "went on"], found[variant, "restored"] = on_alone, learned(again, mine, 2)
        trainer.restore(folder / variant / "global_step_10")
        found[variant, "of one"] = learned(trainer, mine, 2)
        trainer.reset()
        if isinstance(trainer.policy, PrivilegedPolicy):
            grown_apart(trainer.policy)
        found[variant, "reset"] = learned(trainer, mine, 1)
    for seed in SEEDS:
        learner = make_learner(base, TAUGHT, replicas, seed=seed)
        found[seed] = updated(learner, experience_of(TAUGHT, experience))
    found["bfloat16"] = updated(make_learner(base, "ppo, own trunk", shards, "bfloat16"), experience)
    return found


@pytest.fixture(scope="module")
def on_one(tmp_path_factory, base, experience):  # noqa: F811
    """A folder with a model, and of some variants a checkpoint of one rank."""
    folder = tmp_path_factory.mktemp("ranks")
    save_model(base, new_tokenizer(["a"], 280), folder / "base")
    found = {}
    for variant in SAVED:
        trainer = make_trainer(folder / "base", variant)
        found[variant, "ranked"] = trainer.rank(*QUESTION)
        mine = experience_of(variant, experience)
        found[variant, 1] = learned(trainer, mine, 1)
        trainer.save(folder / variant, 10)
        found[variant, 2] = learned(trainer, mine, 2)
    return folder, found


@pytest.fixture(scope="module")
def on_two(on_one, base, experience):  # noqa: F811
    return in_ranks(everything, on_one[0], 2, base, experience, on_one[0])


def test_every_algorithm_is_among_them_and_every_kind_of_cut(experience):  # noqa: F811
    assert {variant.split(",")[0] for variant in VARIANTS} == set(ALGORITHMS)
    trajectories, _ = experience
    tokens, masks = [t.token_ids for t in trajectories], [t.loss_mask for t in trajectories]
    cuts = [
        len(list(cut(tokens, masks, budget)))
        for cut, budget in ((sibling_batches, OPTIMIZER["micro_batch_tokens"]), (micro_batches, 10**6))
    ]
    assert cuts[0] % 2 == 1
    assert cuts[-1] == 1


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_ranks_learn_what_one_learns(base, experience, on_two, variant):  # noqa: F811
    one = updated(make_learner(base, variant), experience_of(variant, experience))
    first, second = (found[variant] for found in on_two)
    assert first["metrics"] == second["metrics"]
    largest = max(float(value.abs().max()) for value in one["gradient"].values())
    assert largest > 0
    assert one["gradient"].keys() == first["gradient"].keys()
    for name, value in one["gradient"].items():
        assert float((first["gradient"][name] - value).abs().max()) <= 1e-5 * largest, name
    for name, value in one["weights"].items():
        assert torch.equal(first["weights"][name], second["weights"][name])
        assert float((first["weights"][name] - value).abs().max()) <= 1e-6, name
    for mine, theirs in zip(one["metrics"], first["metrics"], strict=True):
        assert theirs == pytest.approx(mine, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("seed", SEEDS)
def test_other_teachers_and_students_learn_what_one_rank_learns(base, experience, on_two, seed):  # noqa: F811
    """To 1e-6 where there is a gradient; elsewhere single weights differ by more."""
    one, two = updated(make_learner(base, TAUGHT, seed=seed), experience_of(TAUGHT, experience)), on_two[0][seed]
    largest = max(float(value.abs().max()) for value in one["gradient"].values())
    for name, value in one["gradient"].items():
        assert float((two["gradient"][name] - value).abs().max()) <= 1e-5 * largest, name
        key = name if name in one["weights"] else f"model.{name}"
        apart = (two["weights"][key] - one["weights"][key]).abs()
        assert float((apart * (value.abs() > TINY)).max()) <= 1e-6, name
        assert float(apart.max()) <= 1e-5, name


def dealt(items, size):
    return [list(Ranks(rank, size).deal(items, lambda item: item)) for rank in range(size)]


@pytest.mark.parametrize(("items", "size"), [([5], 2), ([3, 9, 4], 2), ([1, 2, 3, 4, 5, 6, 7], 3), ([], 2)])
def test_every_item_counts_once_and_all_ranks_compute_equally_often(items, size):
    hands = dealt(items, size)
    assert len({len(hand) for hand in hands}) == 1
    assert sorted(item for hand in hands for item, counts in hand if counts) == sorted(items)
    assert {item for hand in hands for item, counts in hand if not counts} <= {min(items, default=0)}


def test_the_largest_goes_to_the_least_loaded():
    assert dealt([3, 9, 4], 2) == [[(9, True), (3, False)], [(3, True), (4, True)]]


def test_in_bfloat16_they_learn_what_one_learns_in_it(base, experience, on_two):  # noqa: F811
    one = updated(make_learner(base, "ppo, own trunk", compute="bfloat16"), experience)["metrics"][0]
    two = on_two[0]["bfloat16"]["metrics"][0]
    assert two["grad_norm"] == pytest.approx(one["grad_norm"], rel=0.02)
    assert two["value_loss"] == pytest.approx(one["value_loss"], rel=0.02)


@pytest.mark.parametrize("variant", SAVED)
def test_they_rank_alike(on_one, on_two, variant):
    for found in on_two:
        assert torch.allclose(found[variant, "ranked"], on_one[1][variant, "ranked"], atol=1e-5)


def furthest(one, other) -> float:
    return max(float((value - other["weights"][name]).abs().max()) for name, value in one["weights"].items())


@pytest.mark.parametrize("variant", SAVED)
def test_what_two_saved_goes_on_with_two_with_the_same_bits_and_with_one(experience, on_one, on_two, variant):  # noqa: F811
    folder, _ = on_one
    for found in on_two:
        assert found[variant, "restored"]["metrics"] == found[variant, "went on"]["metrics"]
        assert furthest(found[variant, "restored"], found[variant, "went on"]) == 0
    alone = make_trainer(folder / "base", variant)
    alone.restore(folder / variant / "global_step_1")
    assert furthest(learned(alone, experience_of(variant, experience), 2), on_two[0][variant, "went on"]) <= 1e-6


@pytest.mark.parametrize("variant", SAVED)
def test_what_one_saved_goes_on_with_two_and_they_go_back_to_the_start(on_one, on_two, variant):
    assert furthest(on_one[1][variant, 2], on_two[0][variant, "of one"]) <= 1e-6
    assert furthest(on_one[1][variant, 1], on_two[0][variant, "reset"]) <= 1e-6


@pytest.mark.parametrize("variant", SAVED)
def test_what_two_save_has_the_names_and_sizes_of_what_one_saves(on_one, on_two, variant):
    files = [on_one[0] / variant / f"global_step_{step}" / "model.safetensors" for step in (1, 10)]
    one, other = (load_file(file) for file in files)
    assert one.keys() == other.keys()
    assert all(value.shape == other[name].shape and value.dtype == other[name].dtype for name, value in one.items())
    assert max(float((value - other[name]).abs().max()) for name, value in one.items()) <= 1e-6
