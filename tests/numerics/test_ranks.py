"""Two ranks learn what one learns: every algorithm, with what goes with it."""

import pytest
import torch

from rl.algorithms import ALGORITHMS
from rl.batching import micro_batches, sibling_batches
from rl.ranks import Ranks
from tests.numerics.ranks import OPTIMIZER, VARIANTS, in_ranks, make_learner, updated
from tests.numerics.test_invariance import base, experience  # noqa: F401  fixtures


def all_variants(shards, replicas, base, experience):  # noqa: F811
    return {
        variant: updated(make_learner(base, variant, replicas if "replicate" in variant else shards), experience)
        for variant in VARIANTS
    }


@pytest.fixture(scope="module")
def on_two(tmp_path_factory, base, experience):  # noqa: F811
    return in_ranks(all_variants, tmp_path_factory.mktemp("ranks"), 2, base, experience)


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
    one, (first, second) = updated(make_learner(base, variant), experience), (found[variant] for found in on_two)
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
