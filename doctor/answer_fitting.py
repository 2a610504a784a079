"""Learns from labelled questions how near a text is to a question as its answer: `clinic.understanding.answering`.

The facts of the record and none compete for a question; the map is that under which the labelled answers are likely,
found in a few steps of Adam (Kingma and Ba 2015) on all of them at once. It has more entries than there are questions, so
large ones are punished and the steps end before the labels are known by heart.

Shape suffixes: Q questions, R rows (texts of all facts of all questions), F facts of all questions, D dimensions of a
vector, K columns of the map.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clinic.matching import Embed
from clinic.understanding.answering import Answering, Vectors
from doctor.choice import Choices, starts

COLUMNS = 32
PENALTY = 6.0  # of half the squared entries
STEPS, RATE = 80, 0.005
SPREAD = 0.05  # of the entries before the first step
SCALE, NONE = 25.0, 12.0  # how much a nearness weighs, and what none does, before the first step
FASTER = 6.0  # rate of these two
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """A question and the texts of each fact that the patient knows."""

    question: str
    texts: Sequence[Sequence[str]]  # of each fact
    answers: NDArray[np.bool_]  # whether each fact answers


def fit_map(pairings: Sequence[Pairing], embed: Embed) -> Answering:
    """The map under which the labels are likely, the same at every call.

    Args:
        pairings: one at least, each with a fact and each fact with a text.
        embed: of questions and texts, to vectors of length D.

    Returns:
        two matrices, each float32 (D, `COLUMNS`).
    """
    likelihood = _Likelihood(pairings, embed)
    shape = (2, likelihood.dimensions, COLUMNS)
    entries = np.random.default_rng(0).normal(scale=SPREAD, size=shape).ravel()
    found = _descended(likelihood.loss, np.concatenate([entries, [np.log(SCALE), NONE]]))
    return Answering(*found[:-2].reshape(shape).astype(np.float32))


def _descended(loss: Callable[[Array], tuple[float, Array]], start: Array) -> Array:
    """Where Adam is after `STEPS` steps whose rate falls to nothing."""
    found, first, second = start, np.zeros_like(start), np.zeros_like(start)
    rates = np.full(len(start), RATE)
    rates[-2:] *= FASTER
    for step in range(1, STEPS + 1):
        _, slopes = loss(found)
        first, second = 0.9 * first + 0.1 * slopes, 0.999 * second + 0.001 * slopes**2
        towards = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        found = found - rates * (1 - (step - 1) / STEPS) * towards
    return found


class _Likelihood:
    """Of the labels, under a map."""

    def __init__(self, pairings: Sequence[Pairing], embed: Embed) -> None:
        asked = list(dict.fromkeys(one.question for one in pairings))
        told = list(dict.fromkeys(chain.from_iterable(chain.from_iterable(one.texts for one in pairings))))
        row_of_question, row_of_text = ({text: i for i, text in enumerate(texts)} for texts in (asked, told))
        self._questions: Vectors = embed(asked)
        self._texts: Vectors = embed(told)
        facts = [texts for one in pairings for texts in one.texts]
        self._text_R = np.array([row_of_text[text] for texts in facts for text in texts])
        question_F = np.repeat(
            [row_of_question[one.question] for one in pairings], [len(one.texts) for one in pairings]
        )
        self._question_R = np.repeat(question_F, [len(texts) for texts in facts])
        self._fact_R = np.repeat(np.arange(len(facts)), [len(texts) for texts in facts])
        self._start_F = starts([len(texts) for texts in facts])
        self._choices = Choices([one.answers for one in pairings])
        self._cosine_R = np.einsum("rd,rd->r", self._questions[self._question_R], self._texts[self._text_R])

    @property
    def dimensions(self) -> int:
        """D."""
        return int(self._texts.shape[1])

    def loss(self, parameters: Array) -> tuple[float, Array]:
        """Negative log-likelihood with the penalty on the map, and its gradient."""
        entries, scale, none = parameters[:-2], np.exp(parameters[-2]), parameters[-1]
        asks_DK, tells_DK = entries.reshape(2, self.dimensions, COLUMNS).astype(np.float32)
        asked, told = self._questions @ asks_DK, self._texts @ tells_DK
        near_R = self._cosine_R + np.einsum("rk,rk->r", asked[self._question_R], told[self._text_R])
        near_F = np.maximum.reduceat(near_R, self._start_F)
        nearest = np.flatnonzero(near_R == near_F[self._fact_R])
        best_F = nearest[np.unique(self._fact_R[nearest], return_index=True)[1]]  # the row of each fact's nearest text
        sums_F = scale * near_F.astype(np.float64)
        none_Q = np.full(len(self._choices.start_Q), none)
        loss, slope_F, slope_none_Q = self._choices.loss(sums_F, none_Q)
        pull_F = (scale * slope_F).astype(np.float32)
        pulls = csr_array(
            (pull_F, (self._question_R[best_F], self._text_R[best_F])), shape=(len(asked), len(told))
        )  # of each question towards each text
        slopes = np.stack([self._questions.T @ (pulls @ told), self._texts.T @ (pulls.T @ asked)])
        slopes = slopes.astype(np.float64).ravel()
        loss += PENALTY / 2 * float((entries**2).sum())
        return loss, np.concatenate([slopes + PENALTY * entries, [(slope_F * sums_F).sum(), slope_none_Q.sum()]])
