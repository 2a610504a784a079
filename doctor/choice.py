"""The likelihood of a choice among facts or none (a conditional logit with an outside option), which the map of answers and
the weights of the patient's decision are both fitted by.

Shape suffixes: Q questions, F facts of all questions.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LEAST = 1e-300  # of a probability, before its logarithm


class Choices:
    """Labelled questions: which facts answer each, or that none does."""

    def __init__(self, answers: Sequence[NDArray[np.bool_]]) -> None:
        """Args: of each question whether each of its facts, one at least, answers it."""
        lengths = [len(one) for one in answers]
        self.start_Q = starts(lengths)
        self.question_F = np.repeat(np.arange(len(lengths)), lengths)
        self._answers_F = np.concatenate(answers).astype(np.float64)
        self._off_Q = np.array([not one.any() for one in answers], dtype=np.float64)

    def loss(self, sums_F: Array, none_Q: Array) -> tuple[float, Array, Array]:
        """Negative log-likelihood of the labels where these are the logits of the facts and of none, and its slopes by
        them, (F,) and (Q,).
        """
        highest_Q = np.maximum(np.maximum.reduceat(sums_F, self.start_Q), none_Q)
        odds_F, odds_none_Q = np.exp(sums_F - highest_Q[self.question_F]), np.exp(none_Q - highest_Q)
        all_Q = np.add.reduceat(odds_F, self.start_Q) + odds_none_Q
        right_F, right_none_Q = odds_F * self._answers_F, odds_none_Q * self._off_Q
        right_Q = np.maximum(np.add.reduceat(right_F, self.start_Q) + right_none_Q, LEAST)
        slope_F = odds_F / all_Q[self.question_F] - right_F / right_Q[self.question_F]
        return float(np.log(all_Q).sum() - np.log(right_Q).sum()), slope_F, odds_none_Q / all_Q - right_none_Q / right_Q


def starts(lengths: Sequence[int]) -> NDArray[np.intp]:
    """Where each of some runs begins."""
    return np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.intp)
