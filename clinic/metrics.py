"""Measures of recorded consultations, with bootstrap intervals, and the paired comparison of two doctors.

Accuracy is the exact condition (name or synonym); accepted parents are counted apart. Every figure is a mean over
consultations with a 95% percentile bootstrap interval over them.
"""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from clinic.cases import Case
from clinic.diagnoses import relation
from clinic.events import Asked, Event, final_diagnosis, told_topics
from clinic.matching import normalise
from clinic.questions import SOURCE as QUESTIONS
from clinic.tables import Comparison, DoctorTable, Interval, McNemar, Summary

Row = dict[str, float | None]
MEASURES = (
    "accuracy",
    "accepted_parent",
    "top3",
    "reward",
    "turns",
    "tokens",
    "valid_question_rate",
    "fact_recall",
    "recommendation",
    "judge_diagnosis",
    "judge_recommendation",
    "combined",
    "dei",
)
TURN_WEIGHT, TOKEN_WEIGHT = 1.0, 0.01  # alpha and beta of DEI
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")


def measure(
    case: Case,
    events: Sequence[Event],
    reward: float | None,
    tokens: int | None,
    ranking: Sequence[str],
    verdict: Mapping[str, float] | None = None,
) -> Row:
    """The measures of one consultation.

    Args:
        case: who was seen.
        events: one per doctor turn; none if the episode failed or had no room for a turn, which counts as a wrong
            diagnosis.
        reward: of the episode; None if it was not scored.
        tokens: tokens the doctor sampled; None for a doctor that is no language model.
        ranking: condition names, likeliest first, from what was heard; empty if unknown.
        verdict: the evaluation judge's diagnosis and recommendation, each in [0, 1]; None without a judge or where it
            failed.

    Returns:
        accuracy, accepted_parent, top3, each 0 or 1 (None for a single-turn question); reward; turns: doctor turns, the
        diagnosis included; tokens;
        valid_question_rate: questions that the patient could answer and had not yet answered / questions asked (None if
        none was asked); fact_recall: present facts told, opening included / present facts; recommendation: ROUGE-L of
        the recommendation and the case's; judge_diagnosis, judge_recommendation;
        combined: [(ROUGE-L of diagnosis + of recommendation) / 2 + (the judge's two verdicts) / 2] / 2; dei: combined²
        / (turns + 0.01 x tokens per turn).

    Source: combined and DEI, evaluation code of DoctorAgent-RL, commit 9db6377 (its judge's 0 to 5 is here / 5).
    """
    last = final_diagnosis(events)
    single = case.source == QUESTIONS
    named, advised = (last.diagnosis, last.recommendation) if last else ("", "")
    verdict_of = relation(case, named) if last else "other"
    questions = [event for event in events if isinstance(event, Asked)]
    valid = sum(event.topic is not None and not event.repeated for event in questions)
    present = {fact.topic for fact in case.facts if fact.present}
    told = set(case.opening) | told_topics(events)
    advice = rouge_l(advised, case.recommendation) if case.recommendation else None
    judged = verdict is not None and not single
    combined = _combined(rouge_l(named, case.diagnosis), advice or 0.0, verdict) if judged and verdict else None
    per_turn = tokens / len(events) if tokens is not None and events else None
    return {
        "accuracy": None if single else float(verdict_of == "exact"),
        "accepted_parent": None if single else float(verdict_of in ("exact", "parent")),
        "top3": float(any(relation(case, name) == "exact" for name in ranking[:3])) if ranking else None,
        "reward": reward,
        "turns": float(len(events)),
        "tokens": None if tokens is None else float(tokens),
        "valid_question_rate": valid / len(questions) if questions else None,
        "fact_recall": len(told & present) / len(present) if present and not single else None,
        "recommendation": advice,
        "judge_diagnosis": verdict["diagnosis"] if verdict else None,
        "judge_recommendation": verdict["recommendation"] if verdict else None,
        "combined": combined,
        "dei": combined**2 / (TURN_WEIGHT * len(events) + TOKEN_WEIGHT * per_turn)
        if combined is not None and per_turn is not None
        else None,
    }


def _combined(diagnosis: float, advice: float, verdict: Mapping[str, float]) -> float:
    words, judgement = (diagnosis + advice) / 2, (verdict["diagnosis"] + verdict["recommendation"]) / 2
    return (words + judgement) / 2


def rouge_l(given: str, true: str) -> float:
    """ROUGE-L: F1 of the longest common subsequence of words (of characters, in Chinese), in [0, 1]; 0 if either is
    empty.

    Source: Lin, "ROUGE: a package for automatic evaluation of summaries", 2004, with beta 1.
    """
    a, b = (_WORD.findall(normalise(text)) for text in (given, true))
    lengths = [0] * (len(b) + 1)
    for word in a:
        diagonal = 0
        for j, other in enumerate(b, start=1):
            diagonal, lengths[j] = lengths[j], diagonal + 1 if word == other else max(lengths[j], lengths[j - 1])
    return 2 * lengths[-1] / (len(a) + len(b)) if lengths[-1] else 0.0


def summarise(rows: Sequence[Row], resamples: int, seed: int) -> Summary:
    """Mean and 95% bootstrap interval of every measure; a measure that no consultation has is None."""
    measures: dict[str, Interval | None] = {}
    for name in MEASURES:
        values = np.array([row[name] for row in rows if row[name] is not None], dtype=np.float64)
        measures[name] = _interval(values, resamples, seed) if len(values) else None
    return Summary(len(rows), measures)


def _interval(values: np.ndarray, resamples: int, seed: int) -> Interval:
    rng = np.random.default_rng(seed)
    means = values[rng.integers(len(values), size=(resamples, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(round(float(values.mean()), 4), round(float(low), 4), round(float(high), 4))


def by_category(cases: Sequence[Case], rows: Sequence[Row], resamples: int, seed: int) -> DoctorTable:
    """`summarise` for all consultations, and for each category of cases."""
    groups: dict[str, list[Row]] = {}
    for case, row in sorted(zip(cases, rows, strict=True), key=lambda pair: pair[0].category):
        groups.setdefault(case.category, []).append(row)
    return DoctorTable(
        summarise(rows, resamples, seed),
        {name: summarise(members, resamples, seed) for name, members in groups.items()},
    )


def paired(rows: Sequence[Row], others: Sequence[Row], resamples: int, seed: int) -> Comparison:
    """Two doctors on the same cases, in the same order: rows minus others, with bootstrap intervals over cases, and
    McNemar's test where both have an accuracy.
    """
    measures: dict[str, Interval] = {}
    for name in MEASURES:
        differences = [
            a - b
            for one, other in zip(rows, others, strict=True)
            if (a := one[name]) is not None and (b := other[name]) is not None
        ]
        if differences:
            measures[name] = _interval(np.array(differences, dtype=np.float64), resamples, seed)
    test = None
    if "accuracy" in measures:
        first = sum((a["accuracy"] or 0) > (b["accuracy"] or 0) for a, b in zip(rows, others, strict=True))
        second = sum((a["accuracy"] or 0) < (b["accuracy"] or 0) for a, b in zip(rows, others, strict=True))
        test = McNemar(first, second, mcnemar(first, second))
    return Comparison(measures, test)


def mcnemar(first: int, second: int) -> float:
    """Exact two-sided McNemar test: how likely a split at least this uneven is, if either doctor is as likely to be the
    one that was right.

    Source: McNemar, Psychometrika 12:153 (1947), with the binomial distribution.
    """
    total = first + second
    tail = sum(math.comb(total, k) for k in range(min(first, second) + 1))
    return float(min(1.0, 2 * tail / 2**total))
