"""Reference doctors of a generative clinic: they ask by their own rule and diagnose by Bayes' posterior.

`greedy` (asks what is expected to tell most) and `random` are yardsticks for evaluation. The `resident` is the mediocre
colleague whose dialogues the warm start imitates: half of the questions come from nowhere, the others chase
one illness that came to mind (it may say which, in its thoughts), and the diagnosis comes too early. None of them is optimal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clinic.actions import diagnosis, question
from clinic.cases import Case
from clinic.generative import Array, GenerativeClinic


class Chase(NamedTuple):
    """A question and the illness it was asked for."""

    column: int
    condition: str


Ask = Callable[[GenerativeClinic, Array, NDArray[np.bool_], np.random.Generator], int | Chase]


def greedy(clinic: GenerativeClinic, posterior_C: Array, open_F: NDArray[np.bool_], rng: np.random.Generator) -> int:  # noqa: ARG001  one signature
    """The open finding with the largest expected information gain."""
    return int(np.where(open_F, clinic.information_gain(posterior_C), -np.inf).argmax())


def at_random(clinic: GenerativeClinic, posterior_C: Array, open_F: NDArray[np.bool_], rng: np.random.Generator) -> int:  # noqa: ARG001  one signature
    """Any open finding."""
    return int(rng.choice(np.flatnonzero(open_F)))


def chasing(clinic: GenerativeClinic, posterior_C: Array, open_F: NDArray[np.bool_], rng: np.random.Generator) -> Chase:
    """A finding of one condition that came to mind (drawn from the posterior), typical ones first."""
    condition = clinic.conditions[int(rng.choice(len(posterior_C), p=posterior_C))]
    weight_F = np.zeros(len(open_F))
    for finding_id, probability in condition.findings.items():
        weight_F[clinic.finding_index[finding_id]] = probability
    weight_F *= open_F
    if not weight_F.any():
        return Chase(at_random(clinic, posterior_C, open_F, rng), condition.name)
    return Chase(int(rng.choice(len(weight_F), p=weight_F / weight_F.sum())), condition.name)


def resident(random_share: float, *, aloud: bool) -> Ask:
    """The resident's way of asking: `random_share` of the questions at random, the others chasing; `aloud`: with the illness in its thoughts."""

    def ask(clinic: GenerativeClinic, posterior_C: Array, open_F: NDArray[np.bool_], rng: np.random.Generator) -> int | Chase:
        if rng.random() < random_share:
            return at_random(clinic, posterior_C, open_F, rng)
        chase = chasing(clinic, posterior_C, open_F, rng)
        return chase if aloud else chase.column

    return ask


@dataclass
class ReferenceDoctor:
    """Plays one consultation of a generative clinic: asks by a rule, diagnoses the likeliest condition on its last question."""

    clinic: GenerativeClinic
    case: Case
    ask: Ask
    questions: int  # how many it asks before it diagnoses
    rng: np.random.Generator
    wordings: str = "train"  # which question wordings it uses, "train" or "test"
    answers: dict[int, bool] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)

    def turn(self) -> str:
        """The next doctor turn, in the grammar."""
        if len(self.tried) >= self.questions:
            condition = self.clinic.conditions[int(self.posterior().argmax())]
            return diagnosis(condition.name, condition.next_steps[0])
        chosen = self.ask(self.clinic, self.posterior(), self._open(), self.rng)
        column, thought = (chosen.column, f"{chosen.condition}?") if isinstance(chosen, Chase) else (chosen, "")
        self.tried.add(column)
        texts = self.clinic.findings[column].doctor.of(self.wordings)
        return question(texts[int(self.rng.integers(len(texts)))], thought)

    def hear(self, topic: str | None, present: bool | None) -> None:
        """Take note of the answer to the last question."""
        if topic is not None and present is not None:
            self.answers[self.clinic.finding_index[topic]] = present

    def posterior(self) -> Array:
        """Bayes' posterior after what it heard; float64 (C,)."""
        return self.clinic.posterior(self._opening(), self.answers)

    def _opening(self) -> Sequence[int]:
        return [self.clinic.finding_index[topic] for topic in self.case.opening]

    def _open(self) -> NDArray[np.bool_]:
        open_F = np.ones(len(self.clinic.findings), dtype=bool)
        open_F[[*self._opening(), *self.answers, *self.tried]] = False
        return open_F
