"""Linear layers by oneDNN are linear layers."""

import copy

import pytest
import torch

from rl.linear_onednn import FastLinear, speed_up, worthwhile
from rl.models import new_model, new_tokenizer

pytestmark = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="torch was built without oneDNN"
)


@pytest.mark.parametrize("shape", [(1, 24), (3, 24), (2, 5, 24), (1, 1, 24), (0, 24)])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_a_linear_layer(shape, bias):
    torch.manual_seed(0)
    usual = torch.nn.Linear(24, 40, bias=bias)
    fast = copy.deepcopy(usual)
    speed_up(fast)
    assert isinstance(fast, FastLinear)
    x = [torch.randn(shape, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in range(2)]
    out = [layer(value) for layer, value in zip((usual, fast), x, strict=True)]
    torch.testing.assert_close(out[1], out[0], atol=1e-5, rtol=1e-5)
    for value in out:
        value.square().sum().backward()
    torch.testing.assert_close(x[1].grad, x[0].grad, atol=1e-4, rtol=1e-5)
    for mine, theirs in zip(fast.parameters(), usual.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-4, rtol=1e-5)
    with torch.inference_mode():
        torch.testing.assert_close(fast(x[1]), usual(x[0]), atol=1e-5, rtol=1e-5)


def test_frozen_weights_and_inputs_without_gradient_are_left_alone():
    layer = torch.nn.Linear(4, 3)
    speed_up(layer)
    layer.weight.requires_grad_(False)
    x = torch.randn(2, 4)
    layer(x).sum().backward()
    assert layer.weight.grad is None
    torch.testing.assert_close(layer.bias.grad, torch.full((3,), 2.0))
    assert x.grad is None


def test_other_precisions_take_the_usual_way():
    layer = torch.nn.Linear(4, 3).to(torch.bfloat16)
    expected = layer(torch.ones(2, 4, dtype=torch.bfloat16))
    speed_up(layer)
    assert torch.equal(layer(torch.ones(2, 4, dtype=torch.bfloat16)), expected)


def test_a_model_says_the_same_and_saves_the_same():
    model = new_model(
        new_tokenizer(["one two three four"], 280), width=32, layers=2, heads=2, context=32, seed=0
    ).eval()
    fast = copy.deepcopy(model)
    speed_up(fast)
    ids = torch.arange(5, 25)[None]
    torch.testing.assert_close(fast(input_ids=ids).logits, model(input_ids=ids).logits, atol=1e-5, rtol=1e-5)
    assert fast.state_dict().keys() == model.state_dict().keys()
    assert fast.get_output_embeddings().weight is fast.get_input_embeddings().weight


def test_the_choice_is_one_of_the_machine():
    assert worthwhile() in (True, False)
    assert worthwhile() == worthwhile()
