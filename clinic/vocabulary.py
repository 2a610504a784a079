"""A disease vocabulary for imported cases: the diagnosis becomes an id, with synonyms and broader terms that count.

Read from a CSV of the columns doid, label, synonyms_exact and parents, "|" between several: a report of the Human
Disease Ontology, or one's own in the same shape. A case whose diagnosis or a synonym is in it, in whatever spelling
(`clinic.naming`), gets the class's id, its label and exact synonyms as names of the exact diagnosis, and its direct
parents as accepted broader terms; any other case stays as it was.

An ambiguous name is no name: what two terms are labelled, or two have as a synonym, finds neither; a synonym that is
another term's label, or in the bundled list another disease's name, or among the corrections there, is not taken over.
`Vocabulary.ambiguous` has them all.

Source: Schriml et al., Human Disease Ontology, disease-ontology.org (CC0 1.0).
"""

import csv
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clinic.cases import Case
from clinic.errors import ClinicError
from clinic.matching import normalise
from clinic.naming import group_of, keys, lexicon
from clinic.reading import readings

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
        """Index the terms: first by label, then by synonym, each as written and then by its forms."""
        labels = {normalise(term.label) for term in terms}
        self.ambiguous: dict[str, tuple[str, ...]] = {}  # name -> labels of the terms that bear it
        taken = [(term, tuple(name for name in term.synonyms if self._is_own(term, name, labels))) for term in terms]
        self._tiers = [
            self._index([(term, (term.label,)) for term in terms], _as_written),
            self._index(taken, _as_written),
            self._index([(term, (term.label,)) for term in terms], keys),
            self._index(taken, keys),
        ]
        self._synonyms = {
            term.term_id: tuple(name for name in names if normalise(name) not in self.ambiguous)
            for term, names in taken
        }

    def _is_own(self, term: Term, name: str, labels: Collection[str]) -> bool:
        """Whether a synonym names its term and nothing else that is known; noted if not."""
        group, own = group_of(name), group_of(term.label)
        corrected = normalise(name) in map(normalise, lexicon().corrections.get(term.label, ()))
        elsewhere = normalise(name) in labels and normalise(name) != normalise(term.label)
        if corrected or elsewhere or (group is not None and own is not None and group != own):
            self.ambiguous[normalise(name)] = (*self.ambiguous.get(normalise(name), ()), term.label)
            return False
        return True

    def _index(
        self, named: Iterable[tuple[Term, Sequence[str]]], forms: Callable[[str], Iterable[str]]
    ) -> dict[str, Term | None]:
        """Form -> its term; None where two terms share it."""
        found: dict[str, list[Term]] = defaultdict(list)
        for term, names in named:
            for form in {form for name in names for form in forms(name) if form}:
                found[form].append(term)
        if forms is not keys:
            self.ambiguous |= {
                form: tuple(t.label for t in bearers) for form, bearers in found.items() if len(bearers) > 1
            }
        return {form: bearers[0] if len(bearers) == 1 else None for form, bearers in found.items()}

    def __len__(self) -> int:
        """How many names it knows, as written."""
        return len(self._tiers[0].keys() | self._tiers[1].keys())

    def find(self, names: Sequence[str]) -> Term | None:
        """The term of the first of these names that it knows, each read as an answer would be; None for a name that
        two terms share.
        """
        for name in names:
            for reading in readings(name):
                written, formed = (normalise(reading.name),), keys(reading.name)
                for tier, forms in zip(self._tiers, (written, written, formed, formed), strict=True):
                    terms = {id(term): term for form in forms if form in tier and (term := tier[form]) is not None}
                    if len(terms) == 1:
                        return next(iter(terms.values()))
                    if any(form in tier for form in forms):
                        break  # ambiguous
        return None

    def synonyms(self, term: Term) -> tuple[str, ...]:
        """The term's synonyms that name no other."""
        return self._synonyms[term.term_id]


def read_vocabulary(path: Path) -> Vocabulary:
    """Read a vocabulary.

    Raises:
        ClinicError: the file is missing, lacks a column or has no term.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
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


def _as_written(name: str) -> tuple[str, ...]:
    return (normalise(name),)


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
    new = tuple(
        dict.fromkeys(name for name in (term.label, *vocabulary.synonyms(term)) if normalise(name) not in known)
    )
    return replace(
        case,
        diagnosis_id=term.term_id,
        synonyms=(*case.synonyms, *new),
        parents=tuple(dict.fromkeys((*case.parents, *(p for p in term.parents if not keys(p) & keys(term.label))))),
    )
