"""Attention on the slots' cache: read in place or copied, with shared key-value heads, it is plain attention."""

import pytest
import torch

from rl.engines.slots import SlotCache, SlotRow, _attend, slot_attention
from rl.models import new_model


@pytest.fixture
def cache(tokenizer) -> SlotCache:
    """Eight slots of a model with four query heads on two key-value heads, filled with noise."""
    cache = SlotCache(new_model(tokenizer, width=32, layers=1, heads=4, context=64, seed=0), slots=8, length=16)
    for tensor in (cache.keys[0], cache.values[0]):
        tensor.normal_(generator=torch.Generator().manual_seed(1))
    return cache


@pytest.mark.parametrize(
    ("rows", "in_place"),
    [([0, 1, 2, 3, 4, 5, 6, 7], True), ([0, 2, 3, 5], True), ([1, 6, 7], False), ([7], False), ([0], True)],
)
@pytest.mark.parametrize("new", [1, 3])
def test_it_is_plain_attention(cache, rows, in_place, new):
    generator = torch.Generator().manual_seed(2)
    query, key, value = (torch.randn(len(rows), heads, new, 8, generator=generator) for heads in (4, 2, 2))
    start = torch.tensor([4 + row for row in rows])
    place_BQ = start[:, None] + torch.arange(new)
    span = int(place_BQ.max()) + 1
    mask_B1QL = (torch.arange(span) <= place_BQ[:, :, None])[:, None]
    cache.select(rows, place_BQ, span)
    assert cache.in_place == in_place
    found, _ = _attend(None, query, *cache.update(key, value, 0), mask_B1QL, slots=cache, scaling=0.3)
    assert found.shape == (len(rows), new, 4, 8)
    for b, row in enumerate(rows):
        for q in range(new):
            seen = int(place_BQ[b, q]) + 1
            for head in range(4):
                keys, values = cache.keys[0][row, head // 2, :seen], cache.values[0][row, head // 2, :seen]
                weights = torch.softmax(0.3 * keys @ query[b, head, q], 0)
                torch.testing.assert_close(found[b, q, head], weights @ values, atol=1e-5, rtol=1e-5)
    assert torch.equal(cache.keys[0][rows[0], :, int(start[0])], key[0, :, 0])


def test_slots_that_get_one_token_and_slots_that_get_many_share_a_row(cache):
    """Each slot's part of the row is what it would have got alone."""
    groups = [
        ([0, 3, 5], torch.tensor([4, 7, 9]), torch.tensor([1, 1, 1])),
        ([2, 7], torch.tensor([0, 6]), torch.tensor([4, 2])),
    ]
    row = SlotRow(cache, groups, 16)
    generator = torch.Generator().manual_seed(2)
    query, key, value = (torch.randn(1, heads, 9, 8, generator=generator) for heads in (4, 2, 2))
    assert row.position_U.tolist() == [4, 7, 9, 0, 1, 2, 3, 6, 7]
    assert row.last_B.tolist() == [0, 1, 2, 6, 8]
    alone = SlotCache.__new__(SlotCache)
    alone.__dict__ = dict(cache.__dict__, keys=[cache.keys[0].clone()], values=[cache.values[0].clone()])
    found, _ = _attend(
        None, query, *row.update(key, value, 0), torch.ones(1, 1, 1, 1, dtype=torch.bool), slots=row, scaling=0.3
    )
    for slot, start, tokens in ((0, 4, [0]), (3, 7, [1]), (5, 9, [2]), (2, 0, [3, 4, 5, 6]), (7, 6, [7, 8])):
        place_BQ = torch.arange(start, start + len(tokens))[None]
        alone.select([slot], place_BQ, start + len(tokens))
        mask = (torch.arange(start + len(tokens)) <= place_BQ[:, :, None])[:, None]
        expected, _ = _attend(
            None,
            query[:, :, tokens],
            *alone.update(key[:, :, tokens], value[:, :, tokens], 0),
            mask,
            slots=alone,
            scaling=0.3,
        )
        torch.testing.assert_close(found[:, tokens], expected, atol=1e-5, rtol=1e-5)
        assert torch.equal(cache.keys[0][slot, :, start : start + len(tokens)], key[0, :, tokens])


def test_the_model_has_its_own_attention_back_afterwards(model):
    def fail() -> None:
        with slot_attention(model):
            assert model.config._attn_implementation != "sdpa"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert model.config._attn_implementation == "sdpa"
