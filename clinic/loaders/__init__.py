"""Imported case sets: one file per format, one registry line each. Every loader yields the same `Case`.

A source record that cannot become a case is returned as `Rejected` with its line and the reason; a file
that cannot be read at all is a `ClinicError`. Cases of a group fall to one split, by `clinic.splits`.
"""

from collections.abc import Callable

from clinic.cases import Case, Rejected
from clinic.config import CaseSource, SplitParams
from clinic.loaders import agentclinic, ddxplus, mtmeddialog, own, questions
from clinic.splits import sampled

Loader = Callable[[CaseSource, SplitParams], tuple[list[Case], list[Rejected]]]
LOADERS: dict[str, Loader] = {
    "agentclinic": agentclinic.load,
    "ddxplus": ddxplus.load,
    "mtmeddialog_cases": mtmeddialog.load_cases,
    "mtmeddialog_turns": mtmeddialog.load_turns,
    "own": own.load,
    "questions": questions.load,
}

GENERATED = frozenset({"ddxplus"})
"""Formats whose cases are drawn from probabilities, so that near-equal texts mean nothing."""


def load_source(source: CaseSource, split: SplitParams) -> tuple[list[Case], list[Rejected]]:
    """Read one imported case set.

    Args:
        source: format, file and licence; `cases` = how many to draw (ddxplus) or to keep, a sample by hash (others,
            0 = all).
        split: how groups fall to train, validation and test; its salt also chooses the sample.

    Returns:
        The cases in file order, and every record that did not become one.

    Raises:
        ClinicError: the file is missing or unreadable as a whole.
    """
    cases, rejected = LOADERS[source.format](source, split)
    if source.cases and source.format not in GENERATED:
        cases = sampled(cases, source.cases, split.salt)
    return cases, rejected
