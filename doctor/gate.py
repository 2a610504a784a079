"""Whether a challenger takes the champion's place: two doctors on the same held-out cases, and what is asked of the new
one.

It must be right more often, by an exact test; and where accuracy does not look (red flags, turns, one category of cases)
it must be shown to be no worse than by a margin: the 95% interval of what it loses ends below it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import Any, Self

from clinic import intervals
from clinic.cases import Case
from clinic.metrics import Missing, Row, mcnemar
from doctor.parameters import RetrainParams

CHALLENGER, CHAMPION = "challenger", "champion"
# Two more cases that stand for what was not seen, as in the interval of Bonett and Price: one with all of a measure that
# lies in [0, 1] lost, one with all gained. Without them a rare loss that a few cases do not show leaves no width.
UNSEEN = {"red_flags_missed": (1.0, -1.0)}
Rows = Sequence[Row | Missing]


@dataclass(frozen=True)
class Check:
    """One thing asked of a challenger. `passed` is None where there are too few cases to say."""

    name: str
    figures: str
    passed: bool | None


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What came of a comparison, and by what. Made by `decide`; kept as JSON beside the registry."""

    promoted: bool
    reason: str
    cases: int  # compared
    excluded: int  # cases that either doctor had learned from
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()  # what else is to be known of it
    key: str = ""  # stands for all that it depends on
    against: str | None = None  # sha256 of the champion that was met, "" if there was none; None: nobody was met

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return vars(self) | {"checks": [vars(check) for check in self.checks]}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """The decision again."""
        checks = tuple(Check(**check) for check in stored["checks"])
        return cls(**{**stored, "checks": checks, "notes": tuple(stored.get("notes", ()))})


def decide(
    cases: Sequence[Case],
    challenger: Rows,
    champion: Rows,
    asked: RetrainParams,
    max_missing_share: float,
    excluded: int = 0,
    first: bool = False,
) -> Decision:
    """Compare two doctors, row by row.

    Args:
        cases: held-out ones, of any sources.
        challenger: its row for each case.
        champion: the same, or of whoever stands in for a champion where there is none.
        asked: bounds.
        max_missing_share: of the cases that either could not play; with more, the champion stays.
        excluded: cases that were left out beforehand, for the record.
        first: there is no champion yet; who stands in for it asks nothing, so that accuracy alone is compared.
    """
    pairs = [
        (case, one, other)
        for case, one, other in zip(cases, challenger, champion, strict=True)
        if not isinstance(one, Missing) and not isinstance(other, Missing) and one.get("accuracy") is not None
    ]
    kept = partial(Decision, promoted=False, cases=len(pairs), excluded=excluded)
    if (unplayed := len(cases) - len(pairs)) > max_missing_share * len(cases):
        return kept(reason=f"{unplayed} of {len(cases)} cases could not be played by both")
    if len(pairs) < asked.min_cases:
        return kept(reason=f"{len(pairs)} cases are too few (retrain.min_cases: {asked.min_cases})")
    checks = [_more_often_right(pairs, asked.level)]
    if not first:
        checks += _no_worse(pairs, "red_flags_missed", asked.red_flags_margin, asked.min_category_cases)
        checks += _no_worse(pairs, "turns", asked.turns_margin, 1)
        checks += _by_category(pairs, asked)
    failed = [check for check in checks if check.passed is False]
    reason = f"{failed[0].name}: {failed[0].figures}" if failed else f"better: {checks[0].figures}"
    return kept(promoted=not failed, reason=reason, checks=tuple(checks))


_Pairs = Sequence[tuple[Case, Row, Row]]


def _counts(pairs: _Pairs) -> tuple[int, int]:
    """Cases that the challenger alone, and that the champion alone, got right."""
    first = sum(bool(one["accuracy"]) and not other["accuracy"] for _, one, other in pairs)
    return first, sum(bool(other["accuracy"]) and not one["accuracy"] for _, one, other in pairs)


def _more_often_right(pairs: _Pairs, level: float) -> Check:
    first, second = _counts(pairs)
    ours, theirs = (
        [row["accuracy"] or 0.0 for row in side] for side in zip(*((a, b) for _, a, b in pairs), strict=True)
    )
    p, found = mcnemar(first, second), intervals.difference(first, second, len(pairs))
    figures = (
        f"accuracy {mean(ours):.3f} against {mean(theirs):.3f}, {found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}],"
        f" p = {p:.2g} (asked: below {level:g})"
    )
    return Check("right more often", figures, first > second and p < level)


def _no_worse(pairs: _Pairs, measure: str, margin: float, least: int) -> list[Check]:
    """Of a measure of which less is better; no check where no case has it."""
    differences = [
        a - b
        for _, one, other in pairs
        if (a := one.get(measure)) is not None and (b := other.get(measure)) is not None
    ]
    if not differences:
        return []
    name = measure.replace("_", " ")
    if len(differences) < least:
        return [Check(name, f"{len(differences)} cases are too few to say", None)]
    found = intervals.mean([*differences, *UNSEEN.get(measure, ())])
    figures = f"{mean(differences):+.3f} [{found.low:+.3f}, {found.high:+.3f}] in {len(differences)} cases (asked: ends below {margin:g})"
    return [Check(name, figures, bool(found.high <= margin))]


def _by_category(pairs: _Pairs, asked: RetrainParams) -> list[Check]:
    groups: dict[str, list[tuple[Case, Row, Row]]] = {}
    for pair in pairs:
        groups.setdefault(f"{pair[0].category} ({pair[0].source})", []).append(pair)
    sources = sorted({case.source for case, _, _ in pairs})
    if len(sources) > 1:
        groups |= {f"source {source}": [pair for pair in pairs if pair[0].source == source] for source in sources}
    checks = []
    for name, members in sorted(groups.items()):
        if len(members) < asked.min_category_cases:
            checks.append(Check(name, f"{len(members)} cases are too few to say", None))
            continue
        first, second = _counts(members)
        lost = intervals.difference(second, first, len(members))
        figures = f"accuracy {-lost.mean:+.3f} in {len(members)} cases, at most {lost.high:.3f} lost (asked: {asked.category_margin:g})"
        checks.append(Check(name, figures, bool(lost.high <= asked.category_margin)))
    return checks


def markdown(decision: Decision, promoted: bool, about: Mapping[str, str]) -> str:
    """A page about a decision.

    Args:
        decision: what was found.
        promoted: what came of it, after a person was asked.
        about: further lines of its head, by name: who met, links.
    """
    head = [f"# {'Promoted' if promoted else 'Not promoted'}", "", decision.reason, ""]
    head += [f"- {name}: {told}" for name, told in about.items()]
    head += [
        f"- cases: {decision.cases} held out"
        + (f", {decision.excluded} left out: learned from" if decision.excluded else "")
    ]
    head += [f"- {note}" for note in decision.notes]
    if not decision.checks:
        return "\n".join(head) + "\n"
    rows = [  # no table: its cells do not wrap in Prefect
        f"- **{'yes' if check.passed else 'no'}**, {check.name}: {check.figures}"
        for check in decision.checks
        if check.passed is not None
    ]
    few = [f"{check.name} ({check.figures.partition(' ')[0]})" for check in decision.checks if check.passed is None]
    left = ["", f"Too few cases to say: {', '.join(few)}."] if few else []
    return "\n".join([*head, "", "## Asked, and found", "", *rows, *left]) + "\n"
