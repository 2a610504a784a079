"""A clinic whose statistics are known: conditions, findings and P(finding | condition).

The generative story, in order: a condition is drawn by prevalence; one or two findings are drawn as opening
complaints, in proportion to P(finding | condition) times how likely people are to open with it; every
other finding is present or absent independently. Because the story is explicit, so is Bayes' posterior, and
with it the best diagnosis from any dialogue and the expected worth of any question.

Shapes: C conditions, F findings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from clinic.language import Phrases, phrases

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Wordings:
    """Sentences that mean the same, the test ones kept from every training text."""

    train: tuple[str, ...]
    test: tuple[str, ...]

    def of(self, split: str) -> tuple[str, ...]:
        """The sentences that a case of this split may use (validation uses the training ones)."""
        return self.test if split == "test" else self.train


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something a patient can confirm or deny when asked."""

    finding_id: str
    name: str
    complaint: float  # weight as an opening complaint
    background: float  # P(finding | condition that does not list it)
    patient: Wordings
    denial: Wordings
    doctor: Wordings


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A diagnosis with its vocabulary and the findings that go with it."""

    condition_id: str
    name: str
    specialty: str
    icd10: str
    synonyms: tuple[str, ...]
    parents: tuple[str, ...]
    prevalence: float
    urgent: bool
    red_flags: tuple[str, ...]
    next_steps: tuple[str, ...]
    findings: Mapping[str, float]
    rare: bool = False  # stands in the library alone: no base model and no warm start reads of it
    held_out: bool = False  # only test cases have it


@dataclass(frozen=True, eq=False)
class GenerativeClinic:
    """Conditions, findings and the probabilities between them. Made by `clinic.starter` or `clinic.loaders.ddxplus`.

    Equal to itself alone, so that it can be the key of what is remembered about it.
    """

    name: str
    conditions: tuple[Condition, ...]
    findings: tuple[Finding, ...]
    second_complaint: float  # P(the patient opens with two complaints)
    language: str = "en"  # of its names and wordings

    @property
    def words(self) -> Phrases:
        """The fixed phrases of its language."""
        return phrases(self.language)

    @cached_property
    def common(self) -> "GenerativeClinic":
        """The clinic without its rare conditions; itself if it has none."""
        kept = tuple(condition for condition in self.conditions if not condition.rare)
        return self if len(kept) == len(self.conditions) else replace(self, conditions=kept)

    @property
    def rare(self) -> "GenerativeClinic":
        """The clinic with its rare conditions alone."""
        return replace(self, conditions=tuple(condition for condition in self.conditions if condition.rare))

    @cached_property
    def condition_index(self) -> dict[str, int]:
        """Row of each condition id."""
        return {c.condition_id: i for i, c in enumerate(self.conditions)}

    @cached_property
    def finding_index(self) -> dict[str, int]:
        """Column of each finding id."""
        return {f.finding_id: i for i, f in enumerate(self.findings)}

    @cached_property
    def probability_CF(self) -> Array:  # noqa: N802  shape suffix
        """P(finding | condition), background filled in; float64 (C, F)."""
        table_CF = np.tile(np.array([f.background for f in self.findings]), (len(self.conditions), 1))
        for row, condition in enumerate(self.conditions):
            for finding_id, probability in condition.findings.items():
                table_CF[row, self.finding_index[finding_id]] = probability
        return np.asarray(np.clip(table_CF, 1e-4, 1 - 1e-4))

    @cached_property
    def prior_C(self) -> Array:  # noqa: N802  shape suffix
        """P(condition), from the prevalence weights; float64 (C,)."""
        weight_C = np.array([c.prevalence for c in self.conditions], dtype=np.float64)
        return np.asarray(weight_C / weight_C.sum())

    @cached_property
    def complaint_CF(self) -> Array:  # noqa: N802  shape suffix
        """P(first complaint | condition); float64 (C, F), rows sum to 1."""
        weight_CF = self.probability_CF * np.array([f.complaint for f in self.findings])
        return np.asarray(weight_CF / weight_CF.sum(axis=1, keepdims=True))

    @cached_property
    def log_prior_C(self) -> Array:  # noqa: N802  shape suffix
        """Log P(condition); float64 (C,)."""
        return np.asarray(np.log(self.prior_C))

    @cached_property
    def log_present_FC(self) -> Array:  # noqa: N802  shape suffix
        """Log P(finding | condition), a row for each finding; float64 (F, C)."""
        return np.stack([np.log(probability_C) for probability_C in self.probability_CF.T])

    @cached_property
    def log_absent_FC(self) -> Array:  # noqa: N802  shape suffix
        """Log P(no finding | condition), a row for each finding; float64 (F, C)."""
        return np.stack([np.log(1 - probability_C) for probability_C in self.probability_CF.T])

    def opening_log_likelihood(self, opening: Sequence[int]) -> Array:
        """Log P(opening complaints, in this order | condition); float64 (C,)."""
        first, *rest = opening
        log_C = np.log(self.complaint_CF[:, first])
        if not rest:
            return log_C + np.log(1 - self.second_complaint) if self.second_complaint < 1 else log_C
        second = rest[0]
        log_C = log_C + np.log(self.complaint_CF[:, second]) - np.log1p(-self.complaint_CF[:, first])
        return np.asarray(log_C + np.log(self.second_complaint))

    def posterior(self, opening: Sequence[int], answers: Mapping[int, bool]) -> Array:
        """Bayes' posterior over conditions given what a doctor has heard.

        Args:
            opening: columns of the complaints the patient opened with, in order; may be empty (no opening heard).
            answers: column -> present, for every other finding the doctor asked about.

        Returns:
            float64 (C,), sums to 1.
        """
        log_C = self.log_prior_C
        if opening:
            log_C = log_C + self.opening_log_likelihood(opening)
        for column, present in answers.items():
            if column not in opening:
                log_C = log_C + (self.log_present_FC if present else self.log_absent_FC)[column]
        weight_C = np.exp(log_C - log_C.max())
        return np.asarray(weight_C / weight_C.sum())

    def information_gain(self, posterior_C: Array, columns: Sequence[int] | slice = slice(None)) -> Array:
        """Expected drop of the posterior's entropy (nats) from asking each finding, or those of some columns; float64
        (F,).
        """
        probability_CF = self.probability_CF[:, columns]
        yes_F = posterior_C @ probability_CF
        joint_CF = posterior_C[:, None] * probability_CF
        after_yes_CF = joint_CF / yes_F
        after_no_CF = (posterior_C[:, None] - joint_CF) / (1 - yes_F)
        expected_F = yes_F * _entropy(after_yes_CF) + (1 - yes_F) * _entropy(after_no_CF)
        return np.asarray(_entropy(posterior_C[:, None])[0] - expected_F)

    def draw(self, rng: np.random.Generator) -> tuple[int, tuple[int, ...], NDArray[np.bool_]]:
        """Draw one patient: condition row, opening columns in order, presence of every finding (F,)."""
        row = int(rng.choice(len(self.conditions), p=self.prior_C))
        complaint_F = self.complaint_CF[row].copy()
        opening = [int(rng.choice(len(self.findings), p=complaint_F))]
        if rng.random() < self.second_complaint:
            complaint_F[opening[0]] = 0.0
            opening.append(int(rng.choice(len(self.findings), p=complaint_F / complaint_F.sum())))
        present_F = rng.random(len(self.findings)) < self.probability_CF[row]
        present_F[opening] = True
        return row, tuple(opening), present_F


def _entropy(p_CX: Array) -> Array:
    """Entropy over the first axis, nats."""
    p_CX = np.clip(p_CX, 1e-300, 1.0)
    return np.asarray(-(p_CX * np.log(p_CX)).sum(axis=0))
