"""Reference doctors for cases whose probabilities nobody knows: fitted on the training cases of the same source.

Naive Bayes over words: the patients of a diagnosis say a word as often as its training cases do, drawn towards those of
all diagnoses. A finding that is absent is another word than one that is present. The doctor asks the recorded question
whose recorded answers are expected to tell most, in the words of the record, and names the likeliest diagnosis by what
it was told; it reads nothing of a case but the self-report, and what is answered.

Shapes: C diagnoses, W words, N training cases, A recorded answers, H recorded questions.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from clinic.actions import diagnosis, question
from clinic.cases import Case
from clinic.events import Event, Inquiry
from clinic.experienced import inquiry, name_of
from clinic.generative import Array
from clinic.history import GENERAL_HISTORY
from clinic.language import phrases
from clinic.leaks import LeakFilter
from clinic.metrics import words_of

Columns = NDArray[np.int64]
# as many words of all diagnoses together are added to those of each; the fit chooses
STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
# of a word's log-probability; below 1, as words that go together say one thing many times; the fit chooses
WEIGHTS = (1.0, 0.6, 0.35, 0.2, 0.1, 0.05, 0.03)


@lru_cache(maxsize=65536)
def said(text: str, present: bool = True) -> frozenset[str]:
    """The words of a text, marked where it is about what the patient does not have."""
    return frozenset(word if present else f"not {word}" for word in words_of(text))


def report(case: Case) -> frozenset[str]:
    """The words of a self-report as the doctor hears it, without the diagnosis."""
    return said(LeakFilter(case).clean(case.self_report)[0])


def chart(case: Case) -> frozenset[str]:
    """The words of self-report and facts, without the diagnosis."""
    present = "\n".join(fact.text for fact in case.facts if fact.present)
    absent = (said(fact.text, present=False) for fact in case.facts if not fact.present)
    return report(case).union(said(LeakFilter(case).clean(present)[0]), *absent)


def commonest(seen: Sequence[Case]) -> list[Case]:
    """An example of each diagnosis, the commonest diagnosis first."""
    first = {case.diagnosis_id: case for case in reversed(seen)}
    return [first[name] for name, _ in Counter(case.diagnosis_id for case in seen).most_common()]


class Commonest:
    """Names the commonest diagnosis of its training cases, whatever it hears: what a doctor must beat."""

    def __init__(self, examples: Sequence[Case]) -> None:
        """Args: what `commonest` found."""
        self._examples = examples

    def ranking(self) -> list[str]:
        """Names of the diagnoses, the commonest first."""
        return [name_of(case) for case in self._examples]

    def turn(self) -> str:
        """The diagnosis, in the grammar."""
        return _final(self._examples[0])

    def hear(self, event: Event) -> None:
        """It does not listen."""


class FittedBayes:
    """What training cases teach: how common a diagnosis is, what its patients say and what they answered."""

    def __init__(self, seen: Sequence[Case]) -> None:
        """Args: training cases of one source, at least one; never those it is to be measured on."""
        self.examples = commonest(seen)
        row = {case.diagnosis_id: i for i, case in enumerate(self.examples)}
        row_N = np.array([row[case.diagnosis_id] for case in seen])
        self.count_C = np.bincount(row_N).astype(np.float64)
        charts = [chart(case) for case in seen]
        self._column = {word: i for i, word in enumerate(sorted(frozenset().union(*charts)))}
        self._fit([self._columns(words) for words in charts], [self._columns(report(c)) for c in seen], row_N)
        self._index_answers(seen, row_N)

    def _fit(self, charts: Sequence[Columns], reports: Sequence[Columns], row_N: Columns) -> None:
        """Take the strength and the weight with which most training cases are diagnosed by the others, from their
        self-reports and from their charts.
        """
        said_CW = np.zeros((len(self.examples), len(self._column)))
        for row, columns in zip(row_N, charts, strict=True):
            said_CW[row, columns] += 1
        share_W, total_C = said_CW.sum(axis=0) / said_CW.sum(), said_CW.sum(axis=1)
        prior_NC = np.tile(np.log(self.count_C), (len(row_N), 1))
        with np.errstate(divide="ignore"):  # a diagnosis that no other case has is not found: log 0
            prior_NC[np.arange(len(row_N)), row_N] = np.log(self.count_C[row_N] - 1)
        best = -1.0
        for strength in STRENGTHS:
            log_CW = np.log((said_CW + strength * share_W) / (total_C[:, None] + strength))
            scores = []
            for heard in (reports, charts):
                score_NC = np.stack([log_CW[:, columns].sum(axis=1) for columns in heard])
                for i, (row, columns, whole) in enumerate(zip(row_N, heard, charts, strict=True)):
                    left = said_CW[row, columns] - 1 + strength * share_W[columns]
                    score_NC[i, row] = np.log(left / (total_C[row] - len(whole) + strength)).sum()
                scores.append(score_NC)
            for weight in WEIGHTS:
                right = sum(float(((prior_NC + weight * score).argmax(axis=1) == row_N).mean()) for score in scores)
                if right > best:
                    best, self._log_CW = right, weight * log_CW

    def _index_answers(self, seen: Sequence[Case], row_N: Columns) -> None:
        """The recorded answers, each with the question that it stood under and how common it is by diagnosis."""
        place: dict[tuple[str, frozenset[str]], int] = {}
        pairs = [
            (place.setdefault((fact.topic, said(fact.text, fact.present)), len(place)), row)
            for case, row in zip(seen, row_N, strict=True)
            for fact in case.facts
            if fact.topic not in case.opening
        ]
        self.headings = list(dict.fromkeys(heading for heading, _ in place))
        self.example_of = {
            fact.topic: fact for case in reversed(seen) for fact in case.facts
        }  # of what a heading tells
        number = {heading: i for i, heading in enumerate(self.headings)}
        self._heading_A = np.array([number[heading] for heading, _ in place], dtype=np.int64)
        self._share_AC = np.zeros((len(place), len(self.examples)))
        for answer, row in pairs:
            self._share_AC[answer, row] += 1 / self.count_C[row]
        self._log_AC = np.zeros_like(self._share_AC)
        for answer, (_, words) in enumerate(place):
            self._log_AC[answer] = self._log_CW[:, self._columns(words)].sum(axis=1)

    def _columns(self, words: Iterable[str]) -> Columns:
        return np.array([self._column[word] for word in words if word in self._column], dtype=np.int64)

    def posterior(self, heard: Iterable[str]) -> Array:
        """Probability of each diagnosis after the words that were heard, in the order of `examples`; float64 (C,)."""
        return _normalised(np.log(self.count_C) + self._log_CW[:, self._columns(heard)].sum(axis=1))

    def worth(self, posterior_C: Array) -> Array:
        """Expected drop of the posterior's entropy (nats) from asking each of `headings`, by the answers on record;
        float64 (H,).
        """
        after_AC = _normalised(np.log(posterior_C + 1e-300) + self._log_AC)
        gain_A = (self._share_AC @ posterior_C) * (_entropy(posterior_C) - _entropy(after_AC))
        return np.asarray(np.bincount(self._heading_A, weights=gain_A, minlength=len(self.headings)))


class FittedDoctor:
    """Plays one consultation by a `FittedBayes`."""

    def __init__(self, fitted: FittedBayes, questions: int, heard: Iterable[str], opening: Sequence[str] = ()) -> None:
        """Args: what it learned; how many questions it asks before it diagnoses; the words that it has heard, and the
        topics that they told.
        """
        self._fitted, self._left, self._heard = fitted, questions, frozenset(heard)
        self._open_H = np.array([heading not in opening for heading in fitted.headings], dtype=bool)

    def ranking(self) -> list[str]:
        """Names of the diagnoses, likeliest first."""
        order = np.argsort(-self._fitted.posterior(self._heard), kind="stable")
        return [name_of(self._fitted.examples[i]) for i in order]

    def turn(self) -> str:
        """The next doctor turn, in the grammar."""
        posterior_C = self._fitted.posterior(self._heard)
        if self._left > 0 and self._open_H.any():
            chosen = int(np.where(self._open_H, self._fitted.worth(posterior_C), -np.inf).argmax())
            self._open_H[chosen] = False
            self._left -= 1
            language = self._fitted.examples[0].language
            return inquiry(self._fitted.example_of[self._fitted.headings[chosen]], phrases(language))
        return _final(self._fitted.examples[int(posterior_C.argmax())])

    def hear(self, event: Event) -> None:
        """Take note of the answer to the last question."""
        if isinstance(event, Inquiry) and event.topic is not None:
            self._heard |= said(event.reply, bool(event.present))


class FittedListener(FittedDoctor):
    """Takes a general history and names the diagnosis that a `FittedBayes` finds likeliest."""

    def __init__(self, fitted: FittedBayes, questions: int, heard: Iterable[str]) -> None:
        """Args: what it learned; how many questions it asks; the words that it has heard."""
        super().__init__(fitted, 0, heard)
        self._words = phrases(fitted.examples[0].language)
        self._history = iter(GENERAL_HISTORY[self._words.code][:questions])

    def turn(self) -> str:
        """The next question, or the diagnosis."""
        asked = next(self._history, None)
        return super().turn() if asked is None else question(asked, None, self._words)


def _final(like: Case) -> str:
    return diagnosis(name_of(like), like.recommendation, phrases(like.language))


def _normalised(log_XC: Array) -> Array:
    weight_XC = np.exp(log_XC - log_XC.max(axis=-1, keepdims=True))
    return np.asarray(weight_XC / weight_XC.sum(axis=-1, keepdims=True))


def _entropy(p_XC: Array) -> Array:
    """Entropy over the last axis, nats."""
    return np.asarray(-(p_XC * np.log(np.clip(p_XC, 1e-300, 1.0))).sum(axis=-1))
