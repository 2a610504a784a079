"""A model that was trained with dropout is read again without it: in learning as in play."""

import asyncio
import copy

import pytest
import torch
from transformers import AutoModelForCausalLM, PhiConfig

from rl.algorithms import make_algorithm
from rl.chat import ChatFormat
from rl.config import RolloutParams, SFTParams
from rl.engines.transformers import TransformersEngine
from rl.experience import Scores, Trajectory
from rl.models import new_tokenizer
from rl.policy import Policy
from rl.rollout import play
from rl.sft import Example, train_supervised
from tests.handing import learner_for
from tests.learning.toy import EASY, episodes, score, seat_in
from tests.recipes import recipe

RATE = 0.1
ROLLOUT = RolloutParams(
    prompts=4,
    response_length=3,
    max_episode_tokens=64,
    slots=16,
    max_failed_share=0.5,
    ahead=0,
    engine={"kind": "transformers", "compile": False},
)
ONE_UPDATE = {"mini_batch_size": 16, "learning_rate": 1e-2}
SFT = SFTParams(
    epochs=2, batch_size=4, optimizer="adamw", learning_rate=1e-3, warmup_share=0.1, weight_decay=0.0, max_grad_norm=1.0, micro_batch_tokens=64, seed=0,
)  # fmt: skip


@pytest.fixture(scope="module")
def phi():
    """A small Phi with dropout in every place that the family has."""
    torch.manual_seed(0)
    config = PhiConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        attention_dropout=RATE,
        resid_pdrop=RATE,
        embd_pdrop=RATE,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=4,
    )
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()


@pytest.fixture(scope="module")
def experience(phi) -> tuple[list[Trajectory], list[Scores]]:
    engine = TransformersEngine(phi, ROLLOUT.slots, ROLLOUT.max_episode_tokens)
    chat = ChatFormat(new_tokenizer([*EASY.colours, *EASY.questions, "what", "hello"] * 4, 300))
    played = asyncio.run(play(episodes(EASY, 4, 1, 0), seat_in(EASY), engine, chat, ROLLOUT, 1.0))
    return played, score(played)


def learned(phi, experience, name="grpo", **optimizer) -> tuple[dict, dict[str, float]]:
    own = {"grpo": {"own_turn": []}, "ppo": {"critic": {"trunk": "own", "warmup_rollout_steps": 0}}}[name]
    algorithm = make_algorithm(recipe(name, group_size=4, optimizer=ONE_UPDATE | optimizer, **own))
    learner = learner_for(copy.deepcopy(phi), algorithm, ROLLOUT.prompts, 1.0, seed=0)
    metrics = learner.update(*experience, step=1)
    return learner.model.state_dict(), metrics


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_first_update_sees_the_policy_that_sampled_and_a_rerun_is_the_same(phi, experience, checkpointing):
    """The generator stands elsewhere in the rerun, as it does in a resumed run."""
    weights, metrics = learned(phi, experience, gradient_checkpointing=checkpointing)
    assert metrics["sampler_mismatch_max"] < 1e-5
    assert metrics["clip_fraction"] == 0
    torch.rand(17)
    again, same = learned(phi, experience, gradient_checkpointing=checkpointing)
    assert same == metrics
    assert all(torch.equal(weights[name], again[name]) for name in weights)


@pytest.mark.parametrize(("name", "trunks"), [("grpo", 1), ("ppo", 2)])
def test_activations_are_computed_again_where_it_is_asked_for(phi, experience, monkeypatch, name, trunks):
    computed = []
    forward = type(phi.model.layers[0]).forward
    monkeypatch.setattr(
        type(phi.model.layers[0]), "forward", lambda layer, *a, **k: computed.append(layer) or forward(layer, *a, **k)
    )
    learned(phi, experience, name)
    plain = len(computed)
    learned(phi, experience, name, gradient_checkpointing=True)
    layers = len(set(map(id, computed[plain:])))
    assert layers == 2 * trunks
    assert len(computed) - plain >= plain + layers  # each of them once more, at least


def test_supervised_training_has_none_either(phi):
    examples = [Example([5 + i, 20 + i, 40 + i, 60 + i], [0, 0, 1, 1]) for i in range(8)]
    losses = []
    for draws in (0, 17):
        torch.rand(draws)
        losses.append(train_supervised(Policy(copy.deepcopy(phi)), examples, SFT))
    assert losses[0] == losses[1]
