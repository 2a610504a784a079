"""Small sums over recorded consultations, shared by the stages that play them."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from clinic.cases import QUESTIONS, Case
from clinic.diagnoses import relation
from clinic.events import Asked, Ending, Event, Invalid, final_diagnosis, leaks_of, one_by_one, read_events
from clinic.metrics import searching
from clinic.patients.base import Matcher
from clinic.patients.fidelity import fidelity
from clinic.rewards import Scorer
from doctor.opinions import Opinions
from rl.experience import Scores, StopReason, Trajectory


def score_all(
    scorer: Scorer, cases: Sequence[Case], trajectories: Sequence[Trajectory], opinions: Opinions | None = None
) -> list[Scores]:
    """Score each trajectory against its case; a failed episode, and one whose opinion is missing, gets no component."""
    by_id = {case.case_id: case for case in cases}
    return [
        Scores(
            t.episode_id,
            tuple(scorer.score(by_id[t.case_id], read_events(t.events), t.stop_reason, opinion)) if t.played else (),
        )
        for t, opinion in zip(trajectories, opinions or [None] * len(trajectories), strict=True)
    ]


def right(case: Case, trajectory: Trajectory) -> bool:
    """Whether the consultation ended with the exact condition."""
    last = final_diagnosis(read_events(trajectory.events[-1:]))
    return last is not None and relation(case, last.diagnosis) == "exact"


def accuracy(cases: Sequence[Case], trajectories: Sequence[Trajectory]) -> float:
    """Share of consultations that ended with the exact condition; single-turn questions are none, and one without a
    turn or with a failed patient is missing, not wrong.

    NaN where there is no consultation.
    """
    patients = {case.case_id: case for case in cases if case.source != QUESTIONS}
    seen = [right(patients[t.case_id], t) for t in trajectories if t.case_id in patients and t.played]
    return sum(seen) / len(seen) if seen else float("nan")


def weighted_accuracy(cases: Sequence[Case], trajectories: Sequence[Trajectory], weights: Mapping[str, float]) -> float:
    """The mean of the sources' accuracies by their weights; without weights the share of all consultations."""
    found = accuracy_by_source(cases, trajectories)
    played = {name: value for name, value in found.items() if not math.isnan(value)}
    total = sum(weights[name] for name in played) if weights else 0.0
    if not total:
        return accuracy(cases, trajectories)
    return sum(weights[name] * value for name, value in played.items()) / total


def accuracy_by_source(cases: Sequence[Case], trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """The accuracy on each source of cases that was played, questions of one turn left out."""
    source = {case.case_id: case.source for case in cases}
    names = dict.fromkeys(name for t in trajectories if (name := source[t.case_id]) != QUESTIONS)
    return {name: accuracy(cases, [t for t in trajectories if source[t.case_id] == name]) for name in names}


def step_metrics(
    cases: Sequence[Case], trajectories: Sequence[Trajectory], scores: Sequence[Scores]
) -> dict[str, float]:
    """What one rollout step looked like: rewards by component, accuracy, actions, endings, lengths."""
    rewards = np.array([score.reward for score in scores if score.turns] or [np.nan])
    recorded = [read_events(t.events) for t in trajectories]
    events = [event for one in recorded for event in one]
    questions = [event for event in one_by_one(events) if isinstance(event, Asked)]
    metrics = {
        "reward/mean": float(rewards.mean()),
        "reward/max": float(rewards.max()),
        "reward/min": float(rewards.min()),
        "reward/std": float(rewards.std()),
        "rollout/accuracy": accuracy(cases, trajectories),
        "rollout/turns": float(np.mean([len(t.turns) for t in trajectories])),
        "rollout/sampled_tokens": float(np.mean([t.sampled_tokens for t in trajectories])),
        "rollout/episode_tokens": float(np.mean([len(t.token_ids) for t in trajectories])),
        "rollout/finished": float(np.mean([t.stop_reason == Ending.DIAGNOSED for t in trajectories])),
        "rollout/failed": float(np.mean([t.stop_reason == StopReason.FAILED for t in trajectories])),
        "rollout/without_turn": float(np.mean([not t.turns for t in trajectories])),
        "rollout/unscored": float(np.mean([not score.turns for score in scores])),
        "rollout/leaks": float(np.mean([leaks_of(one) for one in recorded])),
        "rollout/valid_actions": 1 - sum(isinstance(event, Invalid) for event in events) / max(len(events), 1),
        "rollout/valid_questions": sum(q.topic is not None and not q.repeated for q in questions)
        / max(len(questions), 1),
    }
    metrics |= _searches(cases, trajectories, recorded)
    scored = [score for score in scores if score.turns]
    names = {name for score in scored for turn in score.turns for name in turn}
    for name in sorted(names):
        metrics[f"reward/{name}"] = float(
            np.mean([sum(turn.get(name, 0.0) for turn in score.turns) for score in scored])
        )
    return metrics


def _searches(
    cases: Sequence[Case], trajectories: Sequence[Trajectory], recorded: Sequence[Sequence[Event]]
) -> dict[str, float]:
    """Searches an episode; of the searches the share that found the condition, and the share of repeats."""
    by_id = {case.case_id: case for case in cases}
    rows = [searching(by_id[t.case_id], events) for t, events in zip(trajectories, recorded, strict=True)]
    count = [row["searches"] or 0.0 for row in rows]
    total = sum(count)
    return {"rollout/searches": total / max(len(rows), 1)} | {
        f"rollout/{name}": sum(n * (row[name] or 0.0) for n, row in zip(count, rows, strict=True)) / max(total, 1)
        for name in ("searches_found", "searches_repeated")
    }


def patient_metrics(
    cases: Sequence[Case], trajectories: Sequence[Trajectory], matchers: Mapping[str, Matcher]
) -> dict[str, float]:
    """How true to the record the patients were (`clinic.patients.fidelity`)."""
    by_id = {case.case_id: case for case in cases}
    measures = fidelity(((by_id[t.case_id], read_events(t.events)) for t in trajectories), matchers)
    return {f"patient/{name}": value for name, value in measures.items()}
