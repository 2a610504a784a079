"""Policies and reference doctors on held-out cases, one table with intervals."""

import csv
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from clinic import doctors
from clinic.cases import Case, read_cases
from clinic.consultation import Consultation, largest_turn_budget
from clinic.dialogues import at_once
from clinic.events import Ending, Event, leaks_of, read_events
from clinic.metrics import Row, by_category, measure, paired
from clinic.patients.scripted import ScriptedPatient
from clinic.questions import SOURCE as QUESTIONS
from clinic.rewards import Scorer
from clinic.tables import Evaluation
from doctor.environments import ConsultationFactory, open_factory
from doctor.opinions import Gather, Opinions, judged_by, opinions_of, refuse_if_many_missing
from doctor.parameters import ROOT, Params
from doctor.reward_recipe import load_reward
from doctor.scoring import patient_metrics, score_all
from doctor.warm_start import diagnosis_turns
from rl.experience import Scores, Trajectory, write_scores, write_trajectories
from rl.language_models import check_endpoints
from rl.rollout import EpisodeSpec, Progress, refuse_if_many_failed
from rl.workers.base import Session
from rl.workers.local import LocalSession

log = logging.getLogger(__name__)
EVALUATION_STEP = -2  # the step in the noise key of evaluation episodes, the same for every policy


class EvaluationSet:
    """Everything an evaluation of one source of cases needs: held-out cases, rules and scorer.

    Not a dataclass, so that Prefect passes it on without walking through it.
    """

    def __init__(
        self,
        params: Params,
        cases: Sequence[Case],
        factory: ConsultationFactory,
        opinions: Gather,
        judge: Gather | None,
        *,
        first: bool,
    ) -> None:
        """Args: parameters, test cases of one source, how to seat them, opinions for the reward preset, the evaluation
        judge if there is one; `first`: it stands for the doctor.
        """
        self.first = first
        self.params, self.cases, self.factory, self.opinions, self.judge = (
            params,
            tuple(cases),
            factory,
            opinions,
            judge,
        )
        self.reward = load_reward(params.reward.preset)
        self.scorer = Scorer(self.reward, [factory.clinic])
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
        return self.source == self.factory.clinic.name

    @property
    def consultations(self) -> bool:
        """Whether its cases are patients, not single-turn questions."""
        return self.source != QUESTIONS

    def label(self, name: str) -> str:
        """A doctor's name in the table: alone on the starter clinic, with the source on other cases."""
        return name if self.generative else f"{name}@{self.source}"


def open_evaluation_sets(params: Params, cases: Path, index: Path) -> list[EvaluationSet]:
    """The test cases, a set for each source, the starter clinic first; each holds `evaluate_doctor.cases` of them
    at most.
    """
    check_endpoints([params.language_models.patient, params.language_models.evaluation_judge])
    factory = open_factory(params, index, cases)
    opinions = (
        opinions_of(load_reward(params.reward.preset), params.language_models, ROOT, params.seed)
        if params.reward.preset != "human"
        else _nobody
    )
    judge = params.language_models.evaluation_judge
    judging = judged_by(judge, ("diagnosis", "recommendation"), params.seed) if judge is not None else None
    by_source: dict[str, list[Case]] = {factory.clinic.name: []}
    for case in read_cases(cases / "cases.parquet", "test"):
        by_source.setdefault(case.source, []).append(case)
    held_out = [found[: params.evaluate_doctor.cases] for found in by_source.values() if found]
    return [
        EvaluationSet(params, found, factory, opinions, judging, first=not place)
        for place, found in enumerate(held_out)
    ]


def _nobody(cases: Sequence[Case], trajectories: Sequence[Trajectory]) -> Opinions:  # noqa: ARG001  one signature
    return [None] * len(trajectories)


def policy_table(
    test_set: EvaluationSet, name: str, model: Path, budget: int, chart: bool, keep: Path | None, progress: Progress
) -> Evaluation:
    """Play every test case with a policy; `budget` 1 leaves it no question, `chart` shows it the whole chart first."""
    params = test_set.params
    live = LocalSession(str(model), params.machines.compute, params.rollout, None, params.seed)
    specs = [
        EpisodeSpec(
            case_id=case.case_id,
            group_id=case.case_id,
            sample=0,
            turn_budget=budget,
            noise=(params.seed, EVALUATION_STEP),
            make=partial(test_set.factory.consultation, case, budget, chart=chart),
            privileged={},
        )
        for case in test_set.cases
    ]
    trajectories = live.rollout(specs, params.decoding.evaluate.temperature, progress)
    refuse_if_many_failed(trajectories, params.rollout)
    opinions, verdicts = _opinions(test_set, trajectories)
    scores = score_all(test_set.scorer, test_set.cases, trajectories, opinions)
    rankings = _rankings(test_set, live, trajectories)
    rows = [
        measure(
            case,
            read_events(trajectory.events),
            score.reward if score.turns else None,
            trajectory.sampled_tokens,
            ranking,
            verdict,
        )
        for case, trajectory, score, ranking, verdict in zip(
            test_set.cases, trajectories, scores, rankings, verdicts, strict=True
        )
    ]
    if keep is not None:
        write_trajectories(trajectories, keep / "rollout.parquet")
        write_scores(scores, keep / "scores.parquet")
    return _table(test_set, name, rows) | patients_of(test_set, name, trajectories)


def _rankings(test_set: EvaluationSet, live: Session, trajectories: Sequence[Trajectory]) -> list[list[str]]:
    """The clinic's conditions in the order in which the policy would name them in its last turn; empty on other cases
    and without a turn.
    """
    played = [place for place, trajectory in enumerate(trajectories) if trajectory.turns] if test_set.generative else []
    prefixes = [trajectories[place].token_ids[: trajectories[place].turns[-1][0]] for place in played]
    scores_PC = live.rank(prefixes, diagnosis_turns(live.chat, test_set.factory.clinic))
    rankings: list[list[str]] = [[] for _ in trajectories]
    for place, order in zip(played, np.argsort(scores_PC.numpy(), axis=1)[:, ::-1], strict=True):
        rankings[place] = [test_set.factory.clinic.conditions[i].name for i in order]
    return rankings


def _opinions(test_set: EvaluationSet, trajectories: Sequence[Trajectory]) -> tuple[Opinions, Opinions]:
    """What the reward's judge or model, and the evaluation judge, said of consultations; people are not asked about
    test cases.
    """
    opinions, params = test_set.opinions(test_set.cases, trajectories), test_set.params
    if params.reward.preset != "human":
        refuse_if_many_missing(test_set.reward, params.reward.max_missing_share, trajectories, opinions)
    if test_set.judge is None:
        return opinions, [None] * len(trajectories)
    verdicts = test_set.judge(test_set.cases, trajectories)
    if unjudged := sum(verdict is None for verdict in verdicts):
        log.warning(
            "%d of %d consultations have no verdict of the evaluation judge; its measures are means over the others",
            unjudged,
            len(verdicts),
        )
    return opinions, verdicts


def patients_of(test_set: EvaluationSet, name: str, trajectories: Sequence[Trajectory]) -> Evaluation:
    """How true to the record the patients were, and how often the filter had to step in, where a model plays them;
    where they are worth a look.
    """
    if test_set.params.language_models.patient is None:
        return Evaluation()
    leaks = sum(leaks_of(read_events(trajectory.events)) for trajectory in trajectories)
    return Evaluation(
        patients={
            test_set.label(name): {
                **patient_metrics(test_set.cases, trajectories, test_set.factory.matchers),
                "leaks": leaks,
            }
        }
    )


def comparison(test_set: EvaluationSet, name: str, other: str) -> Evaluation:
    """Two evaluated doctors on the same cases: differences with intervals, and McNemar's test."""
    found = paired(
        test_set.rows[name], test_set.rows[other], test_set.params.evaluate_doctor.resamples, test_set.params.seed
    )
    return Evaluation(comparisons={f"{test_set.label(name)} minus {test_set.label(other)}": found})


def reference_table(test_set: EvaluationSet, name: str, ask: doctors.Ask, questions: int) -> Evaluation:
    """Play every test case with a reference doctor: asks by `ask`, decides by Bayes; asks in test wordings."""
    rows = []
    for place, case in enumerate(test_set.cases):
        rng = np.random.default_rng([test_set.params.seed, place])
        doctor = doctors.ReferenceDoctor(
            clinic=test_set.factory.clinic, case=case, ask=ask, questions=questions, rng=rng, wordings="test"
        )
        rows.append(_reference_row(test_set, case, doctor))
    return _table(test_set, name, rows)


def full_information_table(test_set: EvaluationSet) -> Evaluation:
    """Bayes' decision from the whole chart: the ceiling of any diagnosis."""
    rows = []
    for case in test_set.cases:
        doctor = doctors.ReferenceDoctor(
            clinic=test_set.factory.clinic, case=case, ask=doctors.at_random, questions=0, rng=np.random.default_rng(0)
        )
        for fact in case.facts:
            doctor.learn(fact.topic, fact.present)
        row = _reference_row(test_set, case, doctor)
        rows.append(row | {"reward": None, "fact_recall": 1.0})
    return _table(test_set, "bayes_full_information", rows)


def _reference_row(test_set: EvaluationSet, case: Case, doctor: doctors.ReferenceDoctor) -> Row:
    consultation = Consultation(
        case, ScriptedPatient(case, test_set.factory.matcher), test_set.params.consultation, doctor.questions + 1, None
    )
    events: list[Event] = []
    while True:
        reply = at_once(consultation.step(doctor.turn()))
        events.append(reply.event)
        if reply.text is None:
            break
        doctor.hear(reply.event)
    turns = test_set.scorer.score(case, events, Ending.DIAGNOSED)
    reward = sum(sum(turn.values()) for turn in turns) if turns else None
    order = np.argsort(doctor.posterior())[::-1]
    return measure(case, events, reward, None, [test_set.factory.clinic.conditions[i].name for i in order])


def _table(test_set: EvaluationSet, name: str, rows: Sequence[Row]) -> Evaluation:
    test_set.rows[name] = list(rows)
    table = by_category(test_set.cases, rows, test_set.params.evaluate_doctor.resamples, test_set.params.seed)
    which = "accuracy" if table.overall.accuracy else "reward"
    if (shown := table.overall.measures[which]) is not None:
        log.info(
            "%s: %s %.3f [%.3f, %.3f] on %d cases",
            test_set.label(name),
            which,
            shown.mean,
            shown.low,
            shown.high,
            len(rows),
        )
    return Evaluation(doctors={test_set.label(name): table})


def closed_distance(metrics: Evaluation) -> float:
    """(trained - warm start) / (bayes_optimal - warm start), in accuracy: how much of what asking well can give was
    learned; NaN without a starter clinic.
    """
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
            writer.writerow(
                [name, accuracy.mean, accuracy.low, accuracy.high, metrics.doctors[name].overall.mean("turns")]
            )


def table_text(metrics: Evaluation) -> str:
    """The evaluation table for the terminal."""
    lines = [f"{'doctor':<24}{'accuracy':>22}{'top-3':>8}{'reward':>8}{'turns':>7}{'recall':>8}"]
    for name, accuracy in metrics.accuracies.items():
        measures = metrics.doctors[name].overall.measures
        shown = f"{accuracy.mean:.3f} [{accuracy.low:.3f}, {accuracy.high:.3f}]"
        cells = [
            f"{found.mean:.2f}" if (found := measures[k]) else "-" for k in ("top3", "reward", "turns", "fact_recall")
        ]
        lines.append(f"{name:<24}{shown:>22}{cells[0]:>8}{cells[1]:>8}{cells[2]:>7}{cells[3]:>8}")
    for name, comparison in metrics.comparisons.items():
        if comparison.mcnemar:
            by = comparison.measures["accuracy"]
            lines.append(
                f"{name}: {by.mean:+.3f} [{by.low:+.3f}, {by.high:+.3f}], McNemar p {comparison.mcnemar.p:.2g}"
            )
    return "\n".join(lines)


def trajectories_of_note(
    trajectories: Sequence[Trajectory], scores: Sequence[Scores], count: int
) -> tuple[list[Trajectory], list[Scores]]:
    """A fixed sample to look at: the best, the worst, and the first ones."""
    if count <= 0:
        return [], []
    order = sorted(range(len(scores)), key=lambda i: (scores[i].reward, i))
    chosen = list(dict.fromkeys([order[-1], order[0], *range(len(scores))]))[:count]
    return [trajectories[i] for i in chosen], [scores[i] for i in chosen]
