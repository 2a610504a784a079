"""What every engine promises, as one suite.

A new engine adds a line to ENGINES; what only the slot engine promises (bits, slots, embeddings) asks for SLOTS.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain

import pytest
import torch
from transformers import PreTrainedModel

from rl.config import VllmParams
from rl.engines.base import Completion, Engine, Finish, Request, Sampling, noise_key
from rl.engines.scripted import ScriptedEngine, sampled_from
from rl.engines.transformers import TransformersEngine
from rl.engines.vllm import VllmEngine
from rl.errors import TrainingError
from rl.models import new_model, new_tokenizer
from tests.handing import handed

MakeEngine = Callable[[PreTrainedModel, int, int], Engine]  # model, slots, tokens per session
VLLM = VllmParams(
    kind="vllm",
    dtype="float32",
    gpu_memory_utilization=0.3,
    kv_cache_gib=0.25,
    block_size=32,
    max_sequences=8,
    enforce_eager=True,
    probe_tolerance=1e-4,
    timeout_s=200,
)


@cache
def started(model: PreTrainedModel, length: int) -> VllmEngine:
    return VllmEngine(VLLM, length)


def vllm_engine(model: PreTrainedModel, _slots: int, length: int) -> Engine:
    """One of eight sequences, used again: a start takes seconds, and what it played before changes no token.

    More sessions wait.
    """
    engine = started(model, length)
    for session in engine._histories.sessions():
        engine.release(session)
    engine.take(handed(model, 0))
    return engine


def scripted(model: PreTrainedModel, _slots: int, length: int) -> Engine:
    return ScriptedEngine(sampled_from(model), model.config.vocab_size, length)


compiled = partial(TransformersEngine, compiled=True)
static = partial(TransformersEngine, static=True)
ENGINES: dict[str, MakeEngine] = {
    "scripted": scripted,
    "transformers": TransformersEngine,
    "static": static,
    "compiled": compiled,
    "vllm": vllm_engine,
}
MARKS = {"vllm": [pytest.mark.vllm], "compiled": [pytest.mark.slow]}
SLOTS = pytest.mark.parametrize(
    "make_engine", [TransformersEngine, static, pytest.param(compiled, marks=pytest.mark.slow)]
)

STOP, LIMIT, LENGTH = 4, 6, 96  # a token id, tokens per turn, tokens per session


@pytest.fixture(params=[pytest.param(name, marks=MARKS.get(name, [])) for name in ENGINES])
def make_engine(request) -> MakeEngine:
    return ENGINES[request.param]


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    """Weights large enough that every token of the past visibly moves the next distribution."""
    model = new_model(
        new_tokenizer(["one two three four"], 280), width=64, layers=2, heads=2, context=LENGTH, seed=0
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter *= 4
        model.get_input_embeddings().weight[STOP] *= (
            2  # tied: the stop token's logit spreads, so that some turns end by it
        )
    return model


@dataclass
class Script:
    """A session to play: what is fed before each turn, and how often others may run in between."""

    name: str
    feeds: Sequence[Sequence[int]]
    pauses: list[int]
    temperature: float = 1.0
    run: int = 0
    max_tokens: int = LIMIT
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    sampled: list[int] = field(default_factory=list)  # places of the sampled tokens
    turns: list[Completion] = field(default_factory=list)

    async def play(self, engine: Engine) -> None:
        for k, (feed, pause) in enumerate(zip(self.feeds, self.pauses, strict=True)):
            for _ in range(pause):
                await asyncio.sleep(0)
            sampling = Sampling(self.temperature, self.max_tokens, STOP)
            completion = await engine.generate(
                Request(self.name, tuple(feed), noise_key(self.run, self.name, k), sampling)
            )
            self.ids += [*feed, *completion.token_ids]
            self.sampled += range(len(self.ids) - len(completion.token_ids), len(self.ids))
            self.logprobs += completion.logprobs
            self.turns.append(completion)
        engine.release(self.name)


def some_scripts(count: int, seed: int, **changes) -> list[Script]:
    """Sessions of one to four turns, fed one to nine tokens a time, with uneven pauses."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int, size: int) -> list[int]:
        return torch.randint(low, high, (size,), generator=generator).tolist()

    scripts = []
    for i in range(count):
        turns = draw(1, 5, 1)[0]
        scripts.append(
            Script(f"s{i}", [draw(5, 270, length) for length in draw(1, 10, turns)], draw(0, 60, turns), **changes)
        )
    return scripts


def play(engine: Engine, *waves: Sequence[Script]) -> None:
    """Play each wave's scripts side by side, wave after wave."""

    async def run() -> None:
        for wave in waves:
            await asyncio.gather(*(script.play(engine) for script in wave))
        await engine.close()

    asyncio.run(asyncio.wait_for(run(), timeout=120))


def full_forward(model: PreTrainedModel, script: Script) -> torch.Tensor:
    """Logits before each sampled token, from one plain forward of everything recorded."""
    with torch.no_grad():
        logits_TV = model(input_ids=torch.tensor([script.ids])).logits[0]
    return logits_TV[torch.tensor(script.sampled) - 1]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("slots", [6, 9])
def test_logprobs_are_those_of_one_full_forward(make_engine, model, temperature, slots):
    """Six sessions fill the six slots or leave some free; the later waves start all at once."""
    first, *later = (some_scripts(6, seed, temperature=temperature, run=seed) for seed in range(1, 7))
    for script in chain(*later):
        script.pauses[0] = 0
    play(make_engine(model, slots, LENGTH), first, *later)
    finishes = {turn.finish for script in chain(first, *later) for turn in script.turns}
    assert finishes == set(Finish)
    for script in chain(first, *later):
        logprob_NV = torch.log_softmax(full_forward(model, script) / temperature, dim=-1)
        expected_N = logprob_NV.gather(1, torch.tensor(script.ids)[script.sampled][:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(script.logprobs), expected_N, atol=1e-4, rtol=0)


def test_a_turn_ends_at_the_stop_token_or_the_limit(make_engine, model):
    scripts = some_scripts(12, 3)
    play(make_engine(model, 12, LENGTH), scripts)
    for turn in (turn for script in scripts for turn in script.turns):
        assert 1 <= len(turn.token_ids) == len(turn.logprobs) <= LIMIT
        assert STOP not in turn.token_ids[:-1]
        assert (turn.finish is Finish.STOP) == (turn.token_ids[-1] == STOP)
        assert turn.finish is Finish.STOP or len(turn.token_ids) == LIMIT


def test_without_a_stop_token_the_limit_alone_ends_a_turn(make_engine, model):
    engine = make_engine(model, 1, LENGTH)

    async def run() -> list[Completion]:
        turns = []
        for key in range(30):
            turns.append(await engine.generate(Request("s", (7,), noise_key(key), Sampling(1.0, 80, None))))
            engine.release("s")
        await engine.close()
        return turns

    turns = asyncio.run(asyncio.wait_for(run(), timeout=120))
    assert {(len(turn.token_ids), turn.finish) for turn in turns} == {(80, Finish.LENGTH)}
    assert any(STOP in turn.token_ids for turn in turns)


def test_company_and_order_change_no_token(make_engine, model):
    """The same noise keys give the same tokens alone, in company, in any order and among strangers."""

    def tokens(scripts: Sequence[Script]) -> dict[str, list[int]]:
        return {script.name: script.ids for script in scripts}

    alone = some_scripts(6, 4)
    for script in alone:
        play(make_engine(model, 6, LENGTH), [script])
    together, backwards = some_scripts(6, 4), some_scripts(6, 4)[::-1]
    play(make_engine(model, 6, LENGTH), together, backwards)
    strangers = [
        Script(f"stranger{i}", script.feeds, script.pauses[::-1]) for i, script in enumerate(some_scripts(9, 5))
    ]
    among, hurried = some_scripts(6, 4), some_scripts(6, 4)
    for script in hurried:
        script.pauses = [0] * len(script.feeds)
    play(make_engine(model, 15, LENGTH), strangers[:5] + among + strangers[5:], hurried[3:] + hurried[:3])
    assert tokens(alone) == tokens(together) == tokens(backwards) == tokens(among) == tokens(hurried)


@SLOTS
def test_what_an_idle_engine_played_before_changes_no_bit(make_engine, model):
    """A resumed run starts with a fresh engine and must go on as the engine that was never killed."""
    fresh, later = some_scripts(24, 4), some_scripts(24, 4)
    play(make_engine(model, 24, LENGTH), fresh)
    play(make_engine(model, 24, LENGTH), some_scripts(17, 5, run=1), later)
    assert [script.logprobs for script in later] == [script.logprobs for script in fresh]


def test_other_keys_sample_otherwise(make_engine, model):
    one, other = some_scripts(4, 6, run=1), some_scripts(4, 6, run=2)
    play(make_engine(model, 4, LENGTH), one, other)
    assert [script.ids for script in one] != [script.ids for script in other]
    assert one[0].turns[0].token_ids != one[1].turns[0].token_ids


def test_temperature_zero_takes_the_most_likely_token(make_engine, model):
    scripts = some_scripts(4, 7, temperature=0.0)
    play(make_engine(model, 4, LENGTH), scripts)
    for script in scripts:
        assert full_forward(model, script).argmax(-1).tolist() == [script.ids[place] for place in script.sampled]


def test_sampling_follows_the_distribution(make_engine, model):
    """400 first tokens under different keys against the exact distribution: total variation near its expected noise."""
    scripts = [Script(f"s{i}", [[7, 8, 9]], [0], temperature=0.25, max_tokens=1) for i in range(400)]
    play(make_engine(model, 400, 16), scripts)
    exact_V = torch.softmax(full_forward(model, scripts[0])[0] / 0.25, dim=-1)
    seen_V = (
        torch.bincount(torch.tensor([script.turns[0].token_ids[0] for script in scripts]), minlength=len(exact_V)) / 400
    )
    noise = 0.5 * float((2 * exact_V * (1 - exact_V) / torch.pi / 400).sqrt().sum())
    assert 0.5 * float((seen_V - exact_V).abs().sum()) < 1.5 * noise


def test_release_frees_the_slot_and_forgets_the_session(make_engine, model):
    engine = make_engine(model, 1, LENGTH)
    first, again = (Script("s", [[7, 8, 9]], [0]) for _ in range(2))
    play(engine, *([script] for script in some_scripts(3, 8)), [first], [again])  # one slot, used five times over
    assert first.ids == again.ids
    torch.testing.assert_close(first.logprobs, again.logprobs)


@SLOTS
def test_more_sessions_than_slots_are_refused(make_engine, model):
    first, second = Script("s0", [[7]] * 2, [0, 50]), Script("s1", [[7]], [30])
    with pytest.raises(TrainingError, match=r"all 1 engine slots are taken.*slots"):
        play(make_engine(model, 1, LENGTH), [first, second])


def test_too_long_a_session_is_refused(make_engine, model):
    with pytest.raises(TrainingError, match=r"needs 9 tokens but rollout.max_episode_tokens is 8"):
        play(make_engine(model, 1, 8), [Script("s", [[7, 8, 9]], [0])])
    exact = Script("s", [[7, 8]], [0])
    play(make_engine(model, 1, 8), [exact])
    assert exact.turns


@pytest.mark.parametrize("company", [[], [Script("other", [[7, 8]], [0])]])
def test_a_session_that_was_fed_nothing_is_refused(make_engine, model, company):
    """There is nothing to continue; what another session says is none of it."""
    with pytest.raises(TrainingError, match=r"session 'empty' was fed no token"):
        play(make_engine(model, 2, LENGTH), [*company, Script("empty", [[]], [0])])


@SLOTS
@pytest.mark.parametrize("feed", [[7, 10**6], [-1]])
def test_a_failing_forward_reaches_everyone_who_waits(make_engine, model, feed):
    """No hang; and the engine serves the next rollout."""
    engine = make_engine(model, 4, LENGTH)

    async def run() -> list[object]:
        scripts = [Script("bad", [feed], [3]), *(Script(f"s{i}", [[7]], [0], max_tokens=60) for i in range(3))]
        results = await asyncio.wait_for(
            asyncio.gather(*(script.play(engine) for script in scripts), return_exceptions=True), timeout=120
        )
        for script in scripts:
            engine.release(script.name)
        return results

    assert all(isinstance(result, IndexError) for result in asyncio.run(run()))
    healthy, fresh = Script("s", [[7, 8], [9]], [0, 0]), Script("s", [[7, 8], [9]], [0, 0])
    play(engine, [healthy])
    play(make_engine(model, 4, LENGTH), [fresh])
    assert healthy.ids == fresh.ids


def test_a_rollout_cut_short_leaves_no_ghosts(make_engine, model):
    """Sessions released before they were served do not come back in the next rollout."""
    engine = make_engine(model, 3, LENGTH)

    async def cut(after: int) -> None:
        scripts = [Script(f"s{i}", [[7 + i] * 3] * 2, [i, 0]) for i in range(3)]
        tasks = [asyncio.create_task(script.play(engine)) for script in scripts]
        for _ in range(after):
            await asyncio.sleep(0)
        for task, script in zip(tasks, scripts, strict=True):
            task.cancel()
            engine.release(script.name)

    for after in (1, 2, 3, 7, 20):
        asyncio.run(cut(after))
    healthy, fresh = some_scripts(3, 9), some_scripts(3, 9)
    play(engine, healthy)
    play(make_engine(model, 3, LENGTH), fresh)
    assert [script.ids for script in healthy] == [script.ids for script in fresh]


@SLOTS
@pytest.mark.parametrize("fed_as", [1, 3, 5])
def test_embeddings_stand_in_for_tokens(make_engine, model, fed_as):
    """The first `fed_as` of five tokens come as their embeddings; in company of a session that gives none."""
    ids = [11, 12, 13, 14, 15]
    embedded_QD = model.get_input_embeddings()(torch.tensor(ids)).detach()
    sampling = Sampling(1.0, LIMIT, STOP)
    engine = make_engine(model, 3, LENGTH)

    async def run() -> list[Completion]:
        async def two_turns(session: str, count: int) -> list[Completion]:
            request = Request(session, tuple(ids[count:]), 5, sampling, embedded_QD[:count] if count else None)
            return [await engine.generate(request), await engine.generate(Request(session, (16,), 6, sampling))]

        (plain, embedded, _) = await asyncio.gather(
            two_turns("plain", 0), two_turns("embedded", fed_as), two_turns("other", 0)
        )
        return [*plain, *embedded]

    plain, plain_again, embedded, embedded_again = asyncio.run(asyncio.wait_for(run(), timeout=60))
    assert (plain.token_ids, plain_again.token_ids) == (embedded.token_ids, embedded_again.token_ids)
    torch.testing.assert_close(
        torch.tensor(plain.logprobs + plain_again.logprobs),
        torch.tensor(embedded.logprobs + embedded_again.logprobs),
        atol=1e-5,
        rtol=0,
    )


def test_completions_tell_the_policy_version(make_engine, model):
    engine = make_engine(model, 1, LENGTH)
    engine.take(handed(model, 7))
    script = Script("s", [[7]], [0])
    play(engine, [script])
    assert script.turns[0].policy_version == 7


def test_two_turns_at_once_in_one_session_are_refused(make_engine, model):
    with pytest.raises(TrainingError, match=r"session 's' is in the middle of a turn"):
        play(make_engine(model, 2, LENGTH), [Script("s", [[7]], [0]), Script("s", [[8]], [0])])


@SLOTS
def test_the_slot_engine_says_what_the_oracle_says(make_engine, model):
    """Token for token: many slots, caches and padding against one forward pass of everything for every token."""
    fast, slow = some_scripts(9, 12), some_scripts(9, 12)
    play(make_engine(model, 9, LENGTH), fast)
    play(scripted(model, 9, LENGTH), slow)
    assert [script.ids for script in fast] == [script.ids for script in slow]
