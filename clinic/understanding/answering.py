"""How near a text is to a question as its answer: the cosine of the embeddings, and what a learned map adds to it.

A question and its answer are not alike: one says "smoke", the other "cigarettes" or "never". Two thin matrices, one for
questions and one for what is told, were learned from labelled questions (`answering.npz`); the product of a question
and a text that were multiplied by them is added to their cosine. They are good for the embedder that they were learned
with and for no other, which a vector beside them tells: with another one the cosine is all.

Shape suffixes: D dimensions of a vector, K columns of the map, N texts.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clinic.matching import Embed

FILE = Path(__file__).with_name("answering.npz")
PROBE = "How long has this been going on?"  # its vector tells one embedder from another
SAME = 0.999  # cosine from which that vector is taken for the same
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Answering:
    """The learned map."""

    asks_DK: Vectors
    tells_DK: Vectors

    def nearness(self, question_D: Vectors, texts_ND: Vectors) -> Vectors:
        """Of each text to the question; float32 (N,)."""
        learned = (texts_ND @ self.tells_DK) @ (question_D @ self.asks_DK)
        return np.asarray(texts_ND @ question_D + learned, dtype=np.float32)


def plain(dimensions: int) -> Answering:
    """The map that adds nothing to the cosine."""
    return Answering(*(np.zeros((dimensions, 0), dtype=np.float32) for _ in range(2)))


def save(learned: Answering, embed: Embed, file: Path = FILE) -> None:
    """Write a map with the mark of its embedder, in half precision."""
    content = {"asks": learned.asks_DK, "tells": learned.tells_DK, "probe": embed([PROBE])[0]}
    np.savez(file, allow_pickle=False, **{name: values.astype(np.float16) for name, values in content.items()})


@lru_cache(maxsize=4)
def answering(embed: Embed) -> Answering:
    """The map of `answering.npz` for the embedder that it was learned with; for another one the plain one."""
    probe = embed([PROBE])[0]
    with np.load(FILE, allow_pickle=False) as stored:
        asks_DK, tells_DK, mark = (stored[name].astype(np.float32) for name in ("asks", "tells", "probe"))
    same = mark.shape == probe.shape and mark @ probe >= SAME * np.linalg.norm(mark) * np.linalg.norm(probe)
    return Answering(asks_DK, tells_DK) if same else plain(len(probe))
