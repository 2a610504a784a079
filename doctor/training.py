"""A training run as an object: what it reads, its session, what it has played, and the hash of all that decides its
result.
"""

import csv
import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from clinic.cases import QUESTIONS, Case, read_cases
from clinic.config import JUDGED
from clinic.rewards import Scorer
from clinic.splits import sampled
from doctor.environments import ConsultationFactory, open_factory, open_patient, open_seat
from doctor.lengths import check_openings
from doctor.opinions import opinions_of
from doctor.parameters import HOME, ROOT, Params
from doctor.recipe import load_algorithm, pairs_path
from doctor.reward_recipe import load_reward
from doctor.sources import by_source, cases_of_draw, check_weights, quotas
from doctor.stages import input_hash
from rl.algorithms import Algorithm
from rl.algorithms.sampling import informative_groups, keep_informative
from rl.checkpoint import steps_saved
from rl.config import LocalModelParams
from rl.experience import (
    Scores,
    Trajectory,
    mask_unscored,
    read_scores,
    read_trajectories,
    write_scores,
    write_trajectories,
)
from rl.language_models import check_endpoints
from rl.machine import place_of_training
from rl.memory import available_bytes, estimate, memory_text, model_shape, refuse_what_cannot_fit
from rl.optimizers import gradient_steps_per_rollout
from rl.preferences import read_preferences
from rl.workers.base import Session
from rl.workers.group import WorkerLostError
from rl.workers.opening import open_session
from rl.workers.roles import Opening

log = logging.getLogger(__name__)
T = TypeVar("T")


class Training:
    """One training run: its inputs, its session and what it has played.

    Made by `open_training`, passed to every task of the flow.

    Experience is written once and kept in memory while it is needed; a file is read where an earlier process wrote it.
    Not a dataclass, so that Prefect passes a run on without walking through it.
    """

    def __init__(
        self,
        params: Params,
        algorithm: Algorithm,
        factory: ConsultationFactory,
        warm_start: Path,
        cases: Path,
        digest: str,
    ) -> None:
        """Open the session, and read cases and constants.

        Args:
            params: all of `params.yaml`.
            algorithm: the learning rule.
            factory: seats patients.
            warm_start: folder of the weights to begin with.
            cases: folder of the case table.
            digest: sha256 of all that decides the result; names the run's folder.
        """
        self.params, self.algorithm, self.factory = params, algorithm, factory
        self.warm_start, self.input_hash = warm_start, digest
        self.folder = (
            HOME / "checkpoints" / params.train_doctor.project / f"{params.train_doctor.experiment}-{digest[:12]}"
        )
        self.train = tuple(read_cases(cases / "cases.parquet", "train"))
        patients = [case for case in read_cases(cases / "cases.parquet", "validation") if case.source != QUESTIONS]
        self.validation = tuple(validation_cases(patients, params))
        self.weights = params.train_doctor.source_weights
        check_weights(self.weights, self.train, "training")
        patient = params.language_models.patient
        self.session: Session = open_session(
            Opening(
                model=str(warm_start.resolve()),
                place=place_of_training(params.machines),
                rollout=params.rollout,
                algorithm=algorithm,
                seed=params.seed,
                lora=params.train_doctor.lora,
                temperature=params.decoding.train.temperature,
            ),
            params.machines,
            factory.seat,
            partial(open_seat, params, factory.index.resolve(), cases.resolve()),
            partial(open_patient, patient, params.seed) if isinstance(patient, LocalModelParams) else None,
        )
        source = pairs_path(algorithm)
        # what an offline algorithm reads instead of playing
        self.pairs = read_preferences(source, self.session.chat) if source is not None else None
        self.reward = load_reward(params.reward.preset)
        self.scorer = Scorer(self.reward, [factory.clinic])
        # of judges, models or people, for the presets that ask them
        self.opinions = opinions_of(self.reward, params.language_models, ROOT, params.seed)
        self._played: dict[tuple[int, int], list[Trajectory]] = {}
        self._scored: dict[tuple[int, int], list[Scores]] = {}

    def step_folder(self, step: int) -> Path:
        """Where the experience and metrics of a rollout step are."""
        return self.folder / "steps" / f"{step:05d}"

    def rollout_file(self, step: int, draw: int) -> Path:
        """What one rollout of a step recorded; `scores_file` has its scores."""
        return self.step_folder(step) / f"rollout{f'-{draw}' if draw else ''}.parquet"

    def scores_file(self, step: int, draw: int) -> Path:
        """Scores of one rollout of a step."""
        return self.step_folder(step) / f"scores{f'-{draw}' if draw else ''}.parquet"

    @property
    def max_draws(self) -> int:
        """Rollouts in one rollout step, at most: one, unless the algorithm refills groups without signal; none, if it
        reads its pairs from a file.
        """
        if self.pairs is not None:
            return 0
        return self.algorithm.dynamic_sampling.max_num_gen_batches if self.algorithm.dynamic_sampling is not None else 1

    @property
    def plays_first(self) -> bool:
        """Whether all experience is sampled before the first update (offline algorithms)."""
        return not self.algorithm.on_policy

    def cases(self, step: int, draw: int) -> list[Case]:
        """The cases of one rollout of a step."""
        return cases_of_draw(
            self.train,
            self.params.rollout.prompts,
            (step - 1) * self.max_draws + draw,
            self.params.seed,
            self.weights,
        )

    def keep_played(self, step: int, draw: int, trajectories: list[Trajectory]) -> None:
        """Write what one rollout recorded, and have it at hand."""
        write_trajectories(trajectories, self.rollout_file(step, draw))
        _keep(self._played, step, draw, trajectories)

    def keep_scored(self, step: int, draw: int, scores: list[Scores]) -> None:
        """Write the scores of one rollout, and have them at hand."""
        write_scores(scores, self.scores_file(step, draw))
        _keep(self._scored, step, draw, scores)

    def played(self, step: int, draw: int) -> list[Trajectory]:
        """What one rollout recorded."""
        if (step, draw) not in self._played:
            _keep(self._played, step, draw, read_trajectories(self.rollout_file(step, draw)))
        return self._played[step, draw]

    def scored(self, step: int, draw: int) -> list[Scores]:
        """The scores of one rollout."""
        if (step, draw) not in self._scored:
            _keep(self._scored, step, draw, read_scores(self.scores_file(step, draw)))
        return self._scored[step, draw]

    def experience(self, step: int, draws: int | None = None) -> tuple[list[Trajectory], list[Scores]]:
        """What was played and scored for a step, draw after draw, all of it or the first `draws`; of a file of pairs,
        the step's share.
        """
        if self.pairs is not None:
            return self.pairs.share(step, self.params.train_doctor.steps)
        trajectories: list[Trajectory] = []
        scores: list[Scores] = []
        for draw in range(self.max_draws if draws is None else draws):
            there = (step, draw) in self._scored or self.scores_file(step, draw).exists()
            if draw and not there:  # there were groups enough before it
                break
            trajectories += self.played(step, draw)
            scores += self.scored(step, draw)
        return mask_unscored(trajectories, scores), scores

    def lesson(self, step: int) -> tuple[list[Trajectory], list[Scores], dict[str, float]]:
        """What is learned from of a step's experience, and metrics of what is left out."""
        trajectories, scores = self.experience(step)
        dynamic = self.algorithm.dynamic_sampling
        if dynamic is None:
            return trajectories, scores, {}
        return keep_informative(trajectories, scores, dynamic, self.params.rollout.prompts)


def with_policy(run: Training, updates: int, act: Callable[[], T]) -> T:
    """What `act` gives, called with the policy after so many training phases.

    Where the session has another one, or loses it on the way, it goes on from the last checkpoint, and learns again
    what was learned since: the same bits, as the experience is the same.

    Raises:
        TrainingError: the policy was lost too often in one step.
    """
    while True:
        try:
            if run.session.policy_version != updates:
                _return_to(run, updates)
            return act()
        except WorkerLostError as lost:
            log.warning("%s; going on from the last checkpoint with fresh workers", lost)


def _return_to(run: Training, updates: int) -> None:
    saved = max((step for step in steps_saved(run.folder) if step <= updates), default=0)
    if saved:
        run.session.restore(run.folder / f"global_step_{saved}")
    else:
        run.session.reset()
    for step in range(saved + 1, updates + 1):
        trajectories, scores, _ = run.lesson(step)
        run.session.learn(trajectories, scores, step)


def validation_cases(patients: Sequence[Case], params: Params) -> list[Case]:
    """The cases by which a checkpoint is chosen: a seeded sample, of each source its share where sources have weights.

    Raises:
        ParameterError: the weights do not fit the cases.
    """
    most, weights = params.train_doctor.validation_cases, params.train_doctor.source_weights
    salt = params.patient_cases.split.salt
    if not weights:
        return sampled(patients, most, salt)
    weights = {name: weight for name, weight in weights.items() if name != QUESTIONS}
    check_weights(weights, patients, "validation")
    quota = quotas(patients, most, weights)
    return [case for name, found in by_source(patients).items() for case in sampled(found, quota[name], salt)]


def _keep(held: dict[tuple[int, int], list[T]], step: int, draw: int, found: list[T]) -> None:
    """At hand are a step and its neighbours: the next one may be played while this one is learned from."""
    for old in [key for key in list(held) if abs(key[0] - step) > 1]:
        held.pop(old, None)
    held[step, draw] = found


def open_training(params: Params, warm_start: Path, cases: Path, index: Path) -> Training:
    """Load everything once; what an earlier run of the same inputs left is gone on from.

    Raises:
        TrainingError: it does not fit into memory.
        ParameterError: too many patients say more than fits into `rollout.max_episode_tokens` before the first turn.
    """
    algorithm = load_algorithm(params)
    models = params.language_models
    check_endpoints([models.patient, models.reward_judge if params.reward.preset in JUDGED else None])
    factory = open_factory(params, index, cases)
    log.info("%s", plan_text(params, algorithm))
    if params.machines.backend == "local":  # workers have machines of their own
        _refuse_what_cannot_fit(params, algorithm, warm_start)
    digest = input_hash(
        "train_doctor", params, {"models/warm_start": warm_start, "data/cases": cases, "data/kb_index": index}
    )
    run = Training(params, algorithm, factory, warm_start, cases, digest)
    if run.pairs is None:
        check_openings(factory, run.session.chat, run.train, params.rollout, "training")
    check_openings(factory, run.session.chat, run.validation, params.rollout, "validation")
    return run


def _refuse_what_cannot_fit(params: Params, algorithm: Algorithm, warm_start: Path) -> None:
    place = place_of_training(params.machines)
    memory = estimate(
        model_shape(str(warm_start), place.compute, params.train_doctor.lora),
        params.rollout,
        algorithm,
        place,
        holes=not params.machines.spare_memory,
    )
    log.info("%s", memory_text(memory))
    refuse_what_cannot_fit(memory, available_bytes(place.device))


def plan_text(params: Params, algorithm: Algorithm) -> str:
    """The accounting of a run in one line."""
    group_size, warm_steps = algorithm.group_size, algorithm.optimizer.warmup_rollout_steps
    prompts, given = params.rollout.prompts, algorithm.pairs_given
    units = algorithm.planned_units(prompts)
    updates = sum(gradient_steps_per_rollout(units, one.units, one.epochs) for one in algorithm.passes(0))
    played = f"{prompts} cases x {group_size} samples = {prompts * group_size} trajectories"
    share = played if given is None else f"{given} pairs of a file"
    return (
        f"{share} a rollout step, {updates} gradient steps each; "
        f"{params.train_doctor.steps} rollout steps; warm-up {warm_steps} rollout steps = {warm_steps * updates} gradient steps"
    )


def has_enough_groups(run: Training, step: int, draws: int) -> bool:
    """Whether a step's first `draws` rollouts hold all the groups it can learn from: always, unless the algorithm
    refills those without signal.
    """
    dynamic = run.algorithm.dynamic_sampling
    return (
        dynamic is None or len(informative_groups(*run.experience(step, draws), dynamic)) >= run.params.rollout.prompts
    )


def history(run: Training) -> list[dict[str, float]]:
    """Metrics of every finished step, in order."""
    paths = sorted((run.folder / "steps").glob("*/metrics.json"))
    return [{"step": int(path.parent.name), **json.loads(path.read_text())} for path in paths]


def past_experience(run: Training, step: int) -> tuple[list[Trajectory], list[Scores]]:
    """What lies on disk of a step that is long done; unlike `Training.experience` it takes nothing's place in memory."""
    draws = [(run.rollout_file(step, draw), run.scores_file(step, draw)) for draw in range(run.max_draws)]
    there = [files for files in draws if all(file.exists() for file in files)]
    return (
        [trajectory for played, _ in there for trajectory in read_trajectories(played)],
        [score for _, scored in there for score in read_scores(scored)],
    )


def kept(run: Training, step: int) -> Path | None:
    """The checkpoint of a step, if it is one that stays."""
    directory = run.folder / f"global_step_{step}"
    return directory if step % run.params.train_doctor.keep_every == 0 and directory.exists() else None


def write_curve(run: Training, path: Path) -> None:
    """The learning curve as CSV, for `dvc plots` and people; only columns that do not depend on the clock."""
    rows = [{k: v for k, v in row.items() if not k.startswith("time/")} for row in history(run)]
    columns = sorted({name for row in rows for name in row} - {"step"})
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["step", *columns])
        writer.writeheader()
        writer.writerows(rows)
