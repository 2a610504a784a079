"""Small models with weights of their own, a started engine, and what the model says of what was sampled."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from rl.config import VllmParams
from rl.engines.base import Completion, Engine, Request, Sampling, noise_key
from rl.engines.vllm import VllmEngine
from tests.handing import handed

PARAMS = VllmParams(
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
LENGTH, STOP = 160, 4
KINDS = {"qwen3": (Qwen3Config, Qwen3ForCausalLM), "llama": (LlamaConfig, LlamaForCausalLM)}


@pytest.fixture(autouse=True)
def same_torch_after() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    yield
    torch.use_deterministic_algorithms(before)


def small_model(kind: str = "qwen3", *, tied: bool = True, seed: int = 0) -> PreTrainedModel:
    """Two layers of width 64; weights large enough that every one of them shows."""
    torch.manual_seed(seed)
    config, architecture = KINDS[kind]
    model = architecture(
        config(
            vocab_size=320,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=LENGTH,
            tie_word_embeddings=tied,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=STOP,
        )
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter *= 4
    return model


def optimiser_step(model: PreTrainedModel, seed: int, learning_rate: float = 1e-2) -> None:
    """One step of a real optimiser on random tokens."""
    trained = [p for p in model.parameters() if p.requires_grad]
    ids = torch.randint(5, 320, (2, 24), generator=torch.Generator().manual_seed(seed))
    model(input_ids=ids, labels=ids).loss.backward()
    torch.optim.AdamW(trained, lr=learning_rate).step()
    model.zero_grad()


def prompt(number: int, length: int = 9) -> tuple[int, ...]:
    return tuple((37 * i + 101 * number + 11) % 310 + 5 for i in range(length))


def sample(engine: Engine, prompts: list[tuple[int, ...]], max_tokens: int = 12) -> list[Completion]:
    """One turn for each prompt, side by side."""

    async def turn(number: int, ids: tuple[int, ...]) -> Completion:
        try:
            return await engine.generate(Request(f"s{number}", ids, noise_key(number), Sampling(1.0, max_tokens, STOP)))
        finally:
            engine.release(f"s{number}")

    async def run() -> list[Completion]:
        made = await asyncio.gather(*(turn(number, ids) for number, ids in enumerate(prompts)))
        await engine.close()
        return made

    return asyncio.run(asyncio.wait_for(run(), timeout=120))


@torch.no_grad()
def disagreement(model: PreTrainedModel, ids: tuple[int, ...], completion: Completion) -> float:
    """Largest |delta log p| between the completion and one plain forward."""
    every = torch.tensor([[*ids, *completion.token_ids]])
    logprob_TV = torch.log_softmax(model(input_ids=every).logits[0], dim=-1)
    expected = logprob_TV[len(ids) - 1 : -1].gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]
    return float((expected - torch.tensor(completion.logprobs)).abs().max())


@pytest.fixture(scope="session")
def engine_for() -> Callable[..., VllmEngine]:
    """An engine that is started for this shape of model; tests of one shape share it, each brings its own weights."""
    started: dict[tuple[str, bool], VllmEngine] = {}

    def engine(model: PreTrainedModel, *, version: int = 0) -> VllmEngine:
        key = (model.config.model_type, model.config.tie_word_embeddings)
        one = started.setdefault(key, VllmEngine(PARAMS, LENGTH))
        for session in one._histories.sessions():
            one.release(session)
        one.take(handed(model, version))
        return one

    return engine
