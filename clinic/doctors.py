"""Reference doctors of a generative clinic: they ask by their own rule and diagnose by Bayes' posterior.

`greedy` (asks what is expected to tell most) and `random` are yardsticks for evaluation. The `resident` is the mediocre
colleague whose dialogues the warm start imitates: half of the questions come from nowhere, the others chase
one illness that came to mind (it may say which, in its thoughts), and the diagnosis comes too early. None of them is
optimal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from clinic.actions import diagnosis, question
from clinic.cases import Case
from clinic.events import Event, Inquiry
from clinic.generative import Array, Condition, GenerativeClinic


class Chase(NamedTuple):
    """A question and the illness it was asked for, if it is said."""

    column: int
    condition: str | None


Ask = Callable[[GenerativeClinic, Array, NDArray[np.bool_], np.random.Generator], int | Chase]


def greedy(clinic: GenerativeClinic, posterior_C: Array, open_F: NDArray[np.bool_], rng: np.random.Generator) -> int:  # noqa: ARG001  one signature
    """The open finding with the largest expected information gain."""
    return int(np.where(open_F, clinic.information_gain(posterior_C), -np.inf).argmax())


def at_random(clinic: GenerativeClinic, posterior_C: Array, open_F: NDArray[np.bool_], rng: np.random.Generator) -> int:  # noqa: ARG001  one signature
    """Any open finding."""
    return int(rng.choice(np.flatnonzero(open_F)))


def chased(
    clinic: GenerativeClinic,
    condition: Condition,
    open_F: NDArray[np.bool_],
    typicality: float,
    rng: np.random.Generator,
) -> int | None:
    """An open finding of a condition, drawn by its probability to the power `typicality` (infinite: the most typical one);
    None if none is open.
    """
    left = [
        (clinic.finding_index[finding_id], probability)
        for finding_id, probability in condition.findings.items()
        if open_F[clinic.finding_index[finding_id]]
    ]
    if not left:
        return None
    columns, probability_N = [column for column, _ in left], np.array([probability for _, probability in left])
    weight_N = (probability_N / probability_N.max()) ** typicality
    return columns[
        int(weight_N.argmax() if np.isinf(typicality) else rng.choice(len(columns), p=weight_N / weight_N.sum()))
    ]


def chasing(
    clinic: GenerativeClinic, mind_C: Array, open_F: NDArray[np.bool_], typicality: float, rng: np.random.Generator
) -> Chase:
    """A finding of one condition that came to mind (drawn from `mind_C`), typical ones first (`chased`); any open one
    if it has none left.
    """
    condition = clinic.conditions[int(rng.choice(len(mind_C), p=mind_C))]
    column = chased(clinic, condition, open_F, typicality, rng)
    return Chase(at_random(clinic, mind_C, open_F, rng) if column is None else column, condition.name)


def chase_turn(clinic: GenerativeClinic, chase: Chase, wordings: str) -> str:
    """A question turn in the grammar, after the thought of the illness; a doctor always asks for a finding in the first
    of its `wordings`, "train" or "test".
    """
    return question(clinic.findings[chase.column].doctor.of(wordings)[0], chase.condition, clinic.words)


def resident(random_share: float, *, aloud: bool, typicality: float = 1.0, unrelated_share: float = 0.0) -> Ask:
    """The resident's way of asking.

    Args:
        random_share: share of the questions that come from nowhere; the others chase an illness.
        aloud: whether it names the illness it chases in its thoughts.
        typicality: how much it prefers the illness's typical findings (`chased`).
        unrelated_share: share of the chases whose illness has nothing to do with the patient.
    """

    def ask(
        clinic: GenerativeClinic, posterior_C: Array, open_F: NDArray[np.bool_], rng: np.random.Generator
    ) -> int | Chase:
        if rng.random() < random_share:
            return at_random(clinic, posterior_C, open_F, rng)
        mind_C = np.full_like(posterior_C, 1 / len(posterior_C)) if rng.random() < unrelated_share else posterior_C
        chase = chasing(clinic, mind_C, open_F, typicality, rng)
        return chase if aloud else Chase(chase.column, None)

    return ask


def anchored(
    clinic: GenerativeClinic,
    opening: Sequence[int],
    typicality: float,
    unrelated_share: float,
    rng: np.random.Generator,
) -> Ask:
    """A resident with a fixed idea: it chases one illness, aloud, whatever it hears; drawn from the posterior of the
    opening or, in a share `unrelated_share`, from all.
    """
    count = len(clinic.conditions)
    idea = int(
        rng.integers(count) if rng.random() < unrelated_share else rng.choice(count, p=clinic.posterior(opening, {}))
    )
    mind_C = np.eye(count)[idea]
    return lambda clinic, posterior_C, open_F, rng: chasing(clinic, mind_C, open_F, typicality, rng)  # noqa: ARG005  one signature


@dataclass(kw_only=True)
class ReferenceDoctor:
    """Plays one consultation of a generative clinic: asks by a rule, diagnoses the likeliest condition on its last
    question.
    """

    clinic: GenerativeClinic
    case: Case
    ask: Ask
    questions: int  # how many it asks before it diagnoses
    rng: np.random.Generator
    wordings: str = "train"  # which question wordings it uses, "train" or "test"
    answers: dict[int, bool] = field(default_factory=dict)
    # columns it asked for, in order; one that a reluctant patient withheld stays open
    tried: list[int] = field(default_factory=list)
    asked: int = 0

    def turn(self) -> str:
        """The next doctor turn, in the grammar."""
        if self.asked >= self.questions:
            condition = self.clinic.conditions[int(self.posterior().argmax())]
            return diagnosis(condition.name, condition.next_steps[0], self.clinic.words)
        chosen = self.ask(self.clinic, self.posterior(), self._open(), self.rng)
        chase = chosen if isinstance(chosen, Chase) else Chase(chosen, None)
        self.tried.append(chase.column)
        self.asked += 1
        return chase_turn(self.clinic, chase, self.wordings)

    def hear(self, event: Event) -> None:
        """Take note of the answer to the last question, as the consultation recorded it."""
        if not isinstance(event, Inquiry):
            return
        if event.withheld:
            self.tried.pop()
        elif event.topic is not None:
            self.learn(event.topic, bool(event.present))

    def learn(self, topic: str, present: bool) -> None:
        """Take note of a finding."""
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


class Doctor(Protocol):
    """A scripted doctor: it says turns in the grammar and hears what was answered."""

    def turn(self) -> str:
        """The next doctor turn."""
        ...

    def hear(self, event: Event) -> None:
        """Take note of the answer to the last question."""
        ...
