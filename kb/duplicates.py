"""Passages that say the same -> one passage that names all documents it stands in.

Equal texts are found by a dictionary. Of the rest MinHash proposes pairs, and the exact Jaccard similarity of their
shingles decides. Shingles are of three words; a Chinese or Japanese character is a word. Two texts whose numbers differ are
never taken for one: a dose, a stage or a type is what such texts are read for.

A title belongs to what a passage says ("inherited from both parents" says nothing without one), so a passage under
another title is merged only while its document keeps one of its own, by which it is found.

The shingles of all texts are one array, and so are their sketches: a text at a time takes five times as long. Shape
suffixes: T texts, W words of all texts, S shingles of all texts, R rows of a band.
"""

import hashlib
import json
import logging
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kb.cache import Cache, maker_of
from kb.errors import KnowledgeBaseError
from kb.files import sha256_texts
from kb.numbering import Numbers, numbered
from kb.passages import Origin, Passage

logger = logging.getLogger(__name__)

Shingles = NDArray[np.uint32]

HASHES = 64  # of a sketch
WIDTH = 3  # words of a shingle
MAX_MISS = 1e-3  # chance that a pair of exactly the threshold's similarity is not proposed
MOST_COMPARED = 256  # with one text: forms filled in from one template would all be compared with all
_AT_ONCE = 128  # texts whose sketches are made together: their shingles stay in the processor's cache
_ASCII = str.maketrans({code: chr(code) if chr(code).isalnum() or chr(code) == "_" else " " for code in range(128)})
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_MULTIPLIERS = np.array([0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D], np.uint32)  # odd, so that no bit of a word is lost
_HALF = np.uint64(32)
_POWERS = np.array(
    [pow(0x9E3779B97F4A7C15, power, 2**64) for power in range(HASHES)], np.uint64
)  # of a band as one number


def merge_duplicates(passages: Sequence[Passage], threshold: float, cache: Cache | None = None) -> list[Passage]:
    """Leave out passages that repeat an earlier one, which then names their documents in `also`.

    Args:
        passages: of a whole corpus; of two that say the same the earlier one stays.
        threshold: least Jaccard similarity, in (0, 1], that makes two texts one; 1: equal but for case and white space.
        cache: where it is kept which texts repeat which, for the next time the same texts come; None: nowhere.

    Returns:
        What is left, in the same order, unchanged but for `also`.

    Raises:
        KnowledgeBaseError: if the threshold lies outside (0, 1].
    """
    if not 0 < threshold <= 1:
        raise KnowledgeBaseError(f"near_duplicate is {threshold}: choose a similarity above 0, 1 at most")
    first_of = _known_repeated([passage.text for passage in passages], threshold, cache)
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


def _known_repeated(texts: Sequence[str], threshold: float, cache: Cache | None) -> dict[int, int]:
    """As `_repeated`, which is asked only for texts that the cache does not know together."""
    if cache is None:
        return _repeated(texts, threshold)
    maker, name = maker_of("repeated", threshold, code=(__name__, "kb.numbering")), sha256_texts(texts)
    known = cache.get(maker, [name])
    if name in known:
        return dict(json.loads(known[name]))
    first_of = _repeated(texts, threshold)
    cache.put(maker, {name: json.dumps(list(first_of.items())).encode()})
    return first_of


def _repeated(texts: Sequence[str], threshold: float) -> dict[int, int]:
    """Number of a text -> number of the first one that it repeats, which repeats none itself."""
    first_of: dict[int, int] = {}
    by_text: dict[str, int] = {}
    for number, text in enumerate(texts):
        first = by_text.setdefault(" ".join(text.casefold().split()), number)
        if first != number:
            first_of[number] = first
    if threshold == 1 or not texts:
        return first_of
    numbers = list(by_text.values())
    near = _first_like(_Shingled.of(by_text), threshold)
    first_of.update((numbers[place], numbers[first]) for place, first in near.items())
    return {number: first_of.get(first, first) for number, first in first_of.items()}


@dataclass(frozen=True)
class _Shingled:
    """Texts as what they are compared by.

    Attributes:
        shingles_S: hashes of every three words in a row, ascending within a text, each once.
        starts: of T texts, and the end of the last.
        digits: words of each text that have a digit, a fraction (½) or a Chinese numeral, in their order: .5 is not 5.0.
        blank: texts without a word, which are like no other.
    """

    shingles_S: Shingles
    starts: NDArray[np.int64]
    digits: list[tuple[str, ...]]
    blank: NDArray[np.bool_]

    @classmethod
    def of(cls, texts: Iterable[str]) -> "_Shingled":
        """Cut case-folded texts into words, and number these; fewer than three words are one shingle."""
        number_of: dict[str, int] = {}

        def numbers_of(words: list[str]) -> Iterable[int]:
            return [number_of.setdefault(word, len(number_of)) for word in words]

        parted = (text.translate(_ASCII) if text.isascii() else " ".join(_WORD.findall(text)) for text in texts)
        numbers_W, counts_T = numbered(parted, numbers_of)
        windows_T = np.maximum(counts_T.astype(np.int64) - (WIDTH - 1), 1)
        hashes = np.array([zlib.crc32(word.encode()) for word in number_of], np.uint32)
        ends_T, short_T = np.cumsum(counts_T, dtype=np.int64), np.maximum(WIDTH - counts_T, 0)
        hashes_W = np.insert(hashes[numbers_W], np.repeat(ends_T, short_T), 0)  # 0 of the word that is none
        opens_W = np.ones(len(hashes_W), bool)
        for place in range(1, WIDTH):
            opens_W[np.cumsum(windows_T + WIDTH - 1) - place] = False
        ahead = len(hashes_W) - WIDTH + 1
        sums_S = sum(hashes_W[at : at + ahead] * factor for at, factor in enumerate(_MULTIPLIERS))[opens_W[:ahead]]
        texts_S = np.repeat(np.arange(len(counts_T), dtype=np.uint64) << _HALF, windows_T)
        sorted_S = np.sort(texts_S | sums_S)
        once_S = sorted_S[np.append(sorted_S[1:] != sorted_S[:-1], True)]
        starts = np.searchsorted(once_S, np.arange(len(counts_T) + 1, dtype=np.uint64) << _HALF)
        return cls(once_S.astype(np.uint32), starts, _with_digits(list(number_of), numbers_W, counts_T), counts_T == 0)

    def __len__(self) -> int:
        """T."""
        return len(self.digits)

    def of_text(self, text: int) -> frozenset[int]:
        """The shingles of one text."""
        return frozenset(self.shingles_S[self.starts[text] : self.starts[text + 1]].tolist())


def _with_digits(words: Sequence[str], numbers_W: Numbers, counts_T: Numbers) -> list[tuple[str, ...]]:
    """The words of each text that have a digit, a fraction or a numeral, in their order."""
    has_digit = np.array([any(map(str.isnumeric, word)) for word in words], bool)
    (places,) = np.nonzero(has_digit[numbers_W])
    found: list[list[str]] = [[] for _ in counts_T]
    for text, number in zip(
        np.repeat(np.arange(len(counts_T)), counts_T)[places].tolist(), numbers_W[places].tolist(), strict=True
    ):
        found[text].append(words[number])
    return [tuple(one) for one in found]


def _first_like(texts: _Shingled, threshold: float) -> dict[int, int]:
    """Number of a text -> the first one before it that it nearly repeats; those that repeat none are not in it."""
    bands, rows = _bands(threshold)
    sketches = _sketches(texts, bands * rows)
    places_TB = np.empty((len(texts), bands), np.int64)
    shared_T = np.zeros(len(texts), bool)
    for band in range(bands):
        part_TR = sketches[:, band * rows : (band + 1) * rows].astype(np.uint64)
        _, places_TB[:, band], counts = np.unique(part_TR @ _POWERS[:rows], return_inverse=True, return_counts=True)
        shared_T |= counts[places_TB[:, band]] > 1
    first_of: dict[int, int] = {}
    kept: dict[tuple[int, int, tuple[str, ...]], list[int]] = {}
    shingles: dict[int, frozenset[int]] = {}
    for text in np.flatnonzero(shared_T & ~texts.blank).tolist():
        places = [(band, place, texts.digits[text]) for band, place in enumerate(places_TB[text].tolist())]
        proposed = _likeliest([kept.get(place, []) for place in places])
        ours = texts.of_text(text)
        first = next((other for other in proposed if _jaccard(ours, shingles[other]) >= threshold), None)
        if first is not None:
            first_of[text] = first
            continue
        shingles[text] = ours
        for place in places:
            kept.setdefault(place, []).append(text)
    return first_of


def _likeliest(proposed: Sequence[Sequence[int]]) -> list[int]:
    """The texts that some bands propose, ascending; of more than `MOST_COMPARED` those that most bands do."""
    if sum(map(len, proposed)) <= MOST_COMPARED:
        return sorted({text for band in proposed for text in band})
    texts, bands = np.unique(np.concatenate([np.array(band, np.int64) for band in proposed]), return_counts=True)
    return sorted(texts[np.argsort(-bands, kind="stable")[:MOST_COMPARED]].tolist())


def _jaccard(one: frozenset[int], other: frozenset[int]) -> float:
    common = len(one & other)
    return common / (len(one) + len(other) - common)


def _sketches(texts: _Shingled, hashes: int) -> Shingles:
    """The least hash of a text's shingles, under so many hash functions: shape (T, hashes).

    Source: multiply, add, take the high half: Dietzfelbinger, doi:10.1007/3-540-60922-9_46.
    """
    drawn = np.frombuffer(hashlib.shake_256(b"sketches").digest(16 * hashes), "<u8")
    factors, shifts = drawn[:hashes] | np.uint64(1), drawn[hashes:]
    sketches = np.empty((len(texts), hashes), np.uint32)
    for first in range(0, len(texts), _AT_ONCE):
        starts = texts.starts[first : first + _AT_ONCE + 1]
        shingles = texts.shingles_S[starts[0] : starts[-1]].astype(np.uint64)
        for number in range(hashes):
            hashed = (shingles * factors[number] + shifts[number]) >> _HALF
            sketches[first : first + _AT_ONCE, number] = np.minimum.reduceat(hashed, starts[:-1] - starts[0])
    return sketches


def _bands(threshold: float) -> tuple[int, int]:
    """Bands and rows: the longest rows, for fewest idle proposals, that miss a pair at the threshold with `MAX_MISS` at most.

    Two texts of similarity s agree in one of b bands of r rows with probability 1 - (1 - s^r)^b.
    Source: Leskovec, Rajaraman, Ullman, Mining of Massive Datasets, chapter 3.
    """
    fitting = [r for r in range(1, HASHES + 1) if (1 - threshold**r) ** (HASHES // r) <= MAX_MISS]
    rows = max(fitting, default=1)
    return HASHES // rows, rows
