"""Logits as the model itself computes them: what its forward pass does after the head, and only ids of its tokenizer.

Trainer, engine and ranking read logits here alone; `rl/self_check.py` compares them with the model's own forward pass.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase


def know_only(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """From now on the model's distribution is over ids of the tokenizer: rows that pad an embedding have none."""
    highest = max(tokenizer.get_vocab().values())
    if highest + 1 < model.get_output_embeddings().weight.shape[0]:
        model.known_ids = highest + 1


def known_ids(model: PreTrainedModel) -> int:
    """How many ids, from 0 on, the model's distribution is over."""
    return getattr(model, "known_ids", None) or int(model.get_output_embeddings().weight.shape[0])


@contextmanager
def every_id(model: PreTrainedModel) -> Iterator[None]:
    """While the block runs the distribution is over all rows of the head, as of an engine that knows no tokenizer."""
    before = getattr(model, "known_ids", None)
    model.known_ids = None
    try:
        yield
    finally:
        model.known_ids = before


def unknown_ids(model: PreTrainedModel) -> range:
    """Rows of the head that it is not over."""
    return range(known_ids(model), model.get_output_embeddings().weight.shape[0])


def logits_of(model: PreTrainedModel, hidden: torch.Tensor) -> torch.Tensor:
    """Logits of last hidden states (..., D), float32 (..., known ids).

    Scaled as by Cohere (`logit_scale`) and Granite (`logits_scaling`), capped as by Gemma-2 (arXiv:2408.00118), where
    the model's configuration says so.
    """
    config = model.config.get_text_config()
    logits: torch.Tensor = model.get_output_embeddings()(hidden)
    if scale := getattr(config, "logit_scale", None):
        logits = logits * scale
    if divisor := getattr(config, "logits_scaling", None):
        logits = logits / divisor
    if cap := getattr(config, "final_logit_softcapping", None):
        logits = torch.tanh(logits / cap) * cap
    return logits[..., : known_ids(model)].float()
