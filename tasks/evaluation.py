"""Tasks of `evaluate_doctor`: policies and reference doctors on held-out cases, one table with intervals."""

import csv
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from prefect import task
from prefect.cache_policies import NO_CACHE

from clinic import doctors
from clinic.cases import Case, read_cases
from clinic.consultation import RANDOM_BUDGET, Consultation
from clinic.dialogues import at_once, chart_opening
from clinic.errors import ClinicError
from clinic.metrics import Row, by_category, measure
from clinic.patients.scripted import ScriptedPatient
from clinic.rewards import Scorer
from rl.experience import Scores, Trajectory, write_scores, write_trajectories
from rl.ranking import continuation_logprobs
from rl.rollout import EpisodeSpec
from rl.workers.local import Session
from tasks.consultations import score_all
from tasks.parameters import Params
from tasks.warm_start import diagnosis_turns
from tasks.wiring import Waiting, open_waiting_room

log = logging.getLogger(__name__)
EVALUATION_STEP = -2  # the step in the noise key of evaluation episodes, the same for every policy


class Ward:
    """Everything an evaluation needs: held-out cases, rules and scorer. Not a dataclass, so that Prefect passes it on without walking through it."""

    def __init__(self, params: Params, cases: Sequence[Case], waiting: Waiting) -> None:
        """Args: parameters, test cases, how to seat them."""
        self.params, self.cases, self.waiting = params, tuple(cases), waiting
        self.scorer = Scorer(params.reward, [waiting.clinic])

    @property
    def budget(self) -> int:
        """Doctor turns per consultation; a random budget is evaluated at its largest."""
        return self.params.consultation.turn_budget if self.params.consultation.turn_budget != -1 else RANDOM_BUDGET[1]


Table = dict[str, dict[str, Any]]


def open_ward(params: Params, cases: Path, index: Path) -> Ward:
    """Load the test cases of the generative clinic (the Bayes references need its statistics)."""
    waiting = open_waiting_room(params, index)
    held_out = [case for case in read_cases(cases / "cases.parquet", "test") if case.source == waiting.clinic.name][: params.evaluate_doctor.cases]
    if not held_out:
        raise ClinicError("no test case of the starter clinic; raise patient_cases.starter.cases in params.yaml")
    return Ward(params, held_out, waiting)


@task(cache_policy=NO_CACHE, task_run_name="evaluate {name}")
def evaluate_policy(ward: Ward, name: str, model: Path, budget: int, chart: bool, keep: Path | None) -> Table:
    """Play every test case with a policy; `budget` 1 leaves it no question, `chart` shows it the whole chart first."""
    params = ward.params
    live = Session(str(model), params.warm_start.dtype, params.rollout, None, params.seed)
    specs = [
        EpisodeSpec(case.case_id, case.case_id, 0, budget, (params.seed, EVALUATION_STEP), _environment(ward, case, budget, chart), {}) for case in ward.cases
    ]
    trajectories = live.rollout(specs, params.evaluate_doctor.temperature)
    scores = score_all(ward.scorer, ward.cases, trajectories)
    turns = diagnosis_turns(live.chat, ward.waiting.clinic)
    names = [condition.name for condition in ward.waiting.clinic.conditions]
    rows = []
    for case, trajectory, score in zip(ward.cases, trajectories, scores, strict=True):
        log_C = continuation_logprobs(live.model, trajectory.token_ids[: trajectory.turns[-1][0]], turns)
        ranking = [names[i] for i in np.argsort(log_C)[::-1]]
        rows.append(measure(case, trajectory.events, score.reward, trajectory.sampled_tokens, ranking))
    if keep is not None:
        write_trajectories(trajectories, keep / "rollout.parquet")
        write_scores(scores, keep / "scores.parquet")
    return _table(ward, name, rows)


def _environment(ward: Ward, case: Case, budget: int, chart: bool) -> Callable[[], Any]:
    def make() -> Consultation:
        consultation = ward.waiting.consultation(case, budget)
        if chart:
            consultation.opening = lambda: chart_opening(case, ward.params.consultation)  # type: ignore[method-assign]  # the same rules, another opening
        return consultation

    return make


@task(cache_policy=NO_CACHE, task_run_name="evaluate {name}")
def evaluate_reference(ward: Ward, name: str, rule: str, questions: int) -> Table:
    """Play every test case with a reference doctor: asks by `rule` (a function of clinic.doctors), decides by Bayes; asks in test wordings."""
    rows = []
    for place, case in enumerate(ward.cases):
        rng = np.random.default_rng([ward.params.seed, place])
        doctor = doctors.ReferenceDoctor(ward.waiting.clinic, case, getattr(doctors, rule), questions, rng, wordings="test")
        rows.append(_reference_row(ward, case, doctor))
    return _table(ward, name, rows)


@task(cache_policy=NO_CACHE)
def evaluate_bayes_full_information(ward: Ward) -> Table:
    """Bayes' decision from the whole chart: the ceiling of any diagnosis."""
    rows = []
    for case in ward.cases:
        doctor = doctors.ReferenceDoctor(ward.waiting.clinic, case, doctors.at_random, 0, np.random.default_rng(0))
        for fact in case.facts:
            doctor.hear(fact.topic, fact.present)
        row = _reference_row(ward, case, doctor)
        rows.append(row | {"reward": None, "fact_recall": 1.0})
    return _table(ward, "bayes_full_information", rows)


def _reference_row(ward: Ward, case: Case, doctor: doctors.ReferenceDoctor) -> Row:
    consultation = Consultation(case, ScriptedPatient(case, ward.waiting.matcher), ward.params.consultation, doctor.questions + 1, None)
    events: list[dict[str, Any]] = []
    while True:
        reply = at_once(consultation.step(doctor.turn()))
        events.append(reply.event)
        if reply.text is None:
            break
        doctor.hear(reply.event["topic"], reply.event["present"])
    reward = sum(sum(turn.values()) for turn in ward.scorer.score(case, events, "diagnosed"))
    order = np.argsort(doctor.posterior())[::-1]
    return measure(case, events, reward, None, [ward.waiting.clinic.conditions[i].name for i in order])


def _table(ward: Ward, name: str, rows: Sequence[Row]) -> Table:
    table = by_category(ward.cases, rows, ward.params.evaluate_doctor.resamples, ward.params.seed)
    shown = table["overall"]["accuracy"]
    log.info("%s: accuracy %.3f [%.3f, %.3f] on %d cases", name, shown["mean"], shown["low"], shown["high"], len(rows))
    return {name: table}


def closed_distance(metrics: Table) -> float:
    """(trained - warm start) / (bayes_optimal - warm start), in accuracy: how much of what asking well can give was learned."""
    trained, start, best = (metrics[name]["overall"]["accuracy"]["mean"] for name in ("trained", "warm_start", "bayes_optimal"))
    return (trained - start) / (best - start) if best > start else float("nan")


def write_accuracy_plot(metrics: Table, path: Path) -> None:
    """Accuracy of every doctor with its interval, as CSV for `dvc plots`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["doctor", "accuracy", "low", "high", "turns"])
        for name, table in metrics.items():
            overall = table["overall"]
            writer.writerow([name, *(overall["accuracy"][k] for k in ("mean", "low", "high")), overall["turns"]["mean"]])


def table_text(metrics: Table) -> str:
    """The evaluation table for the terminal."""
    lines = [f"{'doctor':<24}{'accuracy':>22}{'top-3':>8}{'reward':>8}{'turns':>7}{'recall':>8}"]
    for name, table in metrics.items():
        o = table["overall"]
        accuracy = f"{o['accuracy']['mean']:.3f} [{o['accuracy']['low']:.3f}, {o['accuracy']['high']:.3f}]"
        cells = [f"{o[k]['mean']:.2f}" if o[k] else "-" for k in ("top3", "reward", "turns", "fact_recall")]
        lines.append(f"{name:<24}{accuracy:>22}{cells[0]:>8}{cells[1]:>8}{cells[2]:>7}{cells[3]:>8}")
    return "\n".join(lines)


def trajectories_of_note(trajectories: Sequence[Trajectory], scores: Sequence[Scores], count: int) -> tuple[list[Trajectory], list[Scores]]:
    """A fixed sample to look at: the best, the worst, and the first ones."""
    if count <= 0:
        return [], []
    order = sorted(range(len(scores)), key=lambda i: (scores[i].reward, i))
    chosen = list(dict.fromkeys([order[-1], order[0], *range(len(scores))]))[:count]
    return [trajectories[i] for i in chosen], [scores[i] for i in chosen]
