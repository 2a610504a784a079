"""What the loaders share: lines in, cases and rejections out, and names of diagnoses."""

import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from clinic.cases import Case, Fact, Rejected, flag_opening
from clinic.errors import ClinicError, shortened
from clinic.matching import normalise

T = TypeVar("T")
UNCLASSIFIED = "unclassified"  # category of a source that has none
_ACRONYM = re.compile(r"\A(.*\S)\s*\(([A-Z][A-Za-z0-9]{1,7})\)\Z")


class BadRecord(ValueError):  # noqa: N818  it is a verdict on data, caught in `collect`
    """A source record cannot become a case; the message says why."""


def existing(path: str) -> Path:
    """The path, if a file is there.

    Raises:
        ClinicError: nothing is there.
    """
    if not Path(path).is_file():
        raise ClinicError(
            f"{path} does not exist; correct its path under patient_cases.imported in params.yaml or remove the entry"
        )
    return Path(path)


def damaged(path: Path, error: BaseException) -> ClinicError:
    """The one-line error for a file that is unreadable as a whole."""
    return ClinicError(
        f"{path} cannot be read ({' '.join(str(error).split()) or type(error).__name__}); fetch it again"
    )


def lines(path: Path, *, blank: bool = False) -> Iterator[tuple[int, bytes]]:
    """Number (from 1) and bytes of every line that is not blank, or of all; `.gz` files are unpacked.

    Raises:
        ClinicError: the file cannot be unpacked or read.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if blank or line.strip():
                    yield number, line
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, error) from error


def parse_line(line: bytes) -> Any:
    """One JSON line.

    Raises:
        BadRecord: it is not JSON, or not valid Unicode (lone surrogates included).
    """
    try:
        record = json.loads(line)
        json.dumps(record, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"not valid JSON: {' '.join(str(error).split())}") from error
    return record


def value_at(record: Any, *keys: str) -> Any:
    """The value at a path of keys; BadRecord if a field is missing."""
    for depth, key in enumerate(keys, start=1):
        if not isinstance(record, dict) or key not in record:
            raise BadRecord(f"field {'.'.join(keys[:depth])} is missing")
        record = record[key]
    return record


def text_at(record: Any, *keys: str) -> str:
    """The text at a path of keys, stripped; BadRecord if it is missing, no text or blank."""
    text = value_at(record, *keys)
    if not isinstance(text, str):
        raise BadRecord(f"field {'.'.join(keys)} is no text")
    if not text.strip():
        raise BadRecord(f"field {'.'.join(keys)} is empty")
    return text.strip()


def collect(
    path: Path,
    records: Iterable[tuple[int, T]],
    build: Callable[[T], Case],
    seen: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[Case], list[Rejected]]:
    """Build a case from every record; a bad one, and a second one with the same id, is rejected with its line. `seen`: ids
    of other files, and which.
    """
    cases: dict[str, Case] = {}
    first: dict[str, int] = {}  # line of each id
    rejected: list[Rejected] = []
    for number, record in records:
        try:
            case = build(record)
            if case.case_id in cases:
                raise BadRecord(f"case id {case.case_id!r} is used twice, first in line {first[case.case_id]}")
            if case.case_id in seen:
                raise BadRecord(f"case id {case.case_id!r} is used twice, first in {seen[case.case_id]}")
            cases[case.case_id], first[case.case_id] = flag_opening(case), number
        except BadRecord as error:
            rejected.append(Rejected(str(path), number, shortened(str(error))))
    return list(cases.values()), rejected


def facts_of(told: Sequence[tuple[str, str]]) -> tuple[Fact, ...]:
    """Facts from (heading, text) pairs, all present; topics as in `numbered`.

    Raises:
        BadRecord: there is none: such a patient has no answers.
    """
    if not told:
        raise BadRecord("the record holds no answer of the patient")
    return numbered([(heading, True, text) for heading, text in told])


def numbered(told: Sequence[tuple[str, bool, str]]) -> tuple[Fact, ...]:
    """Facts from (heading, present, text); a heading that comes more than once is numbered, so that topics are unique."""
    total = Counter(heading for heading, _, _ in told)
    count: Counter[str] = Counter()
    facts: dict[str, Fact] = {}
    for heading, present, text in told:
        topic = heading
        while total[heading] > 1 and (topic == heading or topic in facts or topic in total):
            count[heading] += 1
            topic = f"{heading} ({count[heading]})"
        facts[topic] = Fact(topic, present, text)
    return tuple(facts.values())


def names_of(diagnosis: str) -> tuple[str, ...]:
    """The name without a trailing acronym, then the acronym: "Chronic lymphocytic leukemia (CLL)" gives two names,
    others one.
    """
    found = _ACRONYM.match(diagnosis)
    return (found[1], found[2]) if found else (diagnosis,)


def diagnosis_id(name: str) -> str:
    """A diagnosis name as an id: its words in lower case, joined by underscores.

    Raises:
        BadRecord: the name has no words.
    """
    words = normalise(name)
    if not words:
        raise BadRecord(f"diagnosis {name!r} has no words")
    return words.replace(" ", "_")
