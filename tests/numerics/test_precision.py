"""Computing in bfloat16 on float32 weights: the loss hardly changes, small updates arrive, and a run goes on from its
checkpoint.
"""

import asyncio
import copy
import gc
import weakref

import pytest
import torch

from rl.adapters import add_adapter, named_weights
from rl.algorithms import make_algorithm
from rl.algorithms.base import REFERENCE
from rl.config import LoraParams, SFTParams
from rl.engines.base import Request, Sampling
from rl.engines.transformers import TransformersEngine
from rl.errors import TrainingError
from rl.handover import handover_of, sequence_logprobs
from rl.learner import Learner, Sampler
from rl.models import new_model, new_tokenizer
from rl.policies import policy_for
from rl.policy import Policy, compute_in, spread
from rl.sft import Example, train_supervised
from tests.numerics.test_invariance import OPTIMIZER, experience  # noqa: F401  a fixture
from tests.recipes import recipe

SMALL_RATE = 1e-6
VARIANTS = {
    "grpo": recipe("grpo", group_size=4),
    "grpo, checkpointing": recipe("grpo", group_size=4, optimizer={"gradient_checkpointing": True}),
    "ppo": recipe("ppo", group_size=4, critic={"warmup_rollout_steps": 0, "trunk": "own"}),
    "ppo, shared trunk": recipe("ppo", group_size=4, critic={"warmup_rollout_steps": 0, "trunk": "shared"}),
}


@pytest.fixture(scope="module")
def base():
    return new_model(new_tokenizer(["a"], 280), width=32, layers=2, heads=2, context=64, seed=1)


def learner_in(base, numbers, compute: str, rate: float = SMALL_RATE) -> Learner:
    checkpointing = numbers["optimizer"]["gradient_checkpointing"]
    numbers = numbers | {"optimizer": OPTIMIZER | {"learning_rate": rate, "gradient_checkpointing": checkpointing}}
    algorithm = make_algorithm(numbers)
    policy = policy_for(copy.deepcopy(base), algorithm, compute)
    return Learner(policy, algorithm, 4, 0.8, 0, {REFERENCE: copy.deepcopy(base)}, Sampler(exact=False, staleness=0))


def again(learner: Learner, experience, times: int) -> list[dict[str, float]]:  # noqa: F811
    metrics = []
    for step in range(1, times + 1):
        metrics.append(learner.update(*experience, step=step))
        learner.policy_version = 0  # the same experience once more
    return metrics


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_loss_is_that_of_float32_within_two_percent_and_weights_stay_float32(base, experience, variant):  # noqa: F811
    plain, low = (learner_in(base, VARIANTS[variant], compute) for compute in ("float32", "bfloat16"))
    expected, found = (learner.update(*experience, step=1) for learner in (plain, low))
    assert found["grad_norm"] == pytest.approx(expected["grad_norm"], rel=0.02)
    assert found["policy_loss"] == pytest.approx(expected["policy_loss"], rel=0.02, abs=2e-4)
    if "value_loss" in expected:
        assert found["value_loss"] == pytest.approx(expected["value_loss"], rel=0.02)
    assert found["grad_norm"] != expected["grad_norm"]  # it did compute otherwise
    held = [
        *low.policy.parameters(),
        *(v for state in low.optimizers.of["policy"].state.values() for v in state.values()),
    ]
    assert {value.dtype for value in held} == {torch.float32}


def test_small_updates_arrive_with_float32_weights_and_are_lost_without(base, experience):  # noqa: F811
    low = learner_in(base, VARIANTS["grpo"], "bfloat16")
    before = {name: value.clone() for name, value in named_weights(low.model)}
    again(low, experience, 10)
    assert changed(before, dict(named_weights(low.model))) > 0.95

    rounded = copy.deepcopy(base).bfloat16()
    lost = learner_in(rounded, VARIANTS["grpo"], "float32")
    before = {name: value.clone() for name, value in named_weights(lost.model)}
    again(lost, experience, 10)
    assert changed(before, dict(named_weights(lost.model))) < 0.2  # what float32 weights are for


def test_an_adapter_beside_a_frozen_base_in_bfloat16_is_float32_and_learns(base, experience):  # noqa: F811
    frozen = copy.deepcopy(base).bfloat16()
    add_adapter(frozen, LoraParams(rank=4, alpha=8.0, target_modules=("q_proj", "v_proj", "down_proj")), seed=0)
    learner = learner_in(frozen, VARIANTS["grpo"], "bfloat16")
    adapter = {name: value for name, value in learner.model.named_parameters() if value.requires_grad}
    assert {value.dtype for value in adapter.values()} == {torch.float32}
    assert {p.dtype for p in learner.model.parameters() if not p.requires_grad} == {torch.bfloat16}
    before = {name: value.detach().clone() for name, value in adapter.items()}
    again(learner, experience, 10)
    assert changed(before, adapter) > 0.95


def changed(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> float:
    """Share of the numbers that are others now."""
    return sum(int((after[name] != before[name]).sum()) for name in before) / sum(v.numel() for v in before.values())


def test_on_a_mesh_of_one_float32_is_the_plain_learner_bit_for_bit(base, experience):  # noqa: F811
    plain, spread_out = (learner_in(base, VARIANTS["ppo"], "float32", rate=1e-3) for _ in range(2))
    spread(spread_out.policy, "float32")
    numbers = spread_out.algorithm.optimizer
    spread_out.optimizers.of["policy"] = torch.optim.AdamW(
        spread_out.model.parameters(), lr=numbers.learning_rate, weight_decay=numbers.weight_decay, betas=(0.9, 0.98)
    )
    spread_out.optimizers.of["critic"] = torch.optim.AdamW(
        spread_out.critic.parameters(), lr=1e-3, weight_decay=numbers.weight_decay, betas=(0.9, 0.98)
    )
    assert again(plain, experience, 2) == again(spread_out, experience, 2)
    others = dict(named_weights(spread_out.model))
    assert all(torch.equal(value, others[name]) for name, value in named_weights(plain.model))


def test_a_learner_in_bfloat16_goes_on_from_its_state(base, experience, tmp_path):  # noqa: F811
    one, other = (learner_in(base, VARIANTS["ppo"], "bfloat16", rate=1e-3) for _ in range(2))
    one.update(*experience, step=1)
    torch.save(one.state(), tmp_path / "learner.pt")
    for name, value in named_weights(one.model):
        dict(other.model.state_dict(keep_vars=True))[name].data.copy_(
            torch.distributed.tensor.distribute_tensor(value, *placed(other, name))
        )
    other.load_state(torch.load(tmp_path / "learner.pt", weights_only=True))
    one.policy_version = other.policy_version = 0
    assert one.update(*experience, step=2) == other.update(*experience, step=2)


def placed(learner: Learner, name: str):
    held = learner.model.state_dict(keep_vars=True)[name]
    return held.device_mesh, held.placements


def test_gradients_are_gone_after_an_update(base, experience):  # noqa: F811
    for compute in ("float32", "bfloat16"):
        learner = learner_in(base, VARIANTS["ppo"], compute)
        learner.update(*experience, step=1)
        assert all(parameter.grad is None for parameter in learner.policy.parameters())


def test_an_engines_copy_takes_the_weights_in_its_own_precision_and_a_missing_one_is_told(base, experience):  # noqa: F811
    learner = learner_in(base, VARIANTS["grpo"], "bfloat16", rate=1e-2)
    engine = TransformersEngine(copy.deepcopy(base).bfloat16().eval(), 2, 32, copy=True)
    assert not engine.shares_weights
    for version in (1, 2):
        learner.update(*experience, step=version)
        learner.model.eval()
        engine.take(handover_of(learner.policy, version))
        assert engine.probe_error < 0.05
        ids = [5, 6, 7, 8, 9]
        made = asyncio.run(one_turn(engine, ids))
        assert made.policy_version == version
        again_ = sequence_logprobs(learner.policy, [*ids, *made.token_ids])[-len(made.token_ids) :]
        assert float((again_ - torch.tensor(made.logprobs)).abs().max()) < 0.05
        learner.policy_version = 0
    handover = handover_of(learner.policy, 3)
    some = list(handover.weights())[1:]
    learner.update(*experience, step=3)
    broken = copy.copy(handover)
    object.__setattr__(broken, "weights", lambda: iter(some))
    with pytest.raises(TrainingError, match=r"policy version 3 .* it was not given model.embed_tokens.weight"):
        engine.take(broken)


async def one_turn(engine: TransformersEngine, ids: list[int]):
    made = await engine.generate(Request("s", tuple(ids), 7, Sampling(1.0, 6, None)))
    engine.release("s")
    await engine.close()
    return made


@pytest.mark.parametrize("kind", ["tied", "untied", "lora"])
def test_a_stream_of_weights_costs_less_than_two_layers(kind):
    model = new_model(new_tokenizer(["a"], 280), width=64, layers=6, heads=2, context=64, seed=1)
    if kind == "untied":
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    if kind == "lora":
        add_adapter(model, LoraParams(rank=2, alpha=4.0, target_modules=("q_proj", "up_proj", "down_proj")), seed=0)
    layer = sum(p.numel() * 4 for p in model.get_decoder().layers[0].parameters())
    own = {value.untyped_storage().data_ptr() for value in model.state_dict().values()}
    alive: list[weakref.ref] = []  # of what is made for the stream alone
    most = 0
    for _name, value in handover_of(Policy(model), 0).weights():
        alive = [one for one in alive if one() is not None]
        if value.untyped_storage().data_ptr() not in own:
            alive.append(weakref.ref(value))
        most = max(most, sum(one().nbytes for one in alive))
    assert most < 2 * layer
    assert (most > 0) == (kind == "lora")


def test_after_learning_there_are_weights_and_moments(experience):  # noqa: F811
    before = tensor_bytes()
    model = new_model(new_tokenizer(["a"], 280), width=256, layers=4, heads=4, context=64, seed=1)
    algorithm = make_algorithm(VARIANTS["grpo"] | {"optimizer": OPTIMIZER})
    learner = Learner(policy_for(model, algorithm), algorithm, 4, 0.8, 0)
    learner.update(*experience, step=1)
    weights = sum(p.numel() * 4 for p in model.parameters())
    assert tensor_bytes() - before == pytest.approx(3 * weights, rel=0.05)


def tensor_bytes() -> int:
    """Of all tensors alive, shared storage once."""
    gc.collect()
    alive = [thing for thing in gc.get_objects() if type(thing) in PLAIN and thing.device.type == "cpu"]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in alive}
    return sum(storages.values())


PLAIN = (torch.Tensor, torch.nn.Parameter)


def test_supervised_training_in_bfloat16_learns_as_in_float32(base):
    params = SFTParams(
        epochs=100, batch_size=2, optimizer="adamw", learning_rate=3e-3, warmup_share=0.1, weight_decay=0.0,
        max_grad_norm=1.0, micro_batch_tokens=64, seed=0,
    )  # fmt: skip
    losses = []
    for compute in ("float32", "bfloat16"):
        policy = Policy(copy.deepcopy(base))
        compute_in(policy, compute)
        losses.append(
            train_supervised(policy, [Example([5, 6, 7, 8], [0, 1, 1, 1]), Example([9, 10, 11], [0, 1, 1])], params)
        )
    assert losses[1] == pytest.approx(losses[0], rel=0.05)
    assert losses[0] < 1.0  # ln 280 = 5.6 at first
