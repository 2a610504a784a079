"""Flex attention on a row: what a token sees, block by block, and the log-probabilities and gradients of padded
sequences with dense masks.

On a processor it runs as it stands, scores and all: the kernels are a GPU's.
"""

import random

import pytest
import torch
from torch.nn.attention.flex_attention import create_mask
from transformers import AutoModelForCausalLM

import rl.flex
from rl.batching import micro_batches, row_of, sibling_batches, token_logprobs
from rl.branches import Branch
from rl.compiling import allow_programs
from rl.flex import BLOCK, block_mask, packed_row, prefer_rows, read_rows, reads_rows, why_no_flex
from rl.packing import unpadded
from rl.self_check import EXACT, disagreements
from rl.windows import layer_masks
from tests.numerics.families import WINDOW, config_of
from tests.numerics.test_architectures import ROLLOUT

FAMILIES = [
    "qwen2-window",
    "gemma2",
    "gemma3",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("qwen2", "qwen3", "llama", "mistral", "mistral-window", "phi3")
    ),
]
ROWS = 120


@pytest.fixture(autouse=True)
def gradients_on_a_processor(monkeypatch):
    """torch refuses them since it has no kernel for them; what stands in for one has them."""
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *_: None)
    torch.compiler.reset()


def model_of(family: str):
    torch.manual_seed(0)
    attention = "eager" if family == "gemma2" else "sdpa"
    return AutoModelForCausalLM.from_config(config_of(family, ROWS), attn_implementation=attention).eval()


def dialogues(seed: int = 0, sizes=(5, 12, 41, 7), opening: int = 20) -> tuple[list[list[int]], list[list[int]]]:
    """Two openings, the second of one dialogue alone; loss on some tokens behind them."""
    rng = random.Random(seed)
    first, second = ([rng.randrange(5, ROWS) for _ in range(opening)] for _ in range(2))
    starts = [first] * (len(sizes) - 1) + [second]
    tokens = [start + [rng.randrange(5, ROWS) for _ in range(size)] for start, size in zip(starts, sizes, strict=True)]
    masks = [[0] * opening + [1] + [rng.randrange(2) for _ in range(len(ids) - opening - 1)] for ids in tokens]
    return tokens, masks


def branches() -> list[list[Branch]]:
    first, last = Branch(24, (50, 51, 52), (1.0, 0.5, 0.0)), Branch(30, (60,), (2.0,))
    again = [Branch(24, (53, 54), (0.25, 1.0), after=0), Branch(24, (55,), (1.0,), after=0)]
    return [
        [first, Branch(22, (61, 62), (0.0, 1.0)), *again],
        [],
        [last],
        [Branch(21, tuple(range(70, 90)), (1.0,) * 20)],
    ]


def batches(kind: str) -> list:
    tokens, masks = dialogues()
    if kind == "packed":
        return list(micro_batches(tokens, masks, 10**6))
    if kind == "siblings":
        return list(sibling_batches(tokens, masks, 10**6))
    if kind == "one length":  # nothing to pack
        return list(micro_batches([ids[:25] for ids in tokens], [mask[:25] for mask in masks], 10**6))
    return list(micro_batches(tokens, masks, 10**6, branches()))


def outcome(model, made: list) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    found = torch.cat([token_logprobs(model, batch, 0.8)[0] for batch in made])
    (found * torch.linspace(1, 2, len(found), device=found.device)).sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return found.detach(), gradients


def assert_same(found, expected) -> None:
    torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=0)
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        torch.testing.assert_close(
            found[1][name],
            gradient,
            atol=1e-4 * float(gradient.abs().max()),
            rtol=1e-4,
            msg=lambda t, n=name: f"{n}: {t}",
        )


@pytest.mark.parametrize("kind", ["packed", "siblings", "one length", "branches"])
def test_every_token_sees_what_the_dense_mask_says(kind):
    """Blocks and the function within them together, with and without a window."""
    config = config_of("mistral-window", ROWS)
    config._attn_implementation = "sdpa"
    for batch in batches(kind):
        row = row_of(batch)
        size = len(row.packing.first_U)
        rows, width = batch.token_BT.shape
        position_BT = torch.arange(width).expand(rows, width)
        dense_B1TT = torch.ones(rows, 1, width, width, dtype=torch.bool).tril()
        if batch.branches is not None:
            position_BT, dense_B1TT = batch.branches.position_BT, batch.branches.mask()
        for window in (None, WINDOW, 3):
            config.sliding_window = window
            expected_BTT = layer_masks(config, dense_B1TT, position_BT, torch.float32)[:, 0]
            mask = block_mask(row.within(window))
            length = size + -size % BLOCK
            assert mask.shape == (1, 1, length, length)
            seen_UU = create_mask(mask.mask_mod, 1, 1, length, length, device="cpu")[0, 0]
            blocks_UU = mask.to_dense()[0, 0].bool().repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
            assert not (seen_UU & ~blocks_UU).any()
            assert seen_UU[size:].sum() == length - size  # what fills the row up sees itself alone
            for b in range(rows):
                real = (row.packing.first_U // width == b).nonzero()[:, 0]  # computed in this row of the batch
                end = int(batch.branches.length_B[b]) if batch.branches is not None else width
                places_T = row.packing.token_P.view(rows, width)[b, :end]
                if batch.packing is not None:
                    places_T = places_T[: 1 + int((row.packing.first_U[real] % width).max())]
                for u in real.tolist():
                    t = int(row.packing.first_U[u]) % width
                    seen = set(seen_UU[u].nonzero()[:, 0].tolist())
                    assert seen == set(places_T[expected_BTT[b, t, : len(places_T)]].tolist())


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_the_padded_path(family):
    model = model_of(family)
    made = [batch for kind in ("packed", "siblings", "branches") for batch in batches(kind)]
    expected = outcome(model, made)
    read_rows(model)
    assert_same(outcome(model, made), expected)
    assert model.config._attn_implementation == ("eager" if family == "gemma2" else "sdpa")


def long_row() -> list:
    """More than one block, some of which see each other whole and some not at all."""
    return list(micro_batches(*dialogues(1, sizes=(150, 160, 300, 170), opening=140), 10**6))


def test_blocks_that_nobody_sees_are_left_out_and_whole_ones_need_no_mask():
    (batch,) = long_row()
    mask = block_mask(row_of(batch))
    blocks = mask.kv_num_blocks.shape[-1] ** 2
    assert int(mask.full_kv_num_blocks.sum()) > 0
    assert int(mask.full_kv_num_blocks.sum() + mask.kv_num_blocks.sum()) < 0.5 * blocks
    model = model_of("qwen2")
    expected = outcome(model, [batch])
    read_rows(model)
    assert_same(outcome(model, [batch]), expected)


def test_counting_in_pieces_is_counting_at_once(monkeypatch):
    (batch,) = long_row()
    whole = block_mask(row_of(batch))
    monkeypatch.setattr(rl.flex, "AT_ONCE", 2)
    pieces = block_mask(row_of(batch))
    assert torch.equal(whole.to_dense(), pieces.to_dense())
    assert torch.equal(whole.full_kv_num_blocks, pieces.full_kv_num_blocks)


@pytest.mark.slow
def test_it_is_traced_whole_and_a_new_length_is_no_new_program():
    """As a GPU's compiler gets it, but for the kernels: after the second length no further one is compiled."""
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(rl.flex.flex_attention, fullgraph=True, backend=counter)
    frames = []
    for size in (2, 3, 4, 6, 7):
        tokens = [[5] * (size * BLOCK - 100 - number) for number in (0, 3)]
        (batch,) = micro_batches(tokens, [[0, *[1] * (len(ids) - 1)] for ids in tokens], 10**6)
        mask = block_mask(row_of(batch).within(200))
        length = mask.shape[-1]
        q, k, v = (torch.randn(1, heads, length, 8, requires_grad=True) for heads in (4, 2, 2))
        named = {"block_mask": mask, "score_mod": rl.flex._capped(2.0), "scale": 0.3, "enable_gqa": True}
        sides = []
        for attend in (compiled, rl.flex.flex_attention):
            out = attend(q, k, v, **named)
            sides.append([out, *torch.autograd.grad(out.square().sum(), (q, k, v))])
        torch.testing.assert_close(*sides, atol=1e-5, rtol=1e-5)
        frames.append(counter.frame_count)
    assert frames == [1, 2, 2, 2, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["qwen2", "gemma2"])
def test_the_trial_finds_what_does_not_work(monkeypatch, family, dtype):
    model = model_of(family)
    assert why_no_flex(model, dtype) is None
    with monkeypatch.context() as patch:
        patch.setattr(rl.flex, "_sees", lambda begin, end: lambda b, h, q, k: q >= k)
        assert "differ" in why_no_flex(model, dtype)

    def refuse(*_, **__):
        raise RuntimeError("no kernel\nfor this")

    monkeypatch.setattr(rl.flex, "flex_attention", refuse)
    assert why_no_flex(model, dtype) == "no kernel"


@pytest.mark.slow
def test_many_kinds_of_rows_are_compiled_and_none_is_refused():
    """More than the eight after which torch would stop: precisions, with a gradient or without, one block or many."""
    allow_programs()
    compiled = torch.compile(rl.flex.flex_attention, fullgraph=True, backend="eager")
    for dtype in (torch.float32, torch.bfloat16):
        for gradient in (False, True):
            for softcap in (None, 2.0):
                for blocks in (1, 2, 3):
                    mask = block_mask(packed_row(unpadded(1, blocks * BLOCK)))
                    q = torch.randn(1, 2, blocks * BLOCK, 8, dtype=dtype, requires_grad=gradient)
                    with torch.set_grad_enabled(gradient):
                        out = compiled(
                            q, q, q, block_mask=mask, score_mod=rl.flex._capped(softcap) if softcap else None
                        )
                    assert out.shape == q.shape


def test_a_processor_pads():
    model = model_of("qwen2")
    prefer_rows(model, "float32")
    assert not reads_rows(model.get_decoder())


def test_the_self_check_reads_rows_too(monkeypatch):
    model = model_of("gemma3")
    read_rows(model)
    found = disagreements(model, ROLLOUT)
    assert set(found) == {"engine", "padded", "siblings", "packed"}
    assert max(found.values()) < EXACT
    monkeypatch.setattr(rl.flex.Row, "within", lambda self, window: self)  # windows forgotten
    assert disagreements(model, ROLLOUT)["packed"] > EXACT
