"""Several GPUs: run by hand, by whoever has two. Nobody has yet."""

import pytest
import torch

from tests.numerics.ranks import experience_of, in_ranks, make_learner, updated
from tests.numerics.test_invariance import base, experience  # noqa: F401  fixtures

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="torch finds fewer than two GPUs here"),
    pytest.mark.timeout(600),
]
SHARDED = ("grpo", "grpo, reference", "cispo", "ppo, own trunk", "ppo, shared trunk, reference", "online_dpo")
VARIANTS = (*SHARDED, "grpo, replicate", "grpo, lora, replicate", "ppo_roa, teacher, replicate")


def everything(shards, replicas, base, experience):  # noqa: F811
    """What two ranks are to do, over NCCL, each on its own GPU."""
    found = {}
    for variant in VARIANTS:
        ranks = replicas if "replicate" in variant else shards
        found[variant] = on_host(
            updated(make_learner(base.to("cuda"), variant, ranks), experience_of(variant, experience))
        )
    found["bfloat16"] = on_host(updated(make_learner(base.to("cuda"), "grpo", shards, "bfloat16"), experience))
    return found


def on_host(found):
    return {
        name: {key: value.cpu() for key, value in part.items()} if name != "metrics" else part
        for name, part in found.items()
    }


@pytest.fixture(scope="module")
def on_two(tmp_path_factory, base, experience):  # noqa: F811
    return in_ranks(everything, tmp_path_factory.mktemp("ranks"), 2, base, experience, device="cuda")


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_gpus_learn_what_a_processor_learns(base, experience, on_two, variant):  # noqa: F811
    one = updated(make_learner(base.to("cpu"), variant), experience_of(variant, experience))
    largest = max(float(value.abs().max()) for value in one["gradient"].values())
    assert largest > 0
    for found in on_two:
        assert one["gradient"].keys() == found[variant]["gradient"].keys()
        for name, value in one["gradient"].items():
            torch.testing.assert_close(found[variant]["gradient"][name], value, atol=1e-3 * largest, rtol=1e-3)
    assert on_two[0][variant]["metrics"] == on_two[1][variant]["metrics"]


def test_both_hold_the_same_weights_whatever_computes(on_two):
    first, second = (found["bfloat16"]["weights"] for found in on_two)
    assert {value.dtype for value in first.values()} == {torch.float32}
    assert all(torch.equal(value, second[name]) for name, value in first.items())
