"""Layers compiled one by one: one program for all, plain where the engine plays, and done without where it fails.

The compiler here is torch's tracer with its plain kernels: what is traced is what a GPU's compiler would be given.
"""

import asyncio
import logging
from functools import partial

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from rl.batching import micro_batches, token_logprobs
from rl.compiling import compile_layers
from rl.engines.base import Request, Sampling
from rl.engines.transformers import TransformersEngine
from rl.flex import read_rows, same_attention_again
from rl.models import new_model, new_tokenizer
from rl.policy import Policy, compute_in
from rl.ranks import whole


@pytest.fixture(autouse=True)
def gradients_on_a_processor(monkeypatch):
    """torch refuses them to flex attention since it has no kernel for them; what stands in for one has them."""
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *_: None)
    torch.compiler.reset()


def made(layers: int = 2, *, checkpointing: bool = False):
    model = new_model(new_tokenizer(["a"], 280), width=32, layers=layers, heads=2, context=64, seed=1).eval()
    if checkpointing:
        again = partial(same_attention_again, model.get_decoder().config)
        model.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": again})
        for layer in model.model.layers:
            layer.training = True
    return model


def batches() -> list:
    tokens = [[9, 8, 7, 6, *range(20, 20 + size)] for size in (3, 9, 4, 17, 30, 31)]
    masks = [[0] * 4 + [1] * (len(ids) - 4) for ids in tokens]
    return list(micro_batches(tokens, masks, 40))


def outcome(model, compute: str = "float32") -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    policy = Policy(model)
    compute_in(policy, compute)
    found = torch.cat([policy.logprobs(batch, 0.8) for batch in batches()])
    found.sum().backward()
    return found.detach(), {name: whole(p.grad) for name, p in model.named_parameters()}


def assert_same(found, expected, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(found[0], expected[0], atol=tolerance, rtol=0)
    for name, gradient in expected[1].items():
        assert float((found[1][name] - gradient).norm() / gradient.norm()) < tolerance, name


@pytest.mark.slow
@pytest.mark.parametrize("rows", [False, True])
def test_layers_are_one_program(rows):
    """Programs are for lengths (one, then any), never for layers; without a gradient they are others."""
    counted = []
    for layers in (2, 5):
        torch.compiler.reset()
        model, plain, counter = made(layers), made(layers), CompileCounterWithBackend("eager")
        if rows:
            read_rows(model)
        compile_layers(model.get_decoder(), partial(torch.compile, backend=counter))
        assert_same(outcome(model), outcome(plain))
        with torch.no_grad():
            token_logprobs(model, batches()[0], 1.0)
        counted.append(counter.frame_count)
    assert counted[0] == counted[1] > 0


@pytest.mark.slow
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_they_are_computed_again_for_the_gradient_and_in_lower_precision(caplog, rows, checkpointing):
    model, plain = made(checkpointing=checkpointing), made()
    if rows:
        read_rows(model)
    compile_layers(model.get_decoder(), partial(torch.compile, backend="aot_eager"))
    assert_same(outcome(model, "bfloat16"), outcome(plain), 0.05)
    assert "cannot be compiled" not in caplog.text


def test_the_engine_plays_with_them_as_they_are():
    model, counter = made(), CompileCounterWithBackend("eager")
    compile_layers(model.get_decoder(), partial(torch.compile, backend=counter))
    engine = TransformersEngine(model, 2, 32)

    async def turn() -> int:
        completion = await engine.generate(Request("s", (7, 8), 1, Sampling(1.0, 5, None)))
        await engine.close()
        return len(completion.token_ids)

    assert asyncio.run(turn()) == 5
    assert counter.frame_count == 0


def test_a_compiler_that_fails_is_said_once_and_done_without(caplog):
    def broken(*_):
        raise RuntimeError("no compiler")

    model = made()
    compile_layers(model.get_decoder(), partial(torch.compile, backend=broken))
    with caplog.at_level(logging.WARNING, logger="rl.compiling"):
        found = outcome(model)
    assert_same(found, outcome(made()))
    assert caplog.text.count("cannot be compiled") == 1


def test_weights_keep_their_names():
    model = made()
    names = list(model.state_dict())
    compile_layers(model.get_decoder())
    assert list(model.state_dict()) == names
