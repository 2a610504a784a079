"""Passages that say the same -> one passage that names all documents it stands in.

Equal texts are found by a dictionary. Of the rest MinHash LSH proposes pairs, and the exact Jaccard similarity of their
shingles decides. Shingles are of three words; a Chinese or Japanese character is a word. Two texts whose numbers differ are
never taken for one: a dose, a stage or a type is what such texts are read for.

A title belongs to what a passage says ("inherited from both parents" says nothing without one), so a passage under
another title is merged only while its document keeps one of its own, by which it is found.
"""

import json
import logging
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from datasketch import MinHash, MinHashLSH
from numpy.typing import NDArray

from kb.errors import KnowledgeBaseError
from kb.passages import Origin, Passage

logger = logging.getLogger(__name__)

Shingles = NDArray[np.uint32]

PERMUTATIONS = 64
MAX_MISS = 1e-3  # chance that a pair of exactly the threshold's similarity is not proposed
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_MULTIPLIERS = np.array([0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D], np.uint32)  # odd, so that no bit of a word is lost


def merge_duplicates(passages: Sequence[Passage], threshold: float) -> list[Passage]:
    """Leave out passages that repeat an earlier one, which then names their documents in `also`.

    Args:
        passages: of a whole corpus; of two that say the same the earlier one stays.
        threshold: least Jaccard similarity, in (0, 1], that makes two texts one; 1: equal but for case and white space.

    Returns:
        What is left, in the same order, unchanged but for `also`.

    Raises:
        KnowledgeBaseError: if the threshold lies outside (0, 1].
    """
    if not 0 < threshold <= 1:
        raise KnowledgeBaseError(f"near_duplicate is {threshold}: choose a similarity above 0, 1 at most")
    first_of = _repeated(passages, threshold)
    own = {passage.doc_id for number, passage in enumerate(passages) if number not in first_of}
    merged: dict[int, list[Passage]] = {}
    for number, first in first_of.items():
        passage = passages[number]
        if passage.doc_id in own or passage.title == passages[first].title:
            merged.setdefault(first, []).append(passage)
    gone = {passage.passage_id for others in merged.values() for passage in others}
    kept = [
        replace(passage, also=_also(passage, merged[number])) if number in merged else passage
        for number, passage in enumerate(passages)
        if passage.passage_id not in gone
    ]
    logger.info("merged %d of %d passages into others that say the same", len(passages) - len(kept), len(passages))
    return kept


def _also(passage: Passage, others: Sequence[Passage]) -> str:
    """The documents of the others, once each, without the passage's own."""
    origins = {
        other.doc_id: Origin(other.doc_id, other.title, other.source, other.url, other.licence)
        for other in reversed(others)
        if other.doc_id != passage.doc_id
    }
    return json.dumps(list(reversed(origins.values())), ensure_ascii=False) if origins else ""


def _repeated(passages: Sequence[Passage], threshold: float) -> dict[int, int]:
    """Number of a passage -> number of the first one that it repeats, which repeats none itself."""
    first_of: dict[int, int] = {}
    by_text: dict[str, int] = {}
    for number, passage in enumerate(passages):
        first = by_text.setdefault(" ".join(passage.text.casefold().split()), number)
        if first != number:
            first_of[number] = first
    if threshold == 1:
        return first_of
    near = _Near(threshold)
    for text, number in by_text.items():
        first = near.first_like(number, text)
        if first != number:
            first_of[number] = first
    return {number: first_of.get(first, first) for number, first in first_of.items()}


class _Near:
    """Texts so far, each unlike those before it."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._lsh = MinHashLSH(num_perm=PERMUTATIONS, params=_bands(threshold))
        self._empty = MinHash(num_perm=PERMUTATIONS, hashfunc=int)
        self._known: dict[int, tuple[Shingles, list[str]]] = {}

    def first_like(self, number: int, text: str) -> int:
        """The number of the first text that this one nearly repeats; else its own, and it is kept."""
        words = _WORD.findall(text)
        if not words:
            return number
        shingles, numbers = _shingles(words), sorted(word for word in words if any(map(str.isdigit, word)))
        sketch = self._empty.copy()
        sketch.update_batch(shingles.tolist())
        for other in sorted(self._lsh.query(sketch)):
            theirs, their_numbers = self._known[other]
            if numbers == their_numbers and _jaccard(shingles, theirs) >= self._threshold:
                return int(other)
        self._lsh.insert(number, sketch)
        self._known[number] = (shingles, numbers)
        return number


def _bands(threshold: float) -> tuple[int, int]:
    """Bands and rows: the longest rows, for fewest idle proposals, that miss a pair at the threshold with `MAX_MISS` at most.

    Two texts of similarity s agree in one of b bands of r rows with probability 1 - (1 - s^r)^b.
    Source: Leskovec, Rajaraman, Ullman, Mining of Massive Datasets, chapter 3.
    """
    fitting = [r for r in range(1, PERMUTATIONS + 1) if (1 - threshold**r) ** (PERMUTATIONS // r) <= MAX_MISS]
    rows = max(fitting, default=1)
    return PERMUTATIONS // rows, rows


def _shingles(words: Sequence[str]) -> Shingles:
    """Hashes of every three words in a row, sorted, each once; fewer words than that are one shingle."""
    hashes = np.array([zlib.crc32(word.encode()) for word in words], np.uint32)
    width = min(len(hashes), len(_MULTIPLIERS))
    rows = np.lib.stride_tricks.sliding_window_view(hashes, width)
    return np.unique((rows * _MULTIPLIERS[:width]).sum(axis=1, dtype=np.uint32))


def _jaccard(one: Shingles, other: Shingles) -> float:
    common = len(np.intersect1d(one, other, assume_unique=True))
    return common / (len(one) + len(other) - common)
