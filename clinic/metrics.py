"""Measures of recorded consultations, with 95% intervals, and the paired comparison of two doctors.

Accuracy is the exact condition (name or synonym); accepted parents are counted apart. Every figure is a mean over the
consultations that were played; those that were not are missing, by name and with the reason.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from clinic import intervals
from clinic.cases import QUESTIONS, Case
from clinic.diagnoses import is_placed, relation
from clinic.events import Asked, Diagnosed, Event, Searched, final_diagnosis, one_by_one, told_topics
from clinic.generative import Condition
from clinic.library import names_condition
from clinic.matching import normalise
from clinic.rewards.base import missed_red_flags
from clinic.tables import Comparison, DoctorTable, Interval, McNemar, Summary

Row = dict[str, float | None]


@dataclass(frozen=True)
class Missing:
    """In place of a row: why a consultation says nothing of the doctor."""

    reason: str


WITHOUT_A_TURN = Missing("without a turn")
MEASURES = (
    "accuracy",
    "accepted_parent",
    "top3",
    "reward",
    "turns",
    "tokens",
    "valid_question_rate",
    "fact_recall",
    "red_flags_missed",
    "searches",
    "searches_found",
    "searches_repeated",
    "recommendation",
    "judge_diagnosis",
    "judge_recommendation",
    "combined",
    "dei",
    "unplaced",
)
PROPORTIONS = frozenset({"accuracy", "accepted_parent", "top3", "unplaced"})  # 0 or 1 of a consultation
UNLIMITED = frozenset({"reward", "turns", "tokens", "searches"})  # all others lie in [0, 1]
TURN_WEIGHT, TOKEN_WEIGHT = 1.0, 0.01  # alpha and beta of DEI
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")


def measure(
    case: Case,
    events: Sequence[Event],
    reward: float | None,
    tokens: int | None,
    ranking: Sequence[str],
    verdict: Mapping[str, float] | None = None,
    diseases: Collection[str] | None = None,
) -> Row | Missing:
    """The measures of one consultation; missing, if there was no room for a turn.

    Args:
        case: who was seen.
        events: one per doctor turn.
        reward: of the episode; None if it was not scored.
        tokens: tokens the doctor sampled; None for a doctor that is no language model.
        ranking: condition names, likeliest first, from what was heard, the answer given before all others
            (`answer_first`); empty if unknown.
        verdict: the evaluation judge's diagnosis and recommendation, each in [0, 1]; None without a judge or where it
            failed.
        diseases: keys of the names of all diseases of the run (`keys_of`); None: answers are not placed among them.

    Returns:
        accuracy, accepted_parent, top3, each 0 or 1 (None for a single-turn question); unplaced: 1 if the answer is a
        name that no rule knows (None without an answer); reward; turns: doctor turns, the
        diagnosis included; tokens;
        valid_question_rate: questions that the patient could answer and had not yet answered / questions asked (None if
        none was asked); fact_recall: present facts told, opening included / present facts; red_flags_missed: present red
        flags of an urgent case that were never brought up / those it has (None if it has none); searches, and of these
        (None without one) searches_found: the share that showed a passage which names the condition, and
        searches_repeated; recommendation: ROUGE-L of
        the recommendation and the case's; judge_diagnosis, judge_recommendation;
        combined: [(ROUGE-L of diagnosis + of recommendation) / 2 + (the judge's two verdicts) / 2] / 2; dei: combined²
        / (turns + 0.01 x tokens per turn).

    Source: combined and DEI, evaluation code of DoctorAgent-RL, commit 9db6377 (its judge's 0 to 5 is here / 5).
    """
    if not events:
        return WITHOUT_A_TURN
    last = final_diagnosis(events)
    named, advised = (last.diagnosis, last.recommendation) if last else ("", "")
    advice = rouge_l(advised, case.recommendation) if case.recommendation else None
    given = verdict if case.source != QUESTIONS else None
    combined = _combined(rouge_l(named, case.diagnosis), advice or 0.0, given) if given else None
    return {
        **_right(case, last, ranking, diseases),
        "reward": reward,
        "turns": float(len(events)),
        "tokens": None if tokens is None else float(tokens),
        **_asking(case, events),
        **searching(case, events),
        "recommendation": advice,
        "judge_diagnosis": verdict["diagnosis"] if verdict else None,
        "judge_recommendation": verdict["recommendation"] if verdict else None,
        "combined": combined,
        "dei": combined**2 / (TURN_WEIGHT * len(events) + TOKEN_WEIGHT * tokens / len(events))
        if combined is not None and tokens is not None
        else None,
    }


def _right(case: Case, last: Diagnosed | None, ranking: Sequence[str], diseases: Collection[str] | None) -> Row:
    single = case.source == QUESTIONS
    named = last.diagnosis if last else ""
    graded = relation(case, named) if last else "other"
    return {
        "accuracy": None if single else float(graded == "exact"),
        "accepted_parent": None if single else float(graded in ("exact", "parent")),
        "top3": float(any(relation(case, name) == "exact" for name in ranking[:3])) if ranking else None,
        "unplaced": None if not last or single or diseases is None else float(not placed(case, named, diseases)),
    }


def _asking(case: Case, events: Sequence[Event]) -> Row:
    questions = [event for event in one_by_one(events) if isinstance(event, Asked)]
    valid = sum(event.topic is not None and not event.repeated for event in questions)
    present = {fact.topic for fact in case.facts if fact.present}
    told = (set(case.opening) | told_topics(events)) & present
    flags = present.intersection(case.red_flags) if case.urgent else frozenset()
    return {
        "valid_question_rate": valid / len(questions) if questions else None,
        "fact_recall": len(told) / len(present) if present and case.source != QUESTIONS else None,
        "red_flags_missed": len(missed_red_flags(case, events)) / len(flags) if flags else None,
    }


def searching(case: Case, events: Sequence[Event]) -> Row:
    """How often the knowledge base was searched, and what came of it; see `measure`."""
    searches = [event for event in events if isinstance(event, Searched)]
    found = sum(any(names_condition(case, one) for one in search.passages) for search in searches)
    repeated = sum(search.repeated for search in searches)
    return {
        "searches": float(len(searches)),
        "searches_found": found / len(searches) if searches else None,
        "searches_repeated": repeated / len(searches) if searches else None,
    }


def answer_first(ranking: Sequence[Condition], named: str | None) -> list[str]:
    """Names of ranked conditions after the answer that was given, which is not named twice; without an answer, theirs."""
    if named is None:
        return [condition.name for condition in ranking]
    return [named, *(condition.name for condition in ranking if relation(condition, named) != "exact")]


def placed(case: Case, named: str, diseases: Collection[str]) -> bool:
    """Whether an answer is a known name: right, accepted, or that of another disease of the run. What is none of these
    counts as wrong, and may be a right name that no rule understands.
    """
    return relation(case, named) != "other" or is_placed(named, diseases)


def _combined(diagnosis: float, advice: float, verdict: Mapping[str, float]) -> float:
    words, judgement = (diagnosis + advice) / 2, (verdict["diagnosis"] + verdict["recommendation"]) / 2
    return (words + judgement) / 2


def words_of(text: str) -> list[str]:
    """The words of a text, in Chinese its characters."""
    return _WORD.findall(normalise(text))


def rouge_l(given: str, true: str) -> float:
    """ROUGE-L: F1 of the longest common subsequence of words (of characters, in Chinese), in [0, 1]; 0 if either is
    empty.

    Source: Lin, "ROUGE: a package for automatic evaluation of summaries", 2004, with beta 1.
    """
    a, b = words_of(given), words_of(true)
    lengths = [0] * (len(b) + 1)
    for word in a:
        diagonal = 0
        for j, other in enumerate(b, start=1):
            diagonal, lengths[j] = lengths[j], diagonal + 1 if word == other else max(lengths[j], lengths[j - 1])
    return 2 * lengths[-1] / (len(a) + len(b)) if lengths[-1] else 0.0


def summarise(played: Mapping[str, Row | Missing], max_missing_share: float) -> Summary:
    """Mean and 95% interval of every measure.

    Args:
        played: case id -> its row, or why there is none.
        max_missing_share: with more missing than this share, no measure is given: who could be played is no sample.

    Returns:
        A measure that no consultation has is None.
    """
    missing = {case_id: row.reason for case_id, row in played.items() if isinstance(row, Missing)}
    rows = [row for row in played.values() if not isinstance(row, Missing)]
    if len(missing) > max_missing_share * len(played):
        rows = []
    measures: dict[str, Interval | None] = {}
    for name in MEASURES:
        values = [value for row in rows if (value := row.get(name)) is not None]
        measures[name] = _interval(name, values) if values else None
    return Summary(len(played), measures, missing)


def _interval(name: str, values: Sequence[float]) -> Interval:
    if name in PROPORTIONS:
        return intervals.proportion(round(sum(values)), len(values))
    return intervals.mean(values) if name in UNLIMITED else intervals.mean(values, (0.0, 1.0))


def by_category(cases: Sequence[Case], rows: Sequence[Row | Missing], max_missing_share: float) -> DoctorTable:
    """`summarise` for all consultations, and for each category of cases."""
    groups: dict[str, dict[str, Row | Missing]] = {}
    for case, row in sorted(zip(cases, rows, strict=True), key=lambda pair: pair[0].category):
        groups.setdefault(case.category, {})[case.case_id] = row
    everyone = {case.case_id: row for case, row in zip(cases, rows, strict=True)}
    return DoctorTable(
        summarise(everyone, max_missing_share),
        {name: summarise(members, max_missing_share) for name, members in groups.items()},
    )


def paired(rows: Sequence[Row | Missing], others: Sequence[Row | Missing], max_missing_share: float) -> Comparison:
    """Two doctors on the same cases, in the same order: rows minus others, with 95% intervals, and McNemar's test where
    both have an accuracy. Cases that either misses are left out; with more of them than `max_missing_share`, nothing is
    compared.
    """
    pairs = [
        (one, other)
        for one, other in zip(rows, others, strict=True)
        if not isinstance(one, Missing) and not isinstance(other, Missing)
    ]
    if len(rows) - len(pairs) > max_missing_share * len(rows):
        return Comparison({}, None)
    measures: dict[str, Interval] = {}
    test = None
    for name in MEASURES:
        differences = [
            a - b for one, other in pairs if (a := one.get(name)) is not None and (b := other.get(name)) is not None
        ]
        if not differences:
            continue
        first, second = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
        if name in PROPORTIONS:
            measures[name] = intervals.difference(first, second, len(differences))
        else:
            measures[name] = intervals.mean(differences, (-math.inf, math.inf) if name in UNLIMITED else (-1.0, 1.0))
        if name == "accuracy":
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
