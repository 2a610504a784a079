"""Overlap between train, validation and test: the same patient must not be learned from and examined.

Generated cases are made of stock sentences, so that two strangers read alike; they are the same patient when diagnosis
and present topics agree. All others are compared by their text: equal, or near-duplicate by the Jaccard similarity of
character 5-shingles. Shingles need no words, so a text in Chinese is compared like one in English; a changed sentence
costs the shingles that touch it, sentences in another order cost four at each seam.

MinHash LSH proposes the pairs, their sketches rule most of them out, and the exact similarity of the rest decides. What
becomes of a pair depends on its two texts alone, never on the others, so results do not change with the order of cases
or when cases are added.

Left out: paraphrases and translations of one patient share few shingles and are not found.
"""

import zlib
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from datasketch import MinHash, MinHashLSH
from numpy.typing import NDArray

from clinic.cases import Case, Rejected
from clinic.errors import ClinicError
from clinic.matching import normalise

KINDS = ("id", "group", "text", "near_duplicate", "facts")  # strictest first
SHINGLE = 5  # characters
PERMUTATIONS = 256
MAX_MISS = 1e-3  # chance that a pair of exactly the threshold's similarity is not proposed
# standard deviations by which the sketches may underrate a pair before it is passed over: 3e-5 of those at the
# threshold
MARGIN = 4.0
SHOWN = 20  # pairs listed in an error
LINE_UNKNOWN = 0


class ContaminationError(ClinicError):
    """Cases of different splits overlap; the message lists the pairs."""


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Two cases that overlap and stand in different splits, ordered by case id. Made by `overlaps`, read by `check`."""

    kind: str  # one of KINDS, the strictest that holds
    first: str  # case id
    first_split: str
    second: str
    second_split: str
    similarity: float  # of the texts for "near_duplicate"; 1 for the kinds that are equalities


def overlaps(cases: Sequence[Case], generated: Collection[str], threshold: float) -> list[Overlap]:
    """Every pair of cases in different splits that overlaps, once.

    Args:
        cases: of all splits, in any order.
        generated: sources whose cases are drawn from a generative clinic; among these, texts are not compared.
        threshold: least Jaccard similarity, in (0, 1], that makes two texts near-duplicates.

    Returns:
        Strictest kind first, then the most similar, then by id.

    Raises:
        ClinicError: the threshold lies outside (0, 1].
    """
    drawn = [case for case in cases if case.source in generated]
    told = [case for case in cases if case.source not in generated]
    found = [_overlap("id", a, b) for a, b in _agreeing(cases, lambda case: case.case_id)]
    found += [_overlap("group", a, b) for a, b in _agreeing(cases, lambda case: case.group_id)]
    found += [_overlap("text", a, b) for a, b in _agreeing(told, lambda case: _text(case) or None)]
    found += [_overlap("facts", a, b) for a, b in _agreeing(drawn, _facts)]
    found += [_overlap("near_duplicate", a, b, similarity) for a, b, similarity in _alike(told, threshold)]
    found.sort(key=lambda o: (KINDS.index(o.kind), -o.similarity, o.first, o.second, o.first_split, o.second_split))
    strictest: dict[tuple[str, ...], Overlap] = {}
    for overlap in found:
        strictest.setdefault((overlap.first, overlap.first_split, overlap.second, overlap.second_split), overlap)
    return list(strictest.values())


def inherit_groups(cases: Sequence[Case], threshold: float) -> tuple[list[Case], list[Rejected]]:
    """Put near-duplicates into one group, and with it into one split; for cases that are not generated.

    A case takes group and split of the first case before it that it nearly repeats. One that repeats none goes where
    the first case that came with its group went, so that such cases stay together. A case depends on those before it
    alone: cases added at the end move none that was there.

    Args:
        cases: in file order; one whose group came before with another split takes the earlier split.
        threshold: as in `overlaps`.

    Returns:
        The cases in the same order, and those that tie two splits together and can stand in neither. A rejected case is
        named in its reason; its path is its source and its line `LINE_UNKNOWN`.

    Raises:
        ClinicError: the threshold lies outside (0, 1].
    """
    index = _Index(threshold)
    kept: list[Case] = []
    by_text: dict[str, Case] = {}
    by_group: dict[str, Case] = {}  # the group a case came with -> the first such case, as it was placed
    rejected: list[Rejected] = []
    for case in cases:
        text = _text(case)
        same = by_text.get(text)
        relatives = [(same, 1.0)] if same else [(by_text[other], similarity) for other, similarity in index.near(text)]
        reasons = [
            (relative, f"a near-duplicate (similarity {similarity:.2f}) of {relative.case_id!r}")
            for relative, similarity in relatives
        ]
        if case.group_id in by_group:
            mate = by_group[case.group_id]
            reasons.append((mate, f"in one group ({case.group_id!r}) with {mate.case_id!r}"))
        rivals = {relative.split: f"{why} in {relative.split}" for relative, why in reversed(reasons)}
        if len(rivals) > 1:
            reason = f"case {case.case_id!r} is {' and '.join(rivals[split] for split in sorted(rivals))}; remove one of the cases that it ties together"
            rejected.append(Rejected(case.source, LINE_UNKNOWN, reason))
            continue
        placed = replace(case, group_id=reasons[0][0].group_id, split=reasons[0][0].split) if reasons else case
        kept.append(placed)
        by_group.setdefault(case.group_id, placed)
        if text and not same:
            by_text[text] = placed
            index.add(text)
    return kept, rejected


def check(cases: Sequence[Case], generated: Collection[str], threshold: float) -> None:
    """Refuse cases of which any two overlap and stand in different splits; arguments as in `overlaps`.

    Raises:
        ContaminationError: there is such a pair; the first 20 are listed.
        ClinicError: the threshold lies outside (0, 1].
    """
    found = overlaps(cases, generated, threshold)
    if not found:
        return
    listed = [
        f"  {o.kind} ({o.similarity:.2f}): {o.first} in {o.first_split}, {o.second} in {o.second_split}"
        for o in found[:SHOWN]
    ]
    more = [f"  ... and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    fix = "remove one case of each pair, or give both the same group_id so that they fall to one split (a shared id: rename one)"
    raise ContaminationError(
        "\n".join([f"cases of different splits overlap (pairs: {len(found)}); {fix}:", *listed, *more])
    )


def _overlap(kind: str, a: Case, b: Case, similarity: float = 1.0) -> Overlap:
    first, second = sorted((a, b), key=lambda case: (case.case_id, case.split))
    return Overlap(
        kind=kind,
        first=first.case_id,
        first_split=first.split,
        second=second.case_id,
        second_split=second.split,
        similarity=similarity,
    )


def _agreeing(cases: Sequence[Case], key: Callable[[Case], Hashable]) -> Iterator[tuple[Case, Case]]:
    """Pairs of different splits with the same key; None agrees with nothing."""
    buckets: dict[Hashable, list[Case]] = {}
    for case in cases:
        buckets.setdefault(key(case), []).append(case)
    buckets.pop(None, None)
    for bucket in buckets.values():
        if len({case.split for case in bucket}) > 1:
            yield from ((a, b) for a, b in combinations(bucket, 2) if a.split != b.split)


def _alike(cases: Sequence[Case], threshold: float) -> Iterator[tuple[Case, Case, float]]:
    """Pairs of different splits whose texts differ and are near-duplicates."""
    index = _Index(threshold)
    by_text: dict[str, list[Case]] = {}
    for case in cases:
        by_text.setdefault(_text(case), []).append(case)
    for text, bucket in by_text.items():
        for other, similarity in index.near(text):
            yield from ((a, b, similarity) for a in bucket for b in by_text[other] if a.split != b.split)
        index.add(text)


def _facts(case: Case) -> Hashable:
    return case.diagnosis_id, frozenset(fact.topic for fact in case.facts if fact.present)


def _text(case: Case) -> str:
    """Letters and digits of self-report and facts, without spaces: Chinese comes with and without them."""
    return " ".join(map(normalise, (case.self_report, *(fact.text for fact in case.facts)))).replace(" ", "")


class _Index:
    """Texts added so far, and those of them that a new text nearly repeats."""

    def __init__(self, threshold: float) -> None:
        if not 0 < threshold <= 1:
            raise ClinicError(f"near-duplicate threshold {threshold} is impossible; it must lie in (0, 1]")
        self._threshold = threshold
        self._least_estimate = threshold - MARGIN * (threshold * (1 - threshold) / PERMUTATIONS) ** 0.5
        self._lsh = MinHashLSH(num_perm=PERMUTATIONS, params=_bands(threshold))
        self._empty = MinHash(num_perm=PERMUTATIONS, hashfunc=_hash)
        self._texts: list[str] = []
        self._shingles: list[set[str]] = []
        self._sketches: list[NDArray[np.uint32]] = []
        self._last: tuple[str, MinHash] = ("", self._empty)  # text asked for last, and its sketch

    def near(self, text: str) -> list[tuple[str, float]]:
        """Texts of at least the threshold's similarity, and it, in the order in which they were added."""
        sketch = self._sketched(text)
        proposed = sorted(self._lsh.query(sketch)) if text else []
        if not proposed:
            return []
        estimate = (np.stack([self._sketches[number] for number in proposed]) == sketch.hashvalues).mean(axis=1)
        likely = [number for number, share in zip(proposed, estimate, strict=True) if share >= self._least_estimate]
        own = _shingles_of(text) if likely else set()
        exact = [(self._texts[number], _jaccard(own, self._shingles[number])) for number in likely]
        return [(other, similarity) for other, similarity in exact if similarity >= self._threshold]

    def add(self, text: str) -> None:
        """Add a text that was not added before; an empty one is passed over."""
        if text:
            sketch = self._sketched(text)
            self._lsh.insert(len(self._texts), sketch)
            self._texts.append(text)
            self._shingles.append(_shingles_of(text))
            self._sketches.append(sketch.hashvalues)

    def _sketched(self, text: str) -> MinHash:
        if self._last[0] != text:
            sketch = self._empty.copy()
            sketch.update_batch(_shingles_of(text))
            self._last = (text, sketch)
        return self._last[1]


def _jaccard(a: set[str], b: set[str]) -> float:
    common = len(a & b)
    return common / (len(a) + len(b) - common)


def _shingles_of(text: str) -> set[str]:
    return {text[i : i + SHINGLE] for i in range(max(len(text) - SHINGLE, 0) + 1)} if text else set()


def _hash(shingle: str) -> int:
    return zlib.crc32(shingle.encode())


def _bands(threshold: float) -> tuple[int, int]:
    """Bands and rows: the longest rows, for fewest idle proposals, that miss a pair at the threshold with `MAX_MISS` at
    most.

    Two texts of similarity s agree in one of b bands of r rows with probability 1 - (1 - s^r)^b.
    Source: Leskovec, Rajaraman, Ullman, Mining of Massive Datasets, chapter 3.
    """
    fitting = [r for r in range(1, PERMUTATIONS // 2 + 1) if (1 - threshold**r) ** (PERMUTATIONS // r) <= MAX_MISS]
    rows = max(fitting, default=1)
    return PERMUTATIONS // rows, rows
