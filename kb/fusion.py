"""Scores of words and of vectors -> one ranking.

Shape suffix: C candidates, of which both scores are known.
"""

import numpy as np
from numpy.typing import NDArray

from kb.config import FusionParams

RANK_CONSTANT = 60  # of reciprocal ranks: how little the first place is worth more than the second

Scores = NDArray[np.float32]


def fuse(dense_C: Scores, lexical_C: Scores, params: FusionParams) -> Scores:
    """Give every candidate of one query its score, higher is better.

    Args:
        dense_C: cosines.
        lexical_C: BM25 scores, 0 or more.
        params: the method and the weight of the words; `candidates` is the caller's.

    Returns:
        float32, shape (C,): for `dense` and `lexical` the score itself, else 0 to 1 (`weighted`) or a weighted sum of
        1 / (60 + rank) (`rrf`).

    Source:
        Reciprocal ranks: Cormack, Clarke and Buettcher, doi:10.1145/1571941.1572114.
    """
    match params.method:
        case "dense":
            return dense_C
        case "lexical":
            return lexical_C
        case "weighted":
            parts = _from_0_to_1(dense_C), _from_0_to_1(lexical_C)
        case "rrf":
            parts = _reciprocal_ranks(dense_C), _reciprocal_ranks(lexical_C)
    return np.asarray((1 - params.lexical_weight) * parts[0] + params.lexical_weight * parts[1], np.float32)


def _from_0_to_1(scores_C: Scores) -> Scores:
    """Where a score lies between the least and the greatest; all 0 if there is no difference."""
    least, greatest = scores_C.min(initial=np.inf), scores_C.max(initial=-np.inf)
    return (scores_C - least) / (greatest - least) if greatest > least else np.zeros_like(scores_C)


def _reciprocal_ranks(scores_C: Scores) -> Scores:
    """Equal scores have equal ranks: all passages without a word of the query, say."""
    ranks_C = 1 + len(scores_C) - np.searchsorted(np.sort(scores_C), scores_C, side="right")
    return np.asarray(1 / (RANK_CONSTANT + ranks_C), np.float32)
