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
from clinic.consultation import Consultation, largest_turn_budget
from clinic.dialogues import at_once, chart_opening
from clinic.events import Ending, Event, leaks_of, read_events
from clinic.metrics import Row, by_category, measure, paired
from clinic.patients.scripted import ScriptedPatient
from clinic.questions import SOURCE as QUESTIONS
from clinic.questions import SingleTurn
from clinic.rewards import Scorer
from clinic.tables import Evaluation
from doctor.environments import Waiting, open_waiting_room
from doctor.opinions import Gather, Opinions, judged_by, opinions_of, refuse_if_many_missing
from doctor.parameters import ROOT, Params
from doctor.recipe import load_reward
from doctor.scoring import patient_metrics, score_all
from doctor.warm_start import diagnosis_turns
from rl.experience import Scores, Trajectory, write_scores, write_trajectories
from rl.rollout import EpisodeSpec, refuse_if_many_failed
from rl.workers.base import Session
from rl.workers.local import LocalSession
from tracking.progress import Phase

log = logging.getLogger(__name__)
EVALUATION_STEP = -2  # the step in the noise key of evaluation episodes, the same for every policy


class Ward:
    """Everything an evaluation of one source of cases needs: held-out cases, rules and scorer. Not a dataclass, so that Prefect passes it on without walking through it."""

    first = False  # whether its consultations stand for the doctor in the record

    def __init__(self, params: Params, cases: Sequence[Case], waiting: Waiting, opinions: Gather, judge: Gather | None) -> None:
        """Args: parameters, test cases of one source, how to seat them, opinions for the reward preset, the evaluation judge if there is one."""
        self.params, self.cases, self.waiting, self.opinions, self.judge = params, tuple(cases), waiting, opinions, judge
        self.reward = load_reward(params.reward.preset)
        self.scorer = Scorer(self.reward, [waiting.clinic])
        self.rows: dict[str, list[Row]] = {}  # of every doctor evaluated so far, for paired comparisons

    @property
    def budget(self) -> int:
        """Doctor turns per consultation; a random budget is evaluated at its largest."""
        return largest_turn_budget(self.params.consultation)

    @property
    def source(self) -> str:
        """Where its cases come from."""
        return self.cases[0].source

    @property
    def generative(self) -> bool:
        """Whether the probabilities behind its cases are known, so that Bayes' doctors can play."""
        return self.source == self.waiting.clinic.name

    @property
    def consultations(self) -> bool:
        """Whether its cases are patients, not single-turn questions."""
        return self.source != QUESTIONS

    def label(self, name: str) -> str:
        """A doctor's name in the table: alone on the starter clinic, with the source on other cases."""
        return name if self.generative else f"{name}@{self.source}"


def open_wards(params: Params, cases: Path, index: Path) -> list[Ward]:
    """The test cases, a ward for each source, the starter clinic first; each holds `evaluate_doctor.cases` of them at most."""
    waiting = open_waiting_room(params, index, cases)
    opinions = opinions_of(load_reward(params.reward.preset), params.language_models, ROOT, params.seed) if params.reward.preset != "human" else _nobody
    judge = params.language_models.evaluation_judge
    judging = judged_by(judge, ("diagnosis", "recommendation"), params.seed) if judge is not None else None
    by_source: dict[str, list[Case]] = {waiting.clinic.name: []}
    for case in read_cases(cases / "cases.parquet", "test"):
        by_source.setdefault(case.source, []).append(case)
    held_out = [found[: params.evaluate_doctor.cases] for found in by_source.values() if found]
    wards = [Ward(params, found, waiting, opinions, judging) for found in held_out]
    wards[0].first = True
    return wards


def _nobody(cases: Sequence[Case], trajectories: Sequence[Trajectory]) -> Opinions:  # noqa: ARG001  one signature
    return [None] * len(trajectories)


@task(cache_policy=NO_CACHE, task_run_name="evaluate {name}")
def evaluate_policy(ward: Ward, name: str, model: Path, budget: int, chart: bool, keep: Path | None) -> Evaluation:
    """Play every test case with a policy; `budget` 1 leaves it no question, `chart` shows it the whole chart first."""
    params = ward.params
    live = LocalSession(str(model), params.machines.compute, params.rollout, None, params.seed)
    specs = [
        EpisodeSpec(
            case_id=case.case_id, group_id=case.case_id, sample=0, turn_budget=budget, noise=(params.seed, EVALUATION_STEP),
            make=_environment(ward, case, budget, chart), privileged={},
        )
        for case in ward.cases
    ]
    trajectories = live.rollout(specs, params.decoding.evaluate.temperature, Phase(f"evaluate {ward.label(name)}", "episodes"))
    refuse_if_many_failed(trajectories, params.rollout)
    opinions, verdicts = _opinions(ward, trajectories)
    scores = score_all(ward.scorer, ward.cases, trajectories, opinions)
    rankings = _rankings(ward, live, trajectories)
    rows = [
        measure(case, read_events(trajectory.events), score.reward if score.turns else None, trajectory.sampled_tokens, ranking, verdict)
        for case, trajectory, score, ranking, verdict in zip(ward.cases, trajectories, scores, rankings, verdicts, strict=True)
    ]
    if keep is not None:
        write_trajectories(trajectories, keep / "rollout.parquet")
        write_scores(scores, keep / "scores.parquet")
    return _table(ward, name, rows) | patients_of(ward, name, trajectories)


def _rankings(ward: Ward, live: Session, trajectories: Sequence[Trajectory]) -> list[list[str]]:
    """The clinic's conditions in the order in which the policy would name them in its last turn; empty on other cases and without a turn."""
    played = [place for place, trajectory in enumerate(trajectories) if trajectory.turns] if ward.generative else []
    prefixes = [trajectories[place].token_ids[: trajectories[place].turns[-1][0]] for place in played]
    scores_PC = live.rank(prefixes, diagnosis_turns(live.chat, ward.waiting.clinic))
    rankings: list[list[str]] = [[] for _ in trajectories]
    for place, order in zip(played, np.argsort(scores_PC.numpy(), axis=1)[:, ::-1], strict=True):
        rankings[place] = [ward.waiting.clinic.conditions[i].name for i in order]
    return rankings


def _opinions(ward: Ward, trajectories: Sequence[Trajectory]) -> tuple[Opinions, Opinions]:
    """What the reward's judge or model, and the evaluation judge, said of consultations; people are not asked about test cases."""
    opinions, params = ward.opinions(ward.cases, trajectories), ward.params
    if params.reward.preset != "human":
        refuse_if_many_missing(ward.reward, params.reward.max_missing_share, trajectories, opinions)
    if ward.judge is None:
        return opinions, [None] * len(trajectories)
    verdicts = ward.judge(ward.cases, trajectories)
    if unjudged := sum(verdict is None for verdict in verdicts):
        log.warning("%d of %d consultations have no verdict of the evaluation judge; its measures are means over the others", unjudged, len(verdicts))
    return opinions, verdicts


def patients_of(ward: Ward, name: str, trajectories: Sequence[Trajectory]) -> Evaluation:
    """How true to the record the patients were, and how often the filter had to step in, where a model plays them; where they are worth a look."""
    if ward.params.language_models.patient is None:
        return Evaluation()
    leaks = sum(leaks_of(read_events(trajectory.events)) for trajectory in trajectories)
    return Evaluation(patients={ward.label(name): {**patient_metrics(ward.cases, trajectories, ward.waiting.matchers), "leaks": leaks}})


@task(cache_policy=NO_CACHE)
def compare(ward: Ward, name: str, other: str) -> Evaluation:
    """Two evaluated doctors on the same cases: differences with intervals, and McNemar's test."""
    comparison = paired(ward.rows[name], ward.rows[other], ward.params.evaluate_doctor.resamples, ward.params.seed)
    return Evaluation(comparisons={f"{ward.label(name)} minus {ward.label(other)}": comparison})


def _environment(ward: Ward, case: Case, budget: int, chart: bool) -> Callable[[], Any]:
    def make() -> Consultation | SingleTurn:
        consultation = ward.waiting.consultation(case, budget)
        if chart and isinstance(consultation, Consultation):
            consultation.opening = lambda: chart_opening(case, ward.params.consultation)  # type: ignore[method-assign]  # the same rules, another opening
        return consultation

    return make


@task(cache_policy=NO_CACHE, task_run_name="evaluate {name}")
def evaluate_reference(ward: Ward, name: str, rule: str, questions: int) -> Evaluation:
    """Play every test case with a reference doctor: asks by `rule` (a function of clinic.doctors), decides by Bayes; asks in test wordings."""
    rows = []
    for place, case in enumerate(ward.cases):
        rng = np.random.default_rng([ward.params.seed, place])
        doctor = doctors.ReferenceDoctor(clinic=ward.waiting.clinic, case=case, ask=getattr(doctors, rule), questions=questions, rng=rng, wordings="test")
        rows.append(_reference_row(ward, case, doctor))
    return _table(ward, name, rows)


@task(cache_policy=NO_CACHE)
def evaluate_bayes_full_information(ward: Ward) -> Evaluation:
    """Bayes' decision from the whole chart: the ceiling of any diagnosis."""
    rows = []
    for case in ward.cases:
        doctor = doctors.ReferenceDoctor(clinic=ward.waiting.clinic, case=case, ask=doctors.at_random, questions=0, rng=np.random.default_rng(0))
        for fact in case.facts:
            doctor.learn(fact.topic, fact.present)
        row = _reference_row(ward, case, doctor)
        rows.append(row | {"reward": None, "fact_recall": 1.0})
    return _table(ward, "bayes_full_information", rows)


def _reference_row(ward: Ward, case: Case, doctor: doctors.ReferenceDoctor) -> Row:
    consultation = Consultation(case, ScriptedPatient(case, ward.waiting.matcher), ward.params.consultation, doctor.questions + 1, None)
    events: list[Event] = []
    while True:
        reply = at_once(consultation.step(doctor.turn()))
        events.append(reply.event)
        if reply.text is None:
            break
        doctor.hear(reply.event)
    turns = ward.scorer.score(case, events, Ending.DIAGNOSED)
    reward = sum(sum(turn.values()) for turn in turns) if turns else None
    order = np.argsort(doctor.posterior())[::-1]
    return measure(case, events, reward, None, [ward.waiting.clinic.conditions[i].name for i in order])


def _table(ward: Ward, name: str, rows: Sequence[Row]) -> Evaluation:
    ward.rows[name] = list(rows)
    table = by_category(ward.cases, rows, ward.params.evaluate_doctor.resamples, ward.params.seed)
    which = "accuracy" if table.overall.accuracy else "reward"
    if (shown := table.overall.measures[which]) is not None:
        log.info("%s: %s %.3f [%.3f, %.3f] on %d cases", ward.label(name), which, shown.mean, shown.low, shown.high, len(rows))
    return Evaluation(doctors={ward.label(name): table})


def closed_distance(metrics: Evaluation) -> float:
    """(trained - warm start) / (bayes_optimal - warm start), in accuracy: how much of what asking well can give was learned; NaN without a starter clinic."""
    found = metrics.accuracies
    if not {"trained", "warm_start", "bayes_optimal"} <= set(found):
        return float("nan")
    trained, start, best = (found[name].mean for name in ("trained", "warm_start", "bayes_optimal"))
    return (trained - start) / (best - start) if best > start else float("nan")


def write_accuracy_plot(metrics: Evaluation, path: Path) -> None:
    """Accuracy of every doctor with its interval, as CSV for `dvc plots`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["doctor", "accuracy", "low", "high", "turns"])
        for name, accuracy in metrics.accuracies.items():
            writer.writerow([name, accuracy.mean, accuracy.low, accuracy.high, metrics.doctors[name].overall.mean("turns")])


def table_text(metrics: Evaluation) -> str:
    """The evaluation table for the terminal."""
    lines = [f"{'doctor':<24}{'accuracy':>22}{'top-3':>8}{'reward':>8}{'turns':>7}{'recall':>8}"]
    for name, accuracy in metrics.accuracies.items():
        measures = metrics.doctors[name].overall.measures
        shown = f"{accuracy.mean:.3f} [{accuracy.low:.3f}, {accuracy.high:.3f}]"
        cells = [f"{found.mean:.2f}" if (found := measures[k]) else "-" for k in ("top3", "reward", "turns", "fact_recall")]
        lines.append(f"{name:<24}{shown:>22}{cells[0]:>8}{cells[1]:>8}{cells[2]:>7}{cells[3]:>8}")
    for name, comparison in metrics.comparisons.items():
        if comparison.mcnemar:
            by = comparison.measures["accuracy"]
            lines.append(f"{name}: {by.mean:+.3f} [{by.low:+.3f}, {by.high:+.3f}], McNemar p {comparison.mcnemar.p:.2g}")
    return "\n".join(lines)


def trajectories_of_note(trajectories: Sequence[Trajectory], scores: Sequence[Scores], count: int) -> tuple[list[Trajectory], list[Scores]]:
    """A fixed sample to look at: the best, the worst, and the first ones."""
    if count <= 0:
        return [], []
    order = sorted(range(len(scores)), key=lambda i: (scores[i].reward, i))
    chosen = list(dict.fromkeys([order[-1], order[0], *range(len(scores))]))[:count]
    return [trajectories[i] for i in chosen], [scores[i] for i in chosen]
