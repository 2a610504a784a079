"""LoRA: only the adapter learns, a checkpoint is a plain model, and switched off it is the reference."""

import copy

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rl.adapters import adapter_off, adapter_weights, add_adapter, has_adapter, load_merged, named_weights
from rl.algorithms import make_algorithm
from rl.algorithms.base import REFERENCE
from rl.batching import micro_batches
from rl.config import LoraParams
from rl.errors import TrainingError
from rl.experience import Scores, Trajectory
from rl.features import AdaptHead, AdaptModule
from tests.handing import learner_for
from tests.recipes import recipe

LORA = LoraParams(rank=2, alpha=4.0, target_modules=("q_proj", "down_proj"))
IDS = torch.tensor([[2, 9, 3, 41, 4]])


@pytest.fixture
def adapted(model):
    policy = copy.deepcopy(model)
    add_adapter(policy, LORA, seed=0)
    return policy


def logits(model):
    with torch.no_grad():
        return model(input_ids=IDS).logits


def shake(model):
    """As if it had learned."""
    with torch.no_grad():
        for value in adapter_weights(model).values():
            value.add_(torch.randn(value.shape, generator=torch.Generator().manual_seed(value.numel())) * 0.1)


def test_it_begins_as_the_model_and_is_the_model_when_switched_off(model, adapted):
    before = logits(model)
    assert torch.equal(logits(adapted), before)
    shake(adapted)
    changed = logits(adapted)
    assert not torch.allclose(changed, before, atol=1e-3)
    with adapter_off(adapted) as reference:
        assert torch.equal(logits(reference), before)
    assert torch.equal(logits(adapted), changed)
    assert all(p.requires_grad == (".lora_" in name) for name, p in adapted.named_parameters())


def test_one_beside_a_head_has_to_be_beside_a_head_alone(model):
    """A head that is the table of embeddings, too, would be saved as one without the adapter, or both with it."""
    lora = LORA.model_copy(update={"target_modules": ("q_proj", "lm_head")})
    with pytest.raises(TrainingError, match=r"lm_head, whose weight is this model's table of embeddings, too"):
        add_adapter(model, lora, seed=0)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    model.config.tie_word_embeddings = False
    add_adapter(model, lora, seed=0)
    shake(model)
    plain = AutoModelForCausalLM.from_config(model.config).eval()
    load_merged(plain, dict(named_weights(model)))
    torch.testing.assert_close(logits(plain), logits(model), atol=1e-4, rtol=0)


def test_its_size_is_rank_times_both_sides(model, adapted):
    linear = [m for name, m in model.named_modules() if name.rpartition(".")[2] in LORA.target_modules]
    assert sum(v.numel() for v in adapter_weights(adapted).values()) == sum(
        LORA.rank * (m.in_features + m.out_features) for m in linear
    )
    assert not adapter_weights(model)
    assert has_adapter(adapted)
    assert not has_adapter(model)


def test_merged_it_is_a_plain_model_that_says_the_same(model, adapted):
    shake(adapted)
    plain = copy.deepcopy(model)
    plain.load_state_dict(dict(named_weights(adapted)))
    assert torch.allclose(logits(plain), logits(adapted), atol=1e-5)
    assert dict(named_weights(model)).keys() == model.state_dict().keys()


def test_the_same_seed_gives_the_same_adapter_and_leaves_the_worlds_dice_alone(model):
    first, second, other = (copy.deepcopy(model) for _ in range(3))
    state = torch.get_rng_state()
    for policy, seed in ((first, 1), (second, 1), (other, 2)):
        add_adapter(policy, LORA, seed)
    assert torch.equal(torch.get_rng_state(), state)
    a, b, c = (adapter_weights(policy) for policy in (first, second, other))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(not torch.equal(a[name], c[name]) for name in a)


def test_bad_numbers_are_told(model):
    with pytest.raises(
        TrainingError, match=r"target_modules \['attention'\] are no linear layers of this model; it has \['down_proj'"
    ):
        add_adapter(copy.deepcopy(model), LORA.model_copy(update={"target_modules": ("attention", "q_proj")}), 0)
    with pytest.raises(TrainingError, match="no adapter"), adapter_off(model):
        pass


KL = {"coefficient": 0.5}
COMPARING = {
    "grpo": {"kl": KL | {"place": "loss"}},
    "online_dpo": {"pairs_per_group": 1},
    "ppo": {"kl": KL | {"place": "reward"}, "critic": {"warmup_rollout_steps": 0}},
}


@pytest.mark.parametrize(("name", "changes"), COMPARING.items())
def test_switched_off_it_serves_as_well_as_a_second_copy(model, name, changes):
    trajectories = [
        Trajectory(
            episode_id=f"c/{i}",
            case_id="c",
            group_id="g",
            sample=i,
            policy_version=0,
            turn_budget=1,
            token_ids=(2, 9, 3, 40 + i, 4),
            logprobs=(0.0, 0.0, 0.0, -2.0, -1.0),
            loss_mask=(0, 0, 0, 1, 1),
            turns=((3, 5),),
            texts=(),
            events=({},),
            stop_reason="ended",
            privileged={},
            started_s=0.0,
            ended_s=1.0,
        )
        for i in range(2)
    ]
    scores = [Scores(t.episode_id, ({"outcome": float(t.sample)},)) for t in trajectories]
    ends, metrics = [], []
    for copies in (0, 1):
        policy = copy.deepcopy(model)
        add_adapter(policy, LORA, seed=0)
        shake(policy)  # else the policy is its reference
        frozen = {k: v.clone() for k, v in policy.state_dict().items() if ".lora_" not in k}
        numbers = recipe(
            name, group_size=2, optimizer={"num_epochs": 2, "mini_batch_size": 2, "learning_rate": 1e-2}, **changes
        )
        learner = learner_for(
            policy, make_algorithm(numbers), 1, 1.0, 0, frozen={REFERENCE: copy.deepcopy(model)} if copies else {}
        )
        before = {k: v.clone() for k, v in adapter_weights(policy).items()}
        metrics.append(learner.update(trajectories, scores, 1))
        assert all(torch.equal(value, policy.state_dict()[k]) for k, value in frozen.items())
        assert any(not torch.equal(value, before[k]) for k, value in adapter_weights(policy).items())
        ends.append(adapter_weights(policy))
    assert metrics[0] == metrics[1]
    assert all(torch.equal(ends[0][k], ends[1][k]) for k in ends[0])


@pytest.mark.parametrize(
    ("family", "more"),
    [("qwen2", {}), ("gemma3_text", {"head_dim": 8, "sliding_window": 8}), ("mistral", {"sliding_window": 8})],
)
def test_the_bases_own_layers_predict_what_copies_of_them_do(family, more):
    """Whatever the adapters say, and with windows; and what is saved is the copies' weights."""
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
    shape |= {"num_key_value_heads": 2, "vocab_size": 128, "max_position_embeddings": 64, "pad_token_id": 0}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **shape, **more)).eval()
    copied = AdaptModule(model, 3, 2, 2).eval()
    add_adapter(model, LORA, seed=1)
    shake(model)
    borrowed = AdaptHead(model, 3, 2, 2).eval()
    borrowed.head.load_state_dict(copied.head.state_dict())
    rows = [[5, 9, 17, 3, 8] * size for size in (1, 3, 4)]
    (batch,) = micro_batches(rows, [[0] * (len(row) - 1) + [1] for row in rows], 4096)
    torch.testing.assert_close(borrowed(batch), copied(batch))
    weights = borrowed.alone(torch.device("cpu")).state_dict()
    assert weights.keys() == copied.state_dict().keys()
    assert all(torch.equal(value, weights[name]) for name, value in copied.state_dict().items())
    assert len(model.get_decoder().layers) == 3
