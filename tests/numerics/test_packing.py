"""One row without padding, shared openings and a last layer that is computed where it is read: the gradients of the
padded sequences.
"""

from dataclasses import replace

import pytest
import torch

import rl.batching
from rl.batching import hidden_states, micro_batches, token_logprobs
from rl.branches import Branch
from rl.models import new_model, new_tokenizer
from rl.packing import pack, packable

OPENING = [9, 8, 7, 6]
TOKENS = [
    [*OPENING, 11, 12, 13],
    [*OPENING, 21, 22, 23, 24, 25, 26, 27, 28],
    [5, 6],
    [*OPENING, 31],
    [7, *OPENING[1:], 41, 42],
]
MASKS = [[0, 0, 0, 0, 1, 0, 1], [0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 0], [0, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 1, 1]]


@pytest.fixture
def model():
    return new_model(new_tokenizer(["a"], 280), width=32, layers=2, heads=4, context=64, seed=1).train()


def outcome(model, batch):
    """Log-probabilities and the gradient of a weighed sum of them."""
    model.zero_grad()
    logprob_N, _ = token_logprobs(model, batch, 0.8)
    (logprob_N * torch.arange(1, len(logprob_N) + 1)).sum().backward()
    return logprob_N.detach(), {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def assert_same(one, other):
    torch.testing.assert_close(one[0], other[0], atol=1e-5, rtol=1e-5)
    for name, gradient in one[1].items():
        torch.testing.assert_close(
            gradient,
            other[1][name],
            atol=1e-5 * float(gradient.abs().max()),
            rtol=1e-4,
            msg=lambda text, name=name: f"{name}: {text}",
        )


def whole(monkeypatch, model, batch):
    """As padded sequences, every layer everywhere."""
    with monkeypatch.context() as patch:
        patch.setattr("rl.batching.runs_once", lambda _: False)
        return outcome(model, replace(batch, packing=None))


def test_a_row_gives_the_gradients_of_the_padded_sequences(monkeypatch, model):
    (batch,) = micro_batches(TOKENS, MASKS, 10**6)
    assert batch.packing is not None
    assert len(batch.packing.first_U) == sum(map(len, TOKENS)) - 2 * len(OPENING)  # three begin the same
    assert_same(outcome(model, batch), whole(monkeypatch, model, batch))
    assert model.config._attn_implementation == "sdpa"


def test_the_last_layer_is_computed_where_it_is_read_with_padding_and_with_branches_too(monkeypatch, model):
    (padded,) = micro_batches(TOKENS, MASKS, 10**6)
    (branched,) = micro_batches([TOKENS[1]], [MASKS[1]], 10**6, [[Branch(6, (3, 4, 5), (1.0, 0.0, 1.0))]])
    for batch in (replace(padded, packing=None), branched):
        rows = []
        hook = model.model.layers[-1].mlp.down_proj.register_forward_hook(
            lambda _m, inputs, _o, rows=rows: rows.append(inputs[0].shape[-2])
        )
        found = outcome(model, batch)
        hook.remove()
        assert rows == [len(set(zip(batch.row_N.tolist(), batch.source_N.tolist(), strict=True)))]
        assert_same(found, whole(monkeypatch, model, batch))


def test_hidden_states_are_right_everywhere_where_they_are_asked_for(model):
    """A critic reads them where no loss is, too."""
    (batch,) = micro_batches(TOKENS, MASKS, 10**6)
    row, padded = (hidden_states(model.get_decoder(), b) for b in (batch, replace(batch, packing=None)))
    for place, i in enumerate(batch.index):
        torch.testing.assert_close(row[place, : len(TOKENS[i])], padded[place, : len(TOKENS[i])], atol=1e-5, rtol=1e-5)


def test_each_token_lies_in_the_row_once():
    packing = pack([[1, 2, 3], [1, 2, 4, 5], [1, 6]], [2, 2, 1])
    assert packing.shape == (3, 4)
    assert packing.first_U.tolist() == [0, 1, 2, 6, 7, 8, 9]
    assert packing.position_U.tolist() == [0, 1, 2, 2, 3, 0, 1]
    assert packing.token_P.view(3, 4).tolist() == [[0, 1, 2, 0], [0, 1, 3, 4], [5, 6, 0, 0]]
    assert packing.again_A.tolist() == [4, 5]
    assert pack([[1, 2], [3, 4]], [1, 1]) is None  # nothing to gain


def test_what_cannot_run_in_a_row_stays_padded(monkeypatch, model):
    (batch,) = micro_batches(TOKENS, MASKS, 10**6)
    decoder = model.get_decoder()
    assert packable(decoder, 12)
    with monkeypatch.context() as patch:
        patch.setattr(decoder.config, "layer_types", ["sliding_attention", "full_attention"])
        patch.setattr(decoder.config, "sliding_window", 11)
        assert not packable(decoder, 12)
        assert packable(decoder, 11)  # the window hides nothing
    model.gradient_checkpointing_enable({"use_reentrant": False})
    assert not packable(decoder, 12)  # in train mode the forward pass would run again
    assert packable(decoder.eval(), 12)
    monkeypatch.setattr(rl.batching, "packed_hidden", None)
    token_logprobs(model.train(), batch, 1.0)
