"""Sources of cases and their weights: whose cases are played in training, and how much each counts in validation.

Without weights every case counts alike, whatever its source. Evaluations keep the sources apart and need no weight.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from clinic.cases import Case
from doctor.mistakes import did_you_mean
from doctor.parameters import ParameterError

GOLDEN = (5**0.5 - 1) / 2
"""Steps of this length around a circle fill it evenly: of any n prompts a source has its share, within about one."""


def check_weights(weights: Mapping[str, float], cases: Sequence[Case], split: str) -> None:
    """Refuse weights that do not fit the cases of a split.

    Raises:
        ParameterError: a name that is no source, a source without a weight, or no weight above 0.
    """
    there = Counter(case.source for case in cases)
    key = "params.yaml: train_doctor.source_weights"
    for name in weights:
        if name not in there and weights[name] > 0:
            raise ParameterError(
                f"{key} names {name!r}, of which there is no {split} case{did_you_mean(name, there)}; there are: {', '.join(there)}"
            )
    if weights and (missing := [name for name in there if name not in weights]):
        raise ParameterError(f"{key} gives {missing[0]!r} no weight; name every source (0: none of it), or write {{}}")
    if weights and not sum(weights.values()) > 0:
        raise ParameterError(f"{key}: all weights are 0; give one source at least a positive one")


def by_source(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """Cases of each source, in order."""
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(case.source, []).append(case)
    return found


def cases_of_draw(
    cases: Sequence[Case], prompts: int, number: int, seed: int, weights: Mapping[str, float] | None = None
) -> list[Case]:
    """The cases of draw `number` (from 0) of a run, a function of seed and number alone.

    They are consecutive pieces of endless reshuffles: of all cases, or with `weights` of each source's, where the
    sources take turns by their weights.
    """
    first = number * prompts
    if not weights:
        return [_of_epochs(cases, place, seed) for place in range(first, first + prompts)]
    sources = {name: found for name, found in by_source(cases).items() if weights[name] > 0}
    turns_N = _turns(tuple(weights[name] for name in sources), first + prompts, seed)
    names = list(sources)
    nth = np.zeros(len(turns_N), dtype=np.int64)
    for source in range(len(names)):
        own = turns_N == source
        nth[own] = np.arange(own.sum())
    return [_of_epochs(sources[names[turns_N[i]]], int(nth[i]), seed) for i in range(first, first + prompts)]


def _turns(weights: Sequence[float], count: int, seed: int) -> NDArray[np.int64]:
    """Whose turn each of the first `count` prompts is, as the number of a source."""
    start = np.random.default_rng(seed).random()
    place_N = (start + GOLDEN * np.arange(count)) % 1.0
    edges = np.cumsum(weights) / np.sum(weights)
    return np.searchsorted(edges[:-1], place_N, side="right")


def _of_epochs(cases: Sequence[Case], place: int, seed: int) -> Case:
    epoch, offset = divmod(place, len(cases))
    return cases[int(_shuffled(len(cases), seed, epoch)[offset])]


@lru_cache(maxsize=16)
def _shuffled(size: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order of one epoch; a draw reads one or two of them for each source, and the next draw the same ones."""
    return np.random.default_rng([seed, epoch]).permutation(size)


def quotas(cases: Sequence[Case], count: int, weights: Mapping[str, float]) -> dict[str, int]:
    """How many of `count` cases each source gives to a validation: its share by weight, or all that it has if that is
    less; the largest remainders are rounded up.
    """
    there = Counter(case.source for case in cases)
    total = sum(weights[name] for name in there)
    exact = {name: count * weights[name] / total for name in there}
    given = {name: int(share) for name, share in exact.items()}
    for name in sorted(exact, key=lambda name: given[name] - exact[name])[: count - sum(given.values())]:
        given[name] += 1
    return {name: min(given[name], there[name]) for name in there}
