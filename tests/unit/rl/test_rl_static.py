"""Decoding in static shapes says what ordinary decoding says, recorded or not."""

import asyncio
import logging
from itertools import pairwise

import pytest
import torch
from transformers import AutoModelForCausalLM

import rl.engines.transformers
from rl.engines.base import Completion, Request, Sampling, noise_key
from rl.engines.slots import SlotCache
from rl.engines.static import STEPS, SlotTurn, StaticDecoder
from rl.engines.transformers import TransformersEngine
from tests.numerics.families import config_of

LENGTH, STOP = 300, 4
FAMILIES = ["qwen2", "qwen2-window", "qwen3", "llama", "mistral-window", "gemma2", "gemma3"]


def made(family: str, dtype: torch.dtype = torch.float32):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config_of(family, 120), attn_implementation="sdpa").to(dtype).eval()


def played(engine: TransformersEngine, temperature: float, most: int = 40) -> list[Completion]:
    """Five dialogues of two turns, of different lengths; one is longer than the shortest span."""

    async def converse(number: int) -> list[Completion]:
        turns = []
        for turn, size in enumerate((7 + 20 * number, 3)):
            ids = tuple((13 * number + 7 * place) % 110 + 5 for place in range(size))
            sampling = Sampling(temperature, most - number, STOP)
            turns.append(await engine.generate(Request(f"{number}", ids, noise_key(number, turn), sampling)))
        engine.release(f"{number}")
        return turns

    async def all_of_them() -> list[Completion]:
        found = await asyncio.gather(*map(converse, range(5)))
        await engine.close()
        return [turn for turns in found for turn in turns]

    return asyncio.run(asyncio.wait_for(all_of_them(), 60))


def assert_same(found: list[Completion], expected: list[Completion]) -> None:
    assert [turn.token_ids for turn in found] == [turn.token_ids for turn in expected]
    assert [turn.finish for turn in found] == [turn.finish for turn in expected]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(torch.tensor(ours.logprobs), torch.tensor(theirs.logprobs), atol=1e-4, rtol=0)


@pytest.mark.parametrize("temperature", [pytest.param(0.0, marks=pytest.mark.slow), 0.8])
@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_ordinary_decoding(family, temperature):
    model = made(family)
    ordinary = played(TransformersEngine(model, 6, LENGTH), temperature)
    assert_same(played(TransformersEngine(model, 6, LENGTH, static=True), temperature), ordinary)
    assert any(len(turn.token_ids) % STEPS > 1 for turn in ordinary)  # some end within a block of steps


def test_its_shapes_do_not_change_with_who_runs(monkeypatch):
    """Nothing that a step is given moves or changes its shape: a recording plays the same addresses again."""
    seen: dict[int, set[tuple[tuple[int, ...], ...]]] = {}
    places: set[int] = set()
    original = StaticDecoder._step

    def watched(self, decoder, span):
        original(self, decoder, span)
        shapes = tuple(tuple(x.shape) for x in (self._state_7S, self._cache.place_BQ, self._cache.row_B))
        seen.setdefault(span, set()).add(shapes)
        places.add(self._state_7S.data_ptr() + self._drawn_2S.data_ptr() + self._cache.keys[0].data_ptr())

    monkeypatch.setattr(StaticDecoder, "_step", watched)
    played(TransformersEngine(made("qwen2"), 6, LENGTH, static=True), 1.0)
    assert set(seen) == {128, 256}
    assert all(len(shapes) == 1 for shapes in seen.values())
    assert len(places) == 1


class FakeRecorder:
    """Runs a step before it records it, as the real one does; what it gives back is another function."""

    def __init__(self) -> None:
        self.recorded, self.replayed = 0, 0

    def __call__(self, step):
        for _ in range(3):
            step()
        self.recorded += 1

        def replay() -> None:
            self.replayed += 1
            step()

        return replay


def engine_that_records(monkeypatch, model, record) -> TransformersEngine:
    monkeypatch.setattr(
        rl.engines.transformers,
        "StaticDecoder",
        lambda model, cache, compiled: StaticDecoder(model, cache, compiled, record),
    )
    return TransformersEngine(model, 6, LENGTH, static=True)


def test_what_runs_before_a_recording_leaves_no_trace(monkeypatch):
    """The first runs write into the cache and move on; two spans are recorded, one in the middle of turns."""
    model, recorder = made("qwen2"), FakeRecorder()
    found = played(engine_that_records(monkeypatch, model, recorder), 1.0)
    assert recorder.recorded == 2
    assert recorder.replayed > 2 * STEPS
    assert_same(found, played(TransformersEngine(model, 6, LENGTH), 1.0))


def test_a_recording_that_fails_is_said_and_done_without(monkeypatch, caplog):
    def refuse(step):
        step()
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    model = made("qwen2")
    engine = engine_that_records(monkeypatch, model, refuse)
    with caplog.at_level(logging.WARNING, logger="rl.engines.static"):
        found = played(engine, 1.0)
    assert_same(found, played(TransformersEngine(model, 6, LENGTH), 1.0))
    assert engine._static.refused == {"as it is": "operation not permitted when stream is capturing"}
    assert caplog.text.count("cannot be prepared") == 1


def test_no_memory_is_no_reason_to_go_on(monkeypatch):
    def refuse(step):
        raise torch.OutOfMemoryError("none left")

    with pytest.raises(torch.OutOfMemoryError, match="none left"):
        played(engine_that_records(monkeypatch, made("qwen2"), refuse), 1.0)


def test_a_compiler_that_fails_is_said_and_done_without(caplog):
    def broken(**_):
        raise RuntimeError("no compiler")

    model = made("qwen2")
    engine = TransformersEngine(model, 6, LENGTH, static=True)
    engine._compiled = broken
    with caplog.at_level(logging.WARNING, logger="rl.engines.static"):
        found = played(engine, 0.0)
    assert_same(found, played(TransformersEngine(model, 6, LENGTH), 0.0))
    assert engine._static.refused == {"compiled": "no compiler"}


@torch.inference_mode()
def test_a_block_is_the_tokens_of_a_turn_one_by_one():
    """And a slot that is done, or idle, writes nothing that a session reads."""
    model = made("qwen2")
    cache = SlotCache(model, 3, 32)
    for tensor in [*cache.keys, *cache.values]:
        tensor.normal_(generator=torch.Generator().manual_seed(1))
    before = [tensor.clone() for tensor in cache.keys]
    turns = {
        0: SlotTurn(token=9, place=5, noise_key=1, sampled=1, limit=4, stop_id=None, temperature=1.0),
        2: SlotTurn(token=8, place=11, noise_key=2, sampled=1, limit=7, stop_id=None, temperature=0.0),
    }
    tokens, logprobs = StaticDecoder(model, cache).run(turns, {1: 20})
    assert len(tokens) == len(logprobs) == 6
    for key, old in zip(cache.keys, before, strict=True):
        held = {0: 5, 1: 20, 2: 11}
        assert all(torch.equal(key[slot, :, :place], old[slot, :, :place]) for slot, place in held.items())
        assert torch.equal(key[0, :, 9:], old[0, :, 9:])  # three tokens fed, and one place that nobody reads
        assert not torch.equal(key[2, :, 16], old[2, :, 16])


def test_much_to_feed_is_fed_in_parts(monkeypatch):
    model = made("qwen2")
    engine = TransformersEngine(model, 6, LENGTH, static=True)
    sizes: list[int] = []
    feed = engine._feed
    monkeypatch.setattr(rl.engines.transformers, "FEED_TOKENS", 150)
    monkeypatch.setattr(
        engine, "_feed", lambda turns: (sizes.append(sum(len(t.request.token_ids) for t in turns)), feed(turns))
    )
    found = played(engine, 1.0)
    assert len(sizes) > 3
    assert all(size <= 150 for size in sizes)
    assert_same(found, played(TransformersEngine(model, 6, LENGTH), 1.0))


def test_bfloat16_is_decoded_too():
    turns = played(TransformersEngine(made("qwen3", torch.bfloat16), 6, LENGTH, static=True), 1.0)
    assert all(len(ours.token_ids) == len(ours.logprobs) for ours in turns)
    assert len({turn.token_ids for turn, _ in pairwise(turns)}) > 1
