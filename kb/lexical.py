"""Search by words: BM25 over the passages, title and section included. The only door to bm25s.

Shape suffix: N passages.
"""

import logging
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import bm25s
import numpy as np
import regex
from numpy.typing import NDArray

from kb.config import Bm25Params

FOLDER = "bm25"

_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+")
_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}ー\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]+")
"""Writing that puts no space between words, or, as Korean, hangs their endings on."""

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to DEBUG


def words(text: str) -> list[str]:
    """Return what a text is found by: its words, case folded, and pairs of characters where no space parts words.

    A pair of characters is as near to a word as one comes without a dictionary: most Chinese words have two. A character
    that stands alone is a word.
    """
    found: list[str] = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
        place = 0
        for run in _UNSPACED.finditer(word):
            found += [word[place : run.start()]] if run.start() > place else []
            found += _pairs(run[0])
            place = run.end()
        found += [word[place:]] if place < len(word) else []
    return found


def _pairs(run: str) -> Iterator[str]:
    return (run[at : at + 2] for at in range(max(1, len(run) - 1)))


class LexicalIndex:
    """BM25 scores of passages, in a matrix that is memory-mapped when loaded."""

    def __init__(self, bm25: bm25s.BM25) -> None:
        """Wrap a filled `bm25s.BM25`; use `build` or `load`."""
        self._bm25 = bm25

    @classmethod
    def build(cls, texts: Sequence[str], params: Bm25Params) -> "LexicalIndex":
        """Count the words of N texts. The same texts give the same matrix: words are numbered in their order."""
        found = [words(text) for text in texts]
        numbers = {word: number for number, word in enumerate(sorted({word for some in found for word in some}))}
        bm25 = bm25s.BM25(k1=params.k1, b=params.b, method="lucene", backend="numpy", csc_backend="numpy")
        with np.errstate(invalid="ignore"):  # of texts without a word the mean length is 0
            bm25.index(([[numbers[word] for word in some] for some in found], numbers or {"": 0}), show_progress=False)
        return cls(bm25)

    def save(self, directory: Path) -> None:
        """Write the matrix and the words into a folder of their own below `directory`."""
        self._bm25.save(directory / FOLDER)

    @classmethod
    def load(cls, directory: Path) -> "LexicalIndex":
        """Open what `save` wrote, without reading the matrix."""
        return cls(bm25s.BM25.load(directory / FOLDER, mmap=True))

    def __len__(self) -> int:
        """Return N."""
        return int(self._bm25.scores["num_docs"])

    def scores(self, query: str) -> NDArray[np.float32]:
        """Return the BM25 score of every passage: 0 or more, shape (N,); 0 has no word of the query."""
        known = self._bm25.get_tokens_ids(words(query))
        if not known:
            return np.zeros(len(self), np.float32)
        return np.asarray(self._bm25.get_scores_from_ids(known), np.float32)


def best_rows(scores_N: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Rows of the `k` highest scores above 0, best first, equal ones in the order of the rows."""
    (rows,) = np.nonzero(scores_N > 0)
    if len(rows) > k:
        least = np.partition(scores_N[rows], -k)[-k]
        rows = rows[scores_N[rows] >= least]
    return rows[np.argsort(-scores_N[rows], kind="stable")][:k].astype(np.int64)
