"""Search by words: BM25 over the passages, title and section included. The only door to bm25s and its stemmer.

Shape suffix: N passages.
"""

import logging
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import bm25s
import numpy as np
import regex
import Stemmer
from numpy.typing import NDArray

from kb.config import Bm25Params
from kb.errors import KnowledgeBaseError
from kb.passages import Passage, embedded_text

FOLDER = "bm25"

_ASCII_WORD = re.compile(r"[a-z0-9]+")
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+")
_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}ー\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]+")
"""Writing that puts no space between words, or, as Korean, hangs their endings on."""

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to DEBUG


def words(text: str) -> list[str]:
    """Return what a text is found by: its words, case folded, and pairs of characters where no space parts words.

    A pair of characters is as near to a word as one comes without a dictionary: most Chinese words have two. A character
    that stands alone is a word.
    """
    if text.isascii():  # four times as fast
        return _ASCII_WORD.findall(text.lower())
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


class Stems:
    """`words`, each brought to its stem."""

    def __init__(self, algorithm: str | None) -> None:
        """Choose an algorithm of Snowball, or none.

        Raises:
            KnowledgeBaseError: if there is no such algorithm.
        """
        if algorithm is not None and algorithm not in Stemmer.algorithms():
            known = ", ".join(Stemmer.algorithms())
            raise KnowledgeBaseError(f"bm25.stemmer is {algorithm!r}: choose null or one of {known}")
        self._stem = Stemmer.Stemmer(algorithm).stemWords if algorithm is not None else list

    def __call__(self, text: str) -> list[str]:
        """Return the stems of a text's words, in their order."""
        return list(self._stem(words(text)))


class LexicalIndex:
    """BM25 of passages, to which that of their whole documents is added; both matrices are memory-mapped when loaded."""

    def __init__(
        self, passages: bm25s.BM25, documents: bm25s.BM25 | None, document_N: NDArray[np.int32], params: Bm25Params
    ) -> None:
        """Join two filled matrices; use `build` or `load`.

        Args:
            passages: a row per passage.
            documents: a row per document; None: they count nothing.
            document_N: which document a passage belongs to.
            params: with which they were filled.
        """
        self._passages, self._documents, self._document_N = passages, documents, document_N
        self._stemmed, self._weight = Stems(params.stemmer), params.document_weight

    @classmethod
    def build(cls, passages: Sequence[Passage], params: Bm25Params) -> "LexicalIndex":
        """Count the words of N passages. The same passages give the same matrices: words are numbered in their order."""
        more, stemmed = params.title_weight - 1, Stems(params.stemmer)
        number = {doc_id: place for place, doc_id in enumerate(dict.fromkeys(passage.doc_id for passage in passages))}
        found: list[list[str]] = []
        whole: list[list[str]] = [[] for _ in number]
        for passage in passages:
            title, text = stemmed(passage.title), stemmed(passage.text)
            document = whole[number[passage.doc_id]]
            document += text if document else title * params.title_weight + text
            found.append(title * more + stemmed(embedded_text(passage.title, passage.section, "")) + text)
        document_N = np.array([number[passage.doc_id] for passage in passages], np.int32)
        documents = _counted(whole, params) if params.document_weight else None
        return cls(_counted(found, params), documents, document_N, params)

    def save(self, directory: Path) -> None:
        """Write the matrices and the words into a folder of their own below `directory`."""
        self._passages.save(directory / FOLDER / "passages")
        if self._documents is not None:
            self._documents.save(directory / FOLDER / "documents")
        np.save(directory / FOLDER / "document_of.npy", self._document_N)

    @classmethod
    def load(cls, directory: Path, params: Bm25Params) -> "LexicalIndex":
        """Open what `save` wrote, without reading the matrices."""
        folder = directory / FOLDER
        passages = bm25s.BM25.load(folder / "passages", mmap=True)
        documents = bm25s.BM25.load(folder / "documents", mmap=True) if params.document_weight else None
        return cls(passages, documents, np.load(folder / "document_of.npy"), params)

    def __len__(self) -> int:
        """Return N."""
        return len(self._document_N)

    def scores(self, query: str) -> NDArray[np.float32]:
        """Return the score of every passage: 0 or more, shape (N,); 0 has no word of the query, nor has its document."""
        asked = list(dict.fromkeys(self._stemmed(query)))
        scores_N = _scores(self._passages, asked)
        if self._documents is not None:
            scores_N += self._weight * _scores(self._documents, asked)[self._document_N]
        return scores_N


def _counted(texts: Sequence[Sequence[str]], params: Bm25Params) -> bm25s.BM25:
    numbers = {word: number for number, word in enumerate(sorted({word for text in texts for word in text}))}
    bm25 = bm25s.BM25(k1=params.k1, b=params.b, method="lucene", backend="numpy", csc_backend="numpy")
    with np.errstate(invalid="ignore"):  # of texts without a word the mean length is 0
        bm25.index(([[numbers[word] for word in text] for text in texts], numbers or {"": 0}), show_progress=False)
    return bm25


def _scores(bm25: bm25s.BM25, asked: list[str]) -> NDArray[np.float32]:
    known = bm25.get_tokens_ids(asked)
    if not known:
        return np.zeros(int(bm25.scores["num_docs"]), np.float32)
    return np.array(bm25.get_scores_from_ids(known), np.float32)


def best_rows(scores_N: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Rows of the `k` highest scores above 0, best first, equal ones in the order of the rows."""
    (rows,) = np.nonzero(scores_N > 0)
    if len(rows) > k:
        least = np.partition(scores_N[rows], -k)[-k]
        rows = rows[scores_N[rows] >= least]
    return rows[np.argsort(-scores_N[rows], kind="stable")][:k].astype(np.int64)
