"""Train, validation and test by a salted hash of the group id.

The split of a group depends on nothing but its id and the salt, so it never changes when cases are added,
and anyone who draws a new case knows its split without a list.
"""

import hashlib
from collections.abc import Iterable

from clinic.config import SplitParams


def split_of(group_id: str, params: SplitParams) -> str:
    """The split of a group: the hash of salt and id, as a fraction of its range, falls in one of three intervals."""
    digest = hashlib.sha256(f"{params.salt}:{group_id}".encode()).digest()
    fraction = int.from_bytes(digest[:8], "big") / 2**64
    if fraction < params.test:
        return "test"
    return "validation" if fraction < params.test + params.validation else "train"


def group_of_facts(diagnosis_id: str, present_topics: Iterable[str]) -> str:
    """Group id of a generated case: two cases with the same condition and the same findings are duplicates."""
    text = diagnosis_id + "|" + ",".join(sorted(present_topics))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
