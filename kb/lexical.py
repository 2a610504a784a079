"""Search by words: BM25 over the passages, title and section included. The only door to bm25s and its stemmer.

Shape suffix: N passages.
"""

import logging
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import regex
import Stemmer
from numpy.typing import NDArray

from kb.config import Bm25Params
from kb.errors import KnowledgeBaseError
from kb.numbering import Numbers, numbered
from kb.passages import Passage, embedded_text

FOLDER = "bm25"

_ASCII = str.maketrans({code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)})
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+")
_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}ー\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]+")
"""Writing that puts no space between words, or, as Korean, hangs their endings on."""

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to DEBUG


def words(text: str) -> list[str]:
    """Return what a text is found by: its words, case folded, and pairs of characters where no space parts words.

    A pair of characters is as near to a word as one comes without a dictionary: most Chinese words have two. A character
    that stands alone is a word.
    """
    if text.isascii():  # twice as fast
        return text.translate(_ASCII).split()
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
        return self.of(words(text))

    def of(self, found: list[str]) -> list[str]:
        """Return the stems of words."""
        return list(self._stem(found))


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
        """Count the words of N passages. The same passages give the same matrices: words are numbered as they come."""
        number = {doc_id: place for place, doc_id in enumerate(dict.fromkeys(passage.doc_id for passage in passages))}
        document_N = np.array([number[passage.doc_id] for passage in passages], np.int32)
        stems = _Numbered(Stems(params.stemmer))
        titles = list(dict.fromkeys(passage.title for passage in passages))
        title_of = dict(zip(titles, stems(titles), strict=True))
        heads = list(dict.fromkeys((passage.title, passage.section) for passage in passages))
        heading_of = dict(zip(heads, stems([embedded_text(*head, "") for head in heads]), strict=True))
        texts = stems([passage.text for passage in passages])
        found = [
            np.concatenate(
                [
                    *[title_of[passage.title]] * (params.title_weight - 1),
                    heading_of[passage.title, passage.section],
                    text,
                ]
            )
            for passage, text in zip(passages, texts, strict=True)
        ]
        documents = None
        if params.document_weight:
            whole: list[list[Numbers]] = [[] for _ in number]
            for passage, place, text in zip(passages, document_N.tolist(), texts, strict=True):
                whole[place] += [text] if whole[place] else [*[title_of[passage.title]] * params.title_weight, text]
            documents = _counted([np.concatenate(parts) for parts in whole], stems.known, params)
        return cls(_counted(found, stems.known, params), documents, document_N, params)

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


class _Numbered:
    """Stems as numbers: every word is brought to its stem once."""

    def __init__(self, stemmed: Stems) -> None:
        self._stemmed = stemmed
        self._of_word: dict[str, int] = {}
        self.known: dict[str, int] = {}

    def __call__(self, texts: Sequence[str]) -> list[Numbers]:
        numbers_W, counts_T = numbered(map(_parted, texts), self._numbers_of)
        return np.split(numbers_W, np.cumsum(counts_T)[:-1]) if len(counts_T) else []

    def _numbers_of(self, found: list[str]) -> Iterable[int]:
        new = [word for word in found if word not in self._of_word]
        for word, stem in zip(new, self._stemmed.of(new), strict=True):
            self._of_word[word] = self.known.setdefault(stem, len(self.known))
        return map(self._of_word.__getitem__, found)


def _parted(text: str) -> str:
    """`words` of a text, with spaces between them."""
    return text.translate(_ASCII) if text.isascii() else " ".join(words(text))


class _Matrix(bm25s.BM25):  # type: ignore[misc]  # of bm25s nothing is typed
    """The same matrix as that of bm25s to the last bit, filled for all texts at once instead of one by one.

    Shape suffixes: W words of all texts, C cells that are filled, V words that there are.
    """

    def build_index_from_ids(
        self, unique_token_ids: Sequence[int], corpus_token_ids: Sequence[Numbers], **_: bool
    ) -> dict[str, Any]:
        """Return the cells, word by word and within a word text by text."""
        count, self.nonoccurrence_array = len(corpus_token_ids), None
        lengths_N = np.array([len(text) for text in corpus_token_ids], np.int64)
        cells_W = np.concatenate([np.zeros(0, np.int64), *corpus_token_ids])
        cells_W *= count  # in place: a large library has 10^8 words
        cells_W += np.repeat(np.arange(count, dtype=np.int32), lengths_N)
        cells_W.sort()
        first_C = np.flatnonzero(np.append(np.ones(len(cells_W[:1]), bool), cells_W[1:] != cells_W[:-1]))
        times_C = np.diff(np.append(first_C, len(cells_W))).astype(np.float32)
        word_C, text_C = np.divmod(cells_W[first_C], count)
        in_texts_V = np.bincount(word_C, minlength=len(unique_token_ids))
        idf_V = np.log(1 + (count - in_texts_V + 0.5) / (in_texts_V + 0.5)).astype(np.float32)
        longer_C = lengths_N[text_C] / (lengths_N.mean() or 1)
        part_C = times_C / (self.k1 * ((1 - self.b) + self.b * longer_C) + times_C)
        return {
            "data": (idf_V[word_C] * part_C).astype(np.float32),
            "indices": text_C.astype(np.int32),
            "indptr": np.append(0, np.cumsum(in_texts_V)),
            "num_docs": count,
        }


def _counted(texts: Sequence[Numbers], known: Mapping[str, int], params: Bm25Params) -> bm25s.BM25:
    bm25 = _Matrix(k1=params.k1, b=params.b, method="lucene", backend="numpy")
    bm25.index((texts, dict(known) or {"": 0}), show_progress=False)
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
