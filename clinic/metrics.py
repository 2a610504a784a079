"""Measures of recorded consultations, with bootstrap intervals.

Accuracy is the exact condition (name or synonym); accepted parents are counted apart. Every figure is a mean over
consultations with a 95% percentile bootstrap interval over them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clinic.actions import Kind
from clinic.cases import Case
from clinic.matching import relation

Event = Mapping[str, Any]
Row = dict[str, float | None]
MEASURES = ("accuracy", "accepted_parent", "top3", "reward", "turns", "tokens", "valid_question_rate", "fact_recall")


def measure(case: Case, events: Sequence[Event], reward: float, tokens: int | None, ranking: Sequence[str]) -> Row:
    """The measures of one consultation.

    Args:
        case: who was seen.
        events: one per doctor turn.
        reward: of the episode.
        tokens: tokens the doctor sampled; None for a doctor that is no language model.
        ranking: condition names, likeliest first, from what was heard; empty if unknown.

    Returns:
        accuracy, accepted_parent, top3, each 0 or 1; reward; turns: doctor turns, the diagnosis included; tokens; valid_question_rate: questions
        that the patient could answer and had not yet answered / questions asked (None if none was asked); fact_recall: present facts told,
        opening included / present facts.
    """
    last = events[-1]
    verdict = relation(case, last["diagnosis"]) if last["kind"] == Kind.DIAGNOSIS else "other"
    questions = [event for event in events if event["kind"] == Kind.QUESTION]
    valid = sum(event["topic"] is not None and not event["repeated"] for event in questions)
    present = {fact.topic for fact in case.facts if fact.present}
    told = set(case.opening) | {event.get("topic") for event in events}
    return {
        "accuracy": float(verdict == "exact"),
        "accepted_parent": float(verdict in ("exact", "parent")),
        "top3": float(any(relation(case, name) == "exact" for name in ranking[:3])) if ranking else None,
        "reward": reward,
        "turns": float(len(events)),
        "tokens": None if tokens is None else float(tokens),
        "valid_question_rate": valid / len(questions) if questions else None,
        "fact_recall": len(told & present) / len(present) if present else None,
    }


def summarise(rows: Sequence[Row], resamples: int, seed: int) -> dict[str, dict[str, float] | None]:
    """Mean and 95% bootstrap interval of every measure; a measure that no consultation has is None."""
    summary: dict[str, dict[str, float] | None] = {}
    for name in MEASURES:
        values = np.array([row[name] for row in rows if row[name] is not None], dtype=np.float64)
        summary[name] = _interval(values, resamples, seed) if len(values) else None
    return summary


def _interval(values: np.ndarray, resamples: int, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    means = values[rng.integers(len(values), size=(resamples, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return {"mean": round(float(values.mean()), 4), "low": round(float(low), 4), "high": round(float(high), 4)}


def by_category(cases: Sequence[Case], rows: Sequence[Row], resamples: int, seed: int) -> dict[str, dict[str, Any]]:
    """`summarise` for all consultations under "overall", and for each category of cases."""
    groups: dict[str, list[Row]] = {"overall": list(rows)}
    for case, row in sorted(zip(cases, rows, strict=True), key=lambda pair: pair[0].category):
        groups.setdefault(case.category, []).append(row)
    return {name: {"cases": len(members), **summarise(members, resamples, seed)} for name, members in groups.items()}
