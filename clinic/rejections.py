"""What was rejected, told: by reason with counts and first lines, and refused where it is too much of a file."""

import re
from collections.abc import Sequence
from pathlib import Path

from clinic.cases import Rejected
from clinic.errors import ClinicError

SHOWN = 5  # lines of a reason
_VALUE = re.compile(r"0x[0-9a-f]+|'[^']*'|\"[^\"]*\"|\d[\d.,]*")


def by_reason(rejected: Sequence[Rejected]) -> list[tuple[str, list[Rejected]]]:
    """Rejections of the same kind together, the commonest first; the kind is told in the words of the first of them."""
    kinds: dict[str, list[Rejected]] = {}
    for one in rejected:
        kinds.setdefault(_VALUE.sub("_", one.reason), []).append(one)
    return sorted(((found[0].reason, found) for found in kinds.values()), key=lambda kind: -len(kind[1]))


def told(path: str, rejected: Sequence[Rejected], records: int) -> list[str]:
    """What was rejected of a file with so many records, a line for each reason; none if nothing was."""
    if not rejected:
        return []
    return [
        f"{Path(path).name}: {len(rejected)} of {records} records are no cases",
        *(f"  {len(found)} x {_of_all(found)}{_lines(path, found)}" for _, found in by_reason(rejected)),
    ]


def _of_all(rejected: Sequence[Rejected]) -> str:
    """The reason of the first of a kind; where all differ in one value alone, with those of others."""
    reason = rejected[0].reason
    columns = list(zip(*(_VALUE.findall(one.reason) for one in rejected), strict=True))
    varied = [place for place, values in enumerate(columns) if len(set(values)) > 1]
    if len(varied) != 1:
        return reason
    values = list(dict.fromkeys(columns[varied[0]]))
    begin, end = list(_VALUE.finditer(reason))[varied[0]].span()
    return f"{reason[:begin]}{', '.join(values[:SHOWN])}{', ...' if len(values) > SHOWN else ''}{reason[end:]}"


def _lines(path: str, rejected: Sequence[Rejected]) -> str:
    more = ", ..." if len(rejected) > SHOWN else ""
    if not any(one.line for one in rejected):  # `contamination.LINE_UNKNOWN`
        return ""
    if Path(path).is_dir():
        return f" ({', '.join(f'{Path(one.path).relative_to(path)}:{one.line}' for one in rejected[:SHOWN])}{more})"
    return f" (line{'s' * (len(rejected) > 1)} {', '.join(str(one.line) for one in rejected[:SHOWN])}{more})"


def refuse_too_many(path: str, rejected: Sequence[Rejected], records: int, most: float) -> None:
    """Stop where more than the share `most` of a file's records are no cases.

    Raises:
        ClinicError: so it is; the message has the commonest reason.
    """
    if len(rejected) <= most * records:
        return
    reason, found = by_reason(rejected)[0]
    raise ClinicError(
        f"{Path(path).name}: {len(rejected)} of {records} records are no cases, more than patient_cases.max_rejected_share = {most:g}; "
        f"the commonest reason ({len(found)}): {reason}{_lines(path, found)}; mend the file or its mapping, or raise the share"
    )
