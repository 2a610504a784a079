"""A tiny policy shared by the tests of `rl`."""

import pytest
import torch

from rl.chat import ChatFormat
from rl.models import new_model, new_tokenizer


@pytest.fixture(scope="session")
def tokenizer():
    return new_tokenizer(["you said hello", "ask one question", "tell me more"] * 3, 300)


@pytest.fixture(scope="session")
def chat(tokenizer) -> ChatFormat:
    return ChatFormat(tokenizer)


@pytest.fixture
def model(tokenizer):
    """Weights large enough that every token of the past visibly moves the next distribution."""
    model = new_model(tokenizer, width=32, layers=2, heads=2, context=256, seed=0).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter *= 4
    return model
