"""Policies on held-out cases: the sets, what a policy makes of them, and how two compare."""

import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from clinic.cases import QUESTIONS, Case, read_cases
from clinic.consultation import largest_turn_budget
from clinic.diagnoses import keys_of
from clinic.events import Event, final_diagnosis, leaks_of, read_events
from clinic.metrics import Missing, Row, answer_first, by_category, measure, paired
from clinic.openings import Opening
from clinic.rewards import Scorer
from clinic.splits import sampled
from clinic.tables import Evaluation
from doctor.environments import ConsultationFactory, open_factory
from doctor.evaluation_text import told
from doctor.opinions import Gather, Opinions, judged_by, opinions_of, refuse_if_many_missing
from doctor.parameters import ROOT, Params
from doctor.reward_recipe import load_reward
from doctor.scoring import patient_metrics, score_all
from doctor.warm_start import diagnosis_turns
from rl.environment import EpisodeSpec
from rl.experience import StopReason, Trajectory, write_scores, write_trajectories
from rl.language_models import check_endpoints
from rl.machine import place_of
from rl.rollout import Progress, refuse_if_many_failed
from rl.workers.base import Session
from rl.workers.local import LocalSession

log = logging.getLogger(__name__)
EVALUATION_STEP = -2  # the step in the noise key of evaluation episodes, the same for every policy
FAILED = Missing("failed")  # the patient broke, which says nothing of the doctor


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
        seen: Sequence[Case],
        first: bool,
    ) -> None:
        """Args: parameters, test cases of one source, how to seat them, opinions for the reward preset, the evaluation
        judge if there is one; `seen`: training cases of the source; `first`: it stands for the doctor.
        """
        self.params, self.factory, self.opinions, self.judge = params, factory, opinions, judge
        self.cases, self.seen, self.first = tuple(cases), tuple(seen), first
        self.reward = load_reward(params.reward.preset)
        self.scorer = Scorer(self.reward, [factory.clinic])
        # of every doctor evaluated so far, for paired comparisons
        self.rows: dict[str, list[Row | Missing]] = {}
        self._diseases = keys_of(factory.diseases)

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

    def measure(
        self,
        case: Case,
        events: Sequence[Event],
        reward: float | None,
        tokens: int | None,
        ranking: Sequence[str],
        verdict: Mapping[str, float] | None,
    ) -> Row | Missing:
        """`clinic.metrics.measure`, with the diseases of the run."""
        return measure(case, events, reward, tokens, ranking, verdict, self._diseases)

    def table(self, name: str, rows: Sequence[Row | Missing]) -> Evaluation:
        """The table of a doctor from its rows, which are kept for comparisons."""
        self.rows[name] = list(rows)
        table = by_category(self.cases, rows, self.params.evaluate_doctor.max_missing_share)
        log.info("%s: %s", self.label(name), told(table.overall))
        return Evaluation(doctors={self.label(name): table})


def open_evaluation_sets(
    params: Params, cases: Path, index: Path, count: int | None = None, left_out: Collection[str] = ()
) -> list[EvaluationSet]:
    """The test cases, a set for each source, the starter clinic first; each holds a sample of `evaluate_doctor.cases`
    (or `count`) at most, the same for every run of the same split, and none of those left out by id.
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
    for case in (case for case in read_cases(cases / "cases.parquet", "test") if case.case_id not in left_out):
        by_source.setdefault(case.source, []).append(case)
    seen: dict[str, list[Case]] = {}
    for case in read_cases(cases / "cases.parquet", "train"):
        seen.setdefault(case.source, []).append(case)
    most, salt = count or params.evaluate_doctor.cases, params.patient_cases.split.salt
    held_out = {source: sampled(found, most, salt) for source, found in by_source.items() if found}
    return [
        EvaluationSet(params, found, factory, opinions, judging, seen=seen.get(source, []), first=not place)
        for place, (source, found) in enumerate(held_out.items())
    ]


def _nobody(cases: Sequence[Case], trajectories: Sequence[Trajectory]) -> Opinions:  # noqa: ARG001  one signature
    return [None] * len(trajectories)


def policy_table(
    test_set: EvaluationSet, name: str, model: Path, budget: int, opened: Opening, keep: Path | None, progress: Progress
) -> Evaluation:
    """Play every test case with a policy; `budget` 1 leaves it no question, `opened` says what it is told first."""
    live, trajectories = _played(test_set, name, model, budget, opened, progress)
    opinions, verdicts = _opinions(test_set, trajectories)
    scores = score_all(test_set.scorer, test_set.cases, trajectories, opinions)
    rankings = _rankings(test_set, live, trajectories)
    rows = [
        FAILED
        if trajectory.stop_reason == StopReason.FAILED
        else test_set.measure(
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
    return test_set.table(name, rows) | patients_of(test_set, name, trajectories)


def policy_rows(test_set: EvaluationSet, name: str, model: Path, progress: Progress) -> list[Row | Missing]:
    """What a policy makes of every test case, without rewards, judges and rankings, which cost more than the playing."""
    return rows_of(test_set, _played(test_set, name, model, test_set.budget, "", progress)[1])


def rows_of(test_set: EvaluationSet, trajectories: Sequence[Trajectory]) -> list[Row | Missing]:
    """The same of consultations that were played, one for each test case, in their order."""
    return [
        FAILED
        if trajectory.stop_reason == StopReason.FAILED
        else test_set.measure(case, read_events(trajectory.events), None, trajectory.sampled_tokens, [], None)
        for case, trajectory in zip(test_set.cases, trajectories, strict=True)
    ]


def _played(
    test_set: EvaluationSet, name: str, model: Path, budget: int, opened: Opening, progress: Progress
) -> tuple[Session, list[Trajectory]]:
    params = test_set.params
    seat = test_set.factory.seat
    live = LocalSession(str(model), place_of(params.machines), params.rollout, None, params.seed, seat=seat)
    specs = [
        EpisodeSpec(
            case_id=case.case_id,
            group_id=case.case_id,
            sample=0,
            turn_budget=budget,
            noise=(params.seed, EVALUATION_STEP),
            case=case,
            privileged={},
            opened=opened,
        )
        for case in test_set.cases
    ]
    trajectories = live.rollout(specs, params.decoding.evaluate.temperature, progress)
    refuse_if_many_failed(trajectories, params.rollout)
    if silent := sum(not trajectory.turns for trajectory in trajectories):
        log.warning(
            "%s: %d of %d consultations without a turn; their %s leaves no room for one, raise rollout.max_episode_tokens",
            test_set.label(name),
            silent,
            len(trajectories),
            opened or "opening",
        )
    return live, trajectories


def _rankings(test_set: EvaluationSet, live: Session, trajectories: Sequence[Trajectory]) -> list[list[str]]:
    """The clinic's conditions in the order in which the policy would name them in its last turn, the one that it named
    first; empty on other cases and without a turn.
    """
    played = [place for place, trajectory in enumerate(trajectories) if trajectory.turns] if test_set.generative else []
    prefixes = [trajectories[place].token_ids[: trajectories[place].turns[-1][0]] for place in played]
    if not live.can_rank:
        return [[] for _ in trajectories]
    scores_PC = live.rank(prefixes, diagnosis_turns(live.chat, test_set.factory.clinic))
    rankings: list[list[str]] = [[] for _ in trajectories]
    for place, order in zip(played, np.argsort(scores_PC.numpy(), axis=1)[:, ::-1], strict=True):
        last = final_diagnosis(read_events(trajectories[place].events))
        rankings[place] = answer_first(
            [test_set.factory.clinic.conditions[i] for i in order], last.diagnosis if last else None
        )
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
    found = paired(test_set.rows[name], test_set.rows[other], test_set.params.evaluate_doctor.max_missing_share)
    return Evaluation(comparisons={f"{test_set.label(name)} minus {test_set.label(other)}": found})
