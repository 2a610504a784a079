"""Labelled questions that the patient of imported cases learns from and nobody is measured by: `patient_practice.jsonl`, to
patients of the public sets, and `patient_practice_invented.jsonl`, to patients that are in the file.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clinic.cases import Case
from clinic.understanding.matcher import QuestionMatcher
from clinic.understanding.record import record_of
from doctor.answer_fitting import Pairing
from doctor.calibration import CALIBRATION, read_lines
from doctor.patient_calibration import digest, untold_case

PUBLIC, INVENTED = CALIBRATION / "patient_practice.jsonl", CALIBRATION / "patient_practice_invented.jsonl"
Labelled = Sequence[tuple[str, frozenset[str]]]  # questions, and the topics of the facts that answer each


@dataclass(frozen=True, kw_only=True)
class Practised(Pairing):
    """A practice question, what its patient came for, and each fact under its heading."""

    complaint: str
    headed: Sequence[str]


def practised(cases: Mapping[str, Case]) -> list[Practised]:
    """All practice questions, but for those that only an examination or a test would answer.

    Args:
        cases: of the public sets, by id.
    """
    invented_too = (one for row in read_lines(INVENTED) for one in _of_case(*invented(row)))
    return [*practised_public(cases), *invented_too]


def practised_public(cases: Mapping[str, Case], of: Callable[[str], bool] = lambda _: True) -> Iterator[Practised]:
    """Of those, the questions to patients of the public sets, by the writers `of` whose names this is true."""
    asked: dict[str, list[tuple[str, frozenset[str]]]] = {}
    for row in (row for row in read_lines(PUBLIC) if of(row["writer"])):
        topics = frozenset(fact.topic for fact in cases[row["case_id"]].facts if digest(fact) in row["answers"])
        asked.setdefault(row["case_id"], []).append((row["question"], topics))
    for case_id, labelled in asked.items():
        yield from _of_case(cases[case_id], labelled)


def practised_patients() -> frozenset[str]:
    """Ids of the public cases of which a practice question asks."""
    return frozenset(row["case_id"] for row in read_lines(PUBLIC))


def invented(row: Mapping[str, Any]) -> tuple[Case, Labelled]:
    """A patient of `patient_practice_invented.jsonl`, and the questions to it."""
    case = untold_case(row["case"], "invented", "CC0-1.0", row["report"], [(head, text) for head, text in row["facts"]])
    return case, [(one["q"], frozenset(case.facts[n - 1].topic for n in one["answers"])) for one in row["questions"]]


def _of_case(case: Case, labelled: Labelled) -> Iterator[Practised]:
    told = QuestionMatcher(record_of(case))
    for question, topics in labelled:
        answers = np.array([topic in topics for topic in told.topics], dtype=np.bool_)
        if told.topics and (answers.any() or not topics):
            yield Practised(
                question=question,
                texts=told.texts,
                answers=answers,
                complaint=case.self_report,
                headed=told.headed,
            )
