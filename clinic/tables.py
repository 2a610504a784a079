"""Evaluation tables: doctors by category of cases, comparisons of two doctors, notes on patients.

`clinic.metrics` makes their figures.

Made by `evaluate_doctor`, which stores them as JSON; read by the page, the record and the reports. `to_json` and
`from_json` are the only places that know the layout of the file.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

OVERALL = "overall"
PATIENTS_OF = "patients of "
FEW = 20  # with fewer cases the interval of a share is up to .4 wide: too wide to compare by


@dataclass(frozen=True)
class Interval:
    """A mean over consultations with its 95% interval (`clinic.intervals`)."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Summary:
    """The measures of a set of consultations; where too many are missing, it has none (`clinic.metrics.summarise`)."""

    cases: int  # the missing ones included
    measures: Mapping[str, Interval | None]  # None: no consultation has it
    missing: Mapping[str, str] = field(default_factory=dict)  # case id -> why its consultation says nothing

    @property
    def accuracy(self) -> Interval | None:
        """Share of exact diagnoses; None where there is nothing to diagnose."""
        return self.measures.get("accuracy")

    @property
    def few(self) -> bool:
        """Whether it rests on too few cases to compare by."""
        return self.cases - len(self.missing) < FEW

    @property
    def withheld(self) -> str | None:
        """Why it is not shown as numbers, "n/a: 12% without a turn"; None if it is."""
        if not self.missing or any(self.measures.values()):
            return None
        return "n/a: " + ", ".join(f"{100 * share:.3g}% {reason}" for reason, share in self.missing_shares)

    @property
    def missing_shares(self) -> list[tuple[str, float]]:
        """Why consultations are missing, by name, and the share of all cases that each reason took."""
        return [(why, count / self.cases) for why, count in sorted(Counter(self.missing.values()).items())]

    def mean(self, measure: str) -> float:
        """Its mean; NaN where no consultation has it."""
        found = self.measures.get(measure)
        return found.mean if found else math.nan

    def to_json(self) -> dict[str, Any]:
        """As JSON values; `missing` only where there is any."""
        measures = {name: vars(found) if found else None for name, found in self.measures.items()}
        return {"cases": self.cases, **({"missing": dict(self.missing)} if self.missing else {}), **measures}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """The summary again."""
        measures = {name: found for name, found in stored.items() if name not in ("cases", "missing")}
        return cls(
            stored["cases"],
            {name: Interval(**found) if found else None for name, found in measures.items()},
            stored.get("missing", {}),
        )


@dataclass(frozen=True)
class DoctorTable:
    """One doctor on all cases of a source, and on each category of them."""

    overall: Summary
    categories: Mapping[str, Summary]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            OVERALL: self.overall.to_json(),
            **{name: summary.to_json() for name, summary in self.categories.items()},
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """The table again."""
        return cls(
            Summary.from_json(stored[OVERALL]),
            {name: Summary.from_json(summary) for name, summary in stored.items() if name != OVERALL},
        )


@dataclass(frozen=True)
class McNemar:
    """The cases that only one of two doctors got right, and the exact two-sided test of their difference."""

    only_first: int
    only_second: int
    p: float


@dataclass(frozen=True)
class Comparison:
    """Two doctors on the same cases: first minus second, for every measure that both have."""

    measures: Mapping[str, Interval]
    mcnemar: McNemar | None  # of their accuracies

    def to_json(self) -> dict[str, Any]:
        """As JSON values; the test stands with the difference in accuracy."""
        stored = {name: dict(vars(difference)) for name, difference in self.measures.items()}
        if self.mcnemar:
            stored["accuracy"] |= vars(self.mcnemar)
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """The comparison again."""
        by = stored.get("accuracy", {})
        test = McNemar(by["only_first"], by["only_second"], by["p"]) if "p" in by else None
        return cls({name: Interval(found["mean"], found["low"], found["high"]) for name, found in stored.items()}, test)


@dataclass(frozen=True)
class Evaluation:
    """All tables of an evaluation, by name."""

    doctors: Mapping[str, DoctorTable] = field(default_factory=dict)
    comparisons: Mapping[str, Comparison] = field(default_factory=dict)
    patients: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by the doctor who saw them

    def __or__(self, other: "Evaluation") -> "Evaluation":
        """Both; of two tables with the same name the other's."""
        return Evaluation(
            {**self.doctors, **other.doctors},
            {**self.comparisons, **other.comparisons},
            {**self.patients, **other.patients},
        )

    @property
    def accuracies(self) -> dict[str, Interval]:
        """On all cases of a source, of the doctors that have one."""
        return {name: accuracy for name, table in self.doctors.items() if (accuracy := table.overall.accuracy)}

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        tables: Mapping[str, DoctorTable | Comparison] = {**self.doctors, **self.comparisons}
        notes = {PATIENTS_OF + name: dict(found) for name, found in self.patients.items()}
        return {name: table.to_json() for name, table in tables.items()} | notes

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """The tables again."""
        doctors = {name: DoctorTable.from_json(table) for name, table in stored.items() if OVERALL in table}
        patients = {
            name.removeprefix(PATIENTS_OF): table for name, table in stored.items() if name.startswith(PATIENTS_OF)
        }
        others = {
            name: Comparison.from_json(table)
            for name, table in stored.items()
            if OVERALL not in table and not name.startswith(PATIENTS_OF)
        }
        return cls(doctors, others, patients)
