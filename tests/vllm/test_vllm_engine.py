"""What can go wrong with vLLM in a rollout: a death, a second one, a step that never ends, requests that cannot be
served, more sessions than sequences.
"""

import asyncio
import time

import pytest
import torch

from rl.engines.base import Request, Sampling
from rl.engines.vllm import VllmEngine
from rl.errors import TrainingError
from rl.models import new_model, new_tokenizer
from tests.handing import handed
from tests.vllm.conftest import LENGTH, PARAMS, STOP, disagreement, optimiser_step, prompt, sample, small_model

pytestmark = pytest.mark.vllm


def dies_at(engine: VllmEngine, monkeypatch, *steps: int) -> list[int]:
    """Let these steps of the engine fail, also after a restart; returns the growing list of steps made."""
    advance, made = engine._core.advance, []

    def step(new, gone):
        made.append(len(made) + 1)
        if made[-1] in steps:
            raise RuntimeError("the driver fell over")
        return advance(new, gone)

    monkeypatch.setattr(engine._core, "advance", step)
    return made


def test_a_dead_engine_is_started_anew_with_the_current_weights(engine_for, monkeypatch):
    """Unfinished turns begin again and become what they would have been; those that were done stay as they were."""
    model = small_model()
    optimiser_step(model, 1)
    engine = engine_for(model, version=1)
    prompts = [prompt(i) for i in range(12)]
    expected = sample(engine, prompts)
    old = engine._core.llm
    made = dies_at(engine, monkeypatch, 7)
    found = sample(engine, prompts)
    assert len(made) > 12
    assert engine._core.llm is not old
    assert [completion.token_ids for completion in found] == [completion.token_ids for completion in expected]
    assert max(disagreement(model, ids, completion) for ids, completion in zip(prompts, found, strict=True)) < 1e-4
    assert {completion.policy_version for completion in found} == {1}


def test_a_second_death_ends_the_rollout_and_a_sync_begins_anew(engine_for, monkeypatch):
    model = small_model()
    engine = engine_for(model)
    dies_at(engine, monkeypatch, 3, 6)
    with pytest.raises(
        TrainingError,
        match=r"died again in the same rollout \(RuntimeError: the driver fell over\); run again, it resumes from the last checkpoint",
    ):
        sample(engine, [prompt(i) for i in range(4)])
    with pytest.raises(TrainingError, match="take a handover first"):
        sample(engine, [prompt(0)])
    engine.take(handed(model, 0))
    assert disagreement(model, prompt(0), sample(engine, [prompt(0)])[0]) < 1e-4


def test_a_death_after_the_learner_went_on_is_not_mended_with_other_weights(engine_for, monkeypatch):
    """With rollouts one step ahead: the weights that the turns were begun with are gone, and the new ones are not the
    version that completions would say.
    """
    model = small_model()
    engine = engine_for(model)
    made = dies_at(engine, monkeypatch, 5)
    advance = engine._core.advance

    def learns_meanwhile(new, gone):
        if len(made) == 2:
            optimiser_step(model, 1)
        return advance(new, gone)

    monkeypatch.setattr(engine._core, "advance", learns_meanwhile)
    with pytest.raises(TrainingError, match="while the learner was changing the weights that it played with"):
        sample(engine, [prompt(i) for i in range(4)])
    with pytest.raises(TrainingError, match="take a handover first"):
        sample(engine, [prompt(0)])


def test_an_engine_that_cannot_start_again_says_so(engine_for, monkeypatch):
    model = small_model()
    engine = engine_for(model)
    dies_at(engine, monkeypatch, 2)
    monkeypatch.setattr(engine._core, "start", lambda *_: 1 / 0)
    with pytest.raises(
        TrainingError, match=r"died \(the driver fell over\) and does not start again \(division by zero\)"
    ):
        sample(engine, [prompt(0)])


def test_a_step_or_a_sync_that_never_ends_is_given_up(monkeypatch):
    model = small_model()
    engine = VllmEngine(PARAMS, LENGTH)
    engine.take(handed(model, 0))
    engine._params = PARAMS.model_copy(update={"timeout_s": 0.3})
    monkeypatch.setattr(engine._core, "advance", lambda new, gone: time.sleep(1))
    with pytest.raises(TrainingError, match=r"did not answer for rollout.engine.timeout_s = 0.3 s"):
        sample(engine, [prompt(0)])
    with pytest.raises(TrainingError, match=r"did not answer for rollout.engine.timeout_s = 0.3 s"):
        engine.take(handed(model, 1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_embeddings": torch.zeros(1, 64)}, "use an engine of kind transformers where embeddings are fed"),
        ({"token_ids": (7, 320)}, "was fed token 320, which is outside the model's vocabulary of 320"),
        ({"token_ids": (-1,)}, "was fed token -1, which is outside"),
        (
            {"sampling": Sampling(0.005, 4, STOP)},
            "at temperatures from 0.01 on, or at 0, not at 0.005; change section decoding",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_and_hurts_nobody_else(engine_for, changes, message):
    model = small_model()
    engine = engine_for(model)
    given = {"session": "bad", "token_ids": (7,), "noise_key": 1, "sampling": Sampling(1.0, 4, STOP)} | changes

    async def run() -> list[object]:
        good = engine.generate(Request("good", prompt(0), 1, Sampling(1.0, 4, STOP)))
        return await asyncio.gather(good, engine.generate(Request(**given)), return_exceptions=True)

    good, bad = asyncio.run(run())
    assert disagreement(model, prompt(0), good) < 1e-4
    assert isinstance(bad, TrainingError)
    assert message in str(bad)


def test_forty_sessions_queue_for_eight_sequences(engine_for):
    model = small_model()
    prompts = [prompt(i) for i in range(40)]
    made = sample(engine_for(model), prompts)
    assert max(disagreement(model, ids, completion) for ids, completion in zip(prompts, made, strict=True)) < 1e-4


@pytest.mark.parametrize(
    ("number", "changes"),
    [(60, {"max_sequences": 64}), (8, {"kv_cache_gib": 16 * 32768 / 2**30})],
    ids=[
        "more prompt tokens at once than a step takes",
        "a cache too small for all, so that turns are put back and computed again",
    ],
)
def test_a_crowd_gets_what_each_would_get_alone(engine_for, number, changes):
    model = small_model()
    prompts = [prompt(i, 110) for i in range(number)]
    alone = [sample(engine_for(model), [ids])[0] for ids in prompts[:1]]
    engine = VllmEngine(PARAMS.model_copy(update=changes), LENGTH)
    engine.take(handed(model, 0))
    made = sample(engine, prompts, max_tokens=40)
    assert max(disagreement(model, ids, completion) for ids, completion in zip(prompts, made, strict=True)) < 1e-4
    assert engine._restarts == 0
    assert made[0].token_ids[: len(alone[0].token_ids)] == alone[0].token_ids


def test_in_bfloat16_the_probe_sees_the_rounding(engine_for):
    model = small_model()
    engine = VllmEngine(PARAMS.model_copy(update={"dtype": "bfloat16", "probe_tolerance": 1.0}), LENGTH)
    engine.take(handed(model, 0))
    print(f"bfloat16 engine, float32 trainer: probe error {engine.probe_error:.2g}")
    assert 1e-4 < engine.probe_error < 1.0


def test_a_model_that_vllm_cannot_serve_is_refused_in_one_line(engine_for):
    """Heads of 16: its attention on a CPU has no kernel for them."""
    model = new_model(
        new_tokenizer(["one two three four"], 280), width=32, layers=1, heads=2, context=LENGTH, seed=0
    ).eval()
    with pytest.raises(
        TrainingError,
        match=r"vLLM cannot serve this model \(RuntimeError: .*head_dim=16.*\); use an engine of kind transformers",
    ):
        VllmEngine(PARAMS, LENGTH).take(handed(model, 0))


def test_ids_beyond_the_tokenizer_are_never_sampled(engine_for):
    model = small_model()
    model.known_ids = 100
    made = sample(engine_for(model, version=1), [prompt(i) for i in range(8)])
    assert max(token for completion in made for token in completion.token_ids) < 100
    with torch.no_grad():
        for number, completion in enumerate(made):
            ids = [*prompt(number), *completion.token_ids]
            logits_TV = model(input_ids=torch.tensor([ids])).logits[0, len(prompt(number)) - 1 : -1, :100]
            expected = torch.log_softmax(logits_TV, -1).gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(completion.logprobs), expected, atol=1e-4, rtol=0)
