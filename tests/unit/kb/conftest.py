"""A thirty-line embedder and small builders shared by the tests of `kb`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from kb.config import KnowledgeBaseParams, read_params
from kb.documents import Document
from kb.embed import Vectors
from kb.passages import Passage
from kb.splitting import split_passages


class FakeEmbedder:
    """Bag of hashed words on the unit sphere; one token per word, plus two special ones."""

    def __init__(self, name: str = "fake", dimension: int = 64, seed: int = 0) -> None:
        self.name, self.dimension, self.max_tokens = name, dimension, 256
        self.weights, self.compute = f"{name} {seed}", "float32"
        self.seed = seed
        self.seen: list[str] = []

    def encode(self, texts: list[str]) -> Vectors:
        self.seen += texts
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in enumerate(texts):
            vectors[row, 0] = 0.1
            for word in text.lower().replace(".", " ").split():
                vectors[row, crc32(word.encode(), self.seed) % self.dimension] += 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def count_tokens(self, texts: list[str]) -> list[int]:
        return [len(text.split()) + 2 for text in texts]

    def unknown_share(self, texts: list[str]) -> float:
        return sum(not text.isascii() for text in texts) / len(texts)


@pytest.fixture
def embedder() -> FakeEmbedder:
    return FakeEmbedder()


@pytest.fixture
def make_embedder() -> type[FakeEmbedder]:
    return FakeEmbedder


@pytest.fixture
def params() -> KnowledgeBaseParams:
    """As shipped."""
    return read_params(Path(__file__).parents[3] / "params.yaml")


@pytest.fixture
def make_passages(embedder: FakeEmbedder) -> Callable[[Sequence[str]], list[Passage]]:
    """Documents d0, d1, ... from texts, split into passages of at most 32 tokens."""

    def make(texts: Sequence[str]) -> list[Passage]:
        documents = [
            Document(
                doc_id=f"d{i}", title=f"title {i}", text=text, source="book", licence="CC BY 4.0" if i else "CC0 1.0"
            )
            for i, text in enumerate(texts)
        ]
        return split_passages(documents, embedder.count_tokens, 32, 4)

    return make
