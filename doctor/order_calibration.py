"""How well orders of examinations and tests find their results on record: data/calibration/orders_*.jsonl.

A row holds a source, a case id, an order and `answers`: digests (`digest`) of all results that it should bring, none where it
is off the record.

    right     results came, and none that was not ordered
    wrong     one came that was not ordered
    unknown   none came
    whole     of the results ordered, the share that came (no more than one order brings)
    invented  off the record, one came all the same
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clinic.cases import Case, Fact
from clinic.patients.base import Tests, test_matcher
from clinic.understanding.examinations import MOST
from doctor.calibration import CALIBRATION, read_lines
from doctor.patient_calibration import cases_of, chinese_cases

HALVES = ("open", "third", "sealed", "fourth")
SHARES = ("right", "wrong", "unknown", "whole", "invented")


def digest(fact: Fact) -> str:
    """A result as 12 hexadecimal digits; the heading counts, for many say no more than "normal"."""
    return hashlib.sha256(f"{fact.topic}\n{fact.text}".encode()).hexdigest()[:12]


def found_by(
    rows: Sequence[Mapping[str, Any]], cases: Mapping[str, Case], matcher: Callable[[Case], Tests] = test_matcher
) -> dict[str, float]:
    """Shares of the labelled orders, see the head of this module, and how many are on record and off it.

    Args:
        rows: labelled orders to cases in `cases`.
        cases: by id.
        matcher: orders to the results of one case.
    """
    on: list[tuple[set[str], set[str]]] = []
    off: list[set[str]] = []
    for row in rows:
        case = cases[row["case_id"]]
        told = set(matcher(case)(row["order"]))
        labelled = {fact.topic for fact in case.facts if digest(fact) in row["answers"]}
        if row["answers"]:
            on.append((told, labelled))
        else:
            off.append(told)
    n = max(len(on), 1)
    return {
        "on_record": len(on),
        "off_record": len(off),
        "right": sum(bool(told) and told <= labelled for told, labelled in on) / n,
        "wrong": sum(bool(told - labelled) for told, labelled in on) / n,
        "unknown": sum(not told for told, _ in on) / n,
        "whole": sum(len(told & labelled) / min(len(labelled), MOST) for told, labelled in on) / n,
        "invented": sum(map(bool, off)) / max(len(off), 1),
    }


def order_lines(folder: Path) -> list[str]:
    """A line for each half.

    Args:
        folder: of the public case sets.

    Raises:
        ParameterError: a set is not in the folder.
    """
    cases = cases_of(folder)
    return [_line(half, cases) for half in HALVES]


def chinese_order_lines() -> list[str]:
    """The same for the Chinese halves, whose cases are in the repository."""
    return [_line(f"zh_{half}", chinese_cases(f"third {half}")) for half in ("open", "sealed")]


def _line(half: str, cases: Mapping[str, Case]) -> str:
    found = found_by(read_lines(CALIBRATION / f"orders_{half}.jsonl"), cases)
    shares = ", ".join(f"{name} {found[name]:.3f}" for name in SHARES)
    return f"{half:<9} {shares} ({found['on_record']:.0f} on record, {found['off_record']:.0f} off)"
