"""Train, validation and test by a salted hash of the group id.

The split of a group depends on nothing but its id and the salt, so it never changes when cases are added,
and anyone who draws a new case knows its split without a list.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

from clinic.cases import SPLITS, Case
from clinic.config import SplitParams
from clinic.errors import ClinicError


def split_of(group_id: str, params: SplitParams) -> str:
    """The split of a group: the hash of salt and id, as a fraction of its range, falls in one of three intervals."""
    fraction = _fraction(params.salt, group_id)
    if fraction < params.test:
        return "test"
    return "validation" if fraction < params.test + params.validation else "train"


def sampled(cases: Sequence[Case], count: int, salt: str) -> list[Case]:
    """A sample of cases, in their order: those with the smallest hashes of salt and id.

    A case that is added changes the sample by one case at most; of several sources each has its share, on average.
    """
    kept = {case.case_id for case in sorted(cases, key=lambda case: _fraction(f"{salt}:sample", case.case_id))[:count]}
    return [case for case in cases if case.case_id in kept]


def _fraction(*parts: str) -> float:
    """A hash as a number in [0, 1)."""
    return int.from_bytes(hashlib.sha256(":".join(parts).encode()).digest()[:8], "big") / 2**64


def refuse_empty_splits(cases: Sequence[Case]) -> None:
    """Stop where no case falls to one of the splits.

    Raises:
        ClinicError: so it is; the message says what to do.
    """
    if not cases:
        raise ClinicError(
            "patient_cases: there is no case at all; name a file under imported, or raise starter.cases, in params.yaml"
        )
    count = Counter(case.split for case in cases)
    together = max(Counter(case.group_id for case in cases).values())
    remedy = "add cases, raise its share under patient_cases.split in params.yaml, or choose another salt there"
    if together > 1 and together > len(cases) / 2:
        remedy = (
            f"{together} of them stay together, as near-duplicates or as one group; if they only share a template, "
            "raise patient_cases.near_duplicate in params.yaml (1.0: the same text alone)"
        )
    for name in SPLITS:
        if not count[name]:
            raise ClinicError(f"patient_cases: none of {len(cases)} cases falls to {name}; {remedy}")


def group_of_facts(diagnosis_id: str, present_topics: Iterable[str]) -> str:
    """Group id of a generated case: two cases with the same condition and the same findings are duplicates."""
    text = diagnosis_id + "|" + ",".join(sorted(present_topics))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
