"""Packed rows give what the model itself gives, values and gradients, in families whose layers are put together
differently (experts, norms after the sublayers, fused projections).
"""

import random

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MixtralConfig,
    Olmo2Config,
    Phi3Config,
    Qwen2Config,
    Qwen3MoeConfig,
)

from rl.batching import micro_batches, token_logprobs

SHAPE = {
    "vocab_size": 300, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
FAMILIES = {
    "qwen2": Qwen2Config(**SHAPE), "llama": LlamaConfig(**SHAPE), "phi3": Phi3Config(**SHAPE), "olmo2": Olmo2Config(**SHAPE),
    "qwen3-moe": Qwen3MoeConfig(**SHAPE, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32),
    "mixtral": MixtralConfig(**SHAPE, num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
}  # fmt: skip
OPENING = 9


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_rows_are_the_model_itself(family):
    rng = random.Random(0)
    opening = [rng.randrange(3, 300) for _ in range(OPENING)]
    tokens = [opening + [rng.randrange(3, 300) for _ in range(size)] for size in (5, 12, 20, 7)]
    masks = [[0] * OPENING + [1] * (len(ids) - OPENING) for ids in tokens]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(FAMILIES[family], attn_implementation="sdpa").train()

    def plain(ids):
        logprob_TV = torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)
        return torch.stack([logprob_TV[place - 1, ids[place]] for place in range(OPENING, len(ids))])

    (batch,) = micro_batches(tokens, masks, 4096)
    assert batch.packing is not None
    packed_N, _ = token_logprobs(model, batch, 1.0)
    plain_N = torch.cat([plain(tokens[i]) for i in batch.index])
    torch.testing.assert_close(packed_N, plain_N, rtol=0, atol=1e-5)
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    sides = [torch.autograd.grad(side.sum(), weights, allow_unused=True) for side in (packed_N, plain_N)]
    for ours, theirs in zip(*sides, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
