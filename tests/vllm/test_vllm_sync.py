"""Weights reach the engine: all of them, every time, and nothing computed under old ones is used again."""

import asyncio
import gc
import random
import sys

import pytest
import torch

from rl.adapters import add_adapter, named_weights
from rl.config import LoraParams
from rl.engines.base import Request, Sampling
from rl.engines.vllm import VllmEngine
from rl.errors import TrainingError
from tests.handing import handed
from tests.vllm.conftest import LENGTH, PARAMS, disagreement, optimiser_step, prompt, sample, small_model

pytestmark = pytest.mark.vllm
SHAPES = [("qwen3", True), ("qwen3", False), ("llama", True), ("llama", False)]


@pytest.mark.parametrize(("kind", "tied"), SHAPES)
def test_twenty_rounds_of_training_and_sync(engine_for, kind, tied):
    model = small_model(kind, tied=tied)
    engine = engine_for(model)
    prompts = [prompt(i) for i in range(6)]
    errors, samples = [], []
    for round_ in range(1, 21):
        optimiser_step(model, round_)
        engine.take(handed(model, round_))
        errors.append(engine.probe_error)
        made = sample(engine, prompts)
        assert {completion.policy_version for completion in made} == {round_}
        samples.append(max(disagreement(model, ids, completion) for ids, completion in zip(prompts, made, strict=True)))
    print(
        f"{kind}, tied {tied}: largest probe error {max(errors):.1e}, last {errors[-1]:.1e}; largest disagreement of samples {max(samples):.1e}"
    )
    assert max(errors) < 1e-4
    assert max(samples) < 1e-4


@pytest.mark.parametrize(
    "left_out",
    [
        "model.layers.1.mlp.down_proj.weight",
        "model.layers.0.self_attn.k_proj.weight",
        "model.norm.weight",
        "model.layers.0.input_layernorm.weight",
    ],
)
def test_a_tensor_that_a_sync_leaves_out_is_caught(engine_for, monkeypatch, left_out):
    model = small_model()
    engine = engine_for(model)
    optimiser_step(model, 1)
    assert left_out in dict(named_weights(model))
    monkeypatch.setattr(
        "rl.handover.named_weights",
        lambda model, _: (pair for pair in named_weights(model) if pair[0] != left_out),
    )
    with pytest.raises(
        TrainingError,
        match=r"after taking over policy version 1 .* differ from the trainer's by up to \S+, more than rollout.engine.probe_tolerance = 0.0001",
    ):
        engine.take(handed(model, 1))
    with pytest.raises(TrainingError, match="no weights yet"):
        sample(engine, [prompt(0)])
    monkeypatch.undo()
    engine.take(handed(model, 1))
    assert engine.probe_error < 1e-4


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_a_tied_head_is_renewed_and_a_stale_one_is_caught(engine_for, monkeypatch, kind):
    """A loader that skips the tied head would leave its packed copy as it was."""
    model = small_model(kind)
    engine = engine_for(model)
    monkeypatch.setattr(
        "rl.handover.named_weights",
        lambda model, _: (pair for pair in named_weights(model) if pair[0] != "lm_head.weight"),
    )
    optimiser_step(model, 1)
    engine.take(handed(model, 1))
    assert engine.probe_error < 1e-4
    monkeypatch.setattr("rl.engines.vllm_core._repack_head", lambda model: None)
    optimiser_step(model, 2)
    with pytest.raises(TrainingError, match="differ from the trainer's"):
        engine.take(handed(model, 2))


def test_nothing_cached_under_old_weights_is_used_after_a_sync(engine_for, monkeypatch):
    """Blocks of the same long prompt are found again within a version, and only there."""
    model, long = small_model(), prompt(1, 130)
    engine = engine_for(model)
    before = sample(engine, [long])[0]
    assert disagreement(model, long, before) < 1e-4
    optimiser_step(model, 1)
    engine.take(handed(model, 1))
    after = sample(engine, [long])[0]
    assert disagreement(model, long, after) < 1e-4
    optimiser_step(model, 2)
    monkeypatch.setattr(engine._core.llm, "reset_prefix_cache", lambda **_: True)
    engine.take(handed(model, 2))
    assert disagreement(model, long, sample(engine, [long])[0]) > 1e-2  # what the reset is for


def test_a_sync_without_news_does_nothing(engine_for, monkeypatch):
    model = small_model()
    engine = engine_for(model, version=3)
    loads = []
    load = engine._core.load
    monkeypatch.setattr(engine._core, "load", lambda weights: (loads.append(1), load(weights)))
    engine.take(handed(model, 3))
    assert loads == []
    engine.take(handed(model, 4))
    optimiser_step(model, 1)  # the version is the same, the weights are not: a restored checkpoint, an average
    engine.take(handed(model, 4))
    assert len(loads) == 2
    assert engine.policy_version == 4


def test_adapters_arrive_merged_and_the_model_keeps_its_bits(engine_for):
    model = small_model(tied=False)
    plain = sample(engine_for(model), [prompt(0)])[0]
    add_adapter(
        model,
        LoraParams(
            rank=4,
            alpha=8.0,
            target_modules=("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        ),
        seed=1,
    )
    engine = engine_for(model, version=1)
    for round_ in range(2, 6):
        optimiser_step(model, round_, learning_rate=5e-2)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        engine.take(handed(model, round_))
        assert engine.probe_error < 1e-4
        made = sample(engine, [prompt(0)])[0]
        assert disagreement(model, prompt(0), made) < 1e-4
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert made.logprobs != plain.logprobs


def test_random_generators_and_threads_are_left_alone(engine_for):
    """A start of vLLM seeds the process and takes `set_num_threads` away; a run must not depend on when its engine
    starts.
    """
    model = small_model()
    engine = engine_for(model)
    torch.manual_seed(5)
    state, numbers, threads = torch.get_rng_state(), random.getstate(), torch.set_num_threads
    engine._core.stop()
    engine._core.start(model.config, type(model).__name__)
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == numbers
    assert torch.set_num_threads is threads


def test_it_starts_where_somebody_searched_by_words(engine_for):
    """Which loads numba, whose library vLLM 0.32 stumbles over on a processor."""
    import bm25s  # noqa: F401  at its place in the story
    import llvmlite.binding.ffi as loaded

    engine = engine_for(small_model())
    engine._core.stop()
    engine._core.start(small_model().config, type(small_model()).__name__)
    assert sys.modules["llvmlite.binding.ffi"] is loaded


def test_a_second_engine_puts_the_first_away_until_its_next_sync(engine_for):
    model = small_model()
    first = engine_for(model)
    before = sample(first, [prompt(0)])[0]
    second = VllmEngine(PARAMS, LENGTH)
    second.take(handed(model, 0))
    with pytest.raises(TrainingError, match="another one was started"):
        sample(first, [prompt(0)])
    assert sample(second, [prompt(0)])[0].token_ids == before.token_ids
    first.take(handed(model, 0))
    assert sample(first, [prompt(0)])[0].token_ids == before.token_ids
    del second
    gc.collect()
    assert sample(first, [prompt(0)])[0].token_ids == before.token_ids


def test_a_sync_in_the_middle_of_turns_is_refused(engine_for):
    model = small_model()
    engine = engine_for(model)

    async def run() -> None:
        turn = asyncio.create_task(engine.generate(Request("s", prompt(0), 1, Sampling(1.0, 20, 4))))
        await asyncio.sleep(0)
        with pytest.raises(TrainingError, match="1 turns are under way"):
            engine.take(handed(model, 9))
        await turn

    asyncio.run(run())
