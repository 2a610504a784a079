"""A disease vocabulary for imported cases: the diagnosis becomes an id, with synonyms and broader terms that count.

Read from a CSV of the columns doid, label, synonyms_exact and parents, "|" between several: a report of the Human
Disease Ontology, or one's own in the same shape. A case whose diagnosis or a synonym is in it, whatever its case and
punctuation, gets the class's id, its label and exact synonyms as names of the exact diagnosis, and its direct parents
as accepted broader terms; any other case stays as it was.

Source: Schriml et al., Human Disease Ontology, disease-ontology.org (CC0 1.0).
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clinic.cases import Case
from clinic.errors import ClinicError
from clinic.matching import normalise

COLUMNS = ("doid", "label", "synonyms_exact", "parents")
TOO_WIDE = frozenset(
    {"disease", "syndrome", "disease of anatomical entity", "disease by infectious agent", "genetic disease"}
)
"""Classes so high up that naming them tells nothing; they are no accepted parents."""


@dataclass(frozen=True)
class Term:
    """One disease of a vocabulary."""

    term_id: str
    label: str
    synonyms: tuple[str, ...]
    parents: tuple[str, ...]


class Vocabulary:
    """Diseases by any of their names."""

    def __init__(self, terms: Sequence[Term]) -> None:
        """Index the terms; where two share a name, a label wins over a synonym, then the first."""
        self._by_name: dict[str, Term] = {}
        for names_of in (lambda term: (term.label,), lambda term: term.synonyms):
            for term in terms:
                for name in names_of(term):
                    self._by_name.setdefault(normalise(name), term)

    def __len__(self) -> int:
        """How many names it knows."""
        return len(self._by_name)

    def find(self, names: Sequence[str]) -> Term | None:
        """The term of the first of these names that it knows."""
        return next((self._by_name[key] for name in names if (key := normalise(name)) in self._by_name), None)


def read_vocabulary(path: Path) -> Vocabulary:
    """Read a vocabulary.

    Raises:
        ClinicError: the file is missing, lacks a column or has no term.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows: list[Mapping[str, str | None]] = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ClinicError(
            f"{path} cannot be read ({' '.join(str(error).split())}); correct patient_cases.vocabulary in params.yaml or set it to null"
        ) from error
    if not rows or any(rows[0].get(column) is None for column in COLUMNS):
        raise ClinicError(f"{path} is no vocabulary: it needs the columns {', '.join(COLUMNS)} and at least one row")
    return Vocabulary(
        [
            Term(
                str(row["doid"]),
                str(row["label"]),
                _several(row["synonyms_exact"]),
                tuple(p for p in _several(row["parents"]) if p not in TOO_WIDE),
            )
            for row in rows
            if row["label"]
        ]
    )


def _several(cell: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (cell or "").split("|") if part.strip())


def with_vocabulary(case: Case, vocabulary: Vocabulary) -> Case:
    """The case with id, synonyms and parents of its disease, as it was if the vocabulary does not know it; own synonyms
    come first.
    """
    term = vocabulary.find((case.diagnosis, *case.synonyms))
    if term is None:
        return case
    known = {normalise(name) for name in (case.diagnosis, *case.synonyms)}
    new = tuple(dict.fromkeys(name for name in (term.label, *term.synonyms) if normalise(name) not in known))
    return replace(
        case,
        diagnosis_id=term.term_id,
        synonyms=(*case.synonyms, *new),
        parents=tuple(dict.fromkeys((*case.parents, *term.parents))),
    )
