"""Single-turn medical questions as JSON lines: question_id, language, category, question, points (key points of a good
answer), licence.

Every question is a group of its own.
"""

from typing import Any

from clinic.cases import QUESTIONS, Case, Fact, Rejected
from clinic.config import CaseSource, SplitParams
from clinic.language import PHRASES
from clinic.loaders.records import BadRecord, collect, existing, lines, parse_line, text_at, value_at
from clinic.splits import split_of


def load(source: CaseSource, split: SplitParams) -> tuple[list[Case], list[Rejected]]:
    """Read the questions of one file; see `clinic.loaders.load_source`."""
    path = existing(source.path)
    return collect(path, lines(path), lambda line: _case(parse_line(line), source.licence, split))


def _case(record: Any, licence: str, split: SplitParams) -> Case:
    case_id, language = text_at(record, "question_id"), text_at(record, "language")
    points = value_at(record, "points")
    if (
        not isinstance(points, list)
        or not points
        or not all(isinstance(point, str) and point.strip() for point in points)
    ):
        raise BadRecord("field points is no list of key points")
    if language not in PHRASES:
        raise BadRecord(f"language {language!r} is not spoken here; use one of: {', '.join(PHRASES)}")
    return Case(
        case_id=case_id,
        group_id=case_id,
        split=split_of(case_id, split),
        source=QUESTIONS,
        licence=licence,
        language=language,
        category=text_at(record, "category"),
        persona="plain",
        self_report=text_at(record, "question"),
        opening=(),
        facts=tuple(Fact(f"point {i}", True, point.strip()) for i, point in enumerate(points, start=1)),
        diagnosis_id="",
        diagnosis="",
        synonyms=(),
        parents=(),
        recommendation="",
        urgent=False,
        red_flags=(),
        flags=(),
    )
