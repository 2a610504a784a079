"""Tasks of `train_doctor`: open the run, go on where it stopped, learn from one step, save."""

import csv
import hashlib
import json
import logging
import time
from pathlib import Path
from typing import Any, TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE

from clinic.cases import Case, read_cases
from clinic.questions import SOURCE as QUESTIONS
from clinic.rewards import Scorer
from rl.algorithms import Algorithm
from rl.algorithms.sampling import informative_groups, keep_informative
from rl.checkpoint import folder_hash, prune, steps_saved
from rl.experience import Scores, Trajectory, read_scores, read_trajectories, teaching, write_scores, write_trajectories
from rl.learner import gradient_steps_per_rollout
from rl.memory import available_bytes, estimate, memory_text, model_shape, refuse_what_cannot_fit
from rl.preferences import read_preferences
from rl.workers.local import Session
from tasks.opinions import opinions_of
from tasks.outputs import write_json
from tasks.parameters import HOME, ROOT, Params, load_params
from tasks.progress import Phase
from tasks.recipe import load_algorithm, load_reward, pairs_path, recipe_path, reward_path
from tasks.wiring import Waiting, cases_of_draw, open_waiting_room

log = logging.getLogger(__name__)
CODE = (
    "rl", "clinic", "kb", "tasks/parameters.py", "tasks/recipe.py", "tasks/wiring.py", "tasks/consultations.py", "tasks/endpoint.py", "tasks/language_models.py",
    "tasks/opinions.py", "tasks/rollout.py", "tasks/reward.py", "tasks/selection.py", "tasks/training.py", "flows/train_doctor.py",
)


class Training:
    """One training run: its inputs, its session and what it has played. Made by `open_training`, passed to every task of the flow.

    Experience is written once and kept in memory while it is needed; a file is read where an earlier process wrote it. Not a dataclass, so that Prefect
    passes a run on without walking through it.
    """

    def __init__(self, params: Params, algorithm: Algorithm, waiting: Waiting, warm_start: Path, cases: Path, digest: str) -> None:
        """Args: parameters, the learning rule, how to seat patients, the start weights, the folder of cases, the hash of all that decides the result."""
        self.params, self.algorithm, self.waiting, self.warm_start, self.input_hash = params, algorithm, waiting, warm_start, digest
        self.folder = HOME / "checkpoints" / params.train_doctor.project / f"{params.train_doctor.experiment}-{digest[:12]}"
        self.train = tuple(read_cases(cases / "cases.parquet", "train"))
        patients = (case for case in read_cases(cases / "cases.parquet", "validation") if case.source != QUESTIONS)
        self.validation = tuple(patients)[: params.train_doctor.validation_cases]
        self.session = _session(warm_start, params, algorithm)
        source = pairs_path(algorithm)
        self.pairs = read_preferences(source, self.session.chat) if source is not None else None  # what an offline algorithm reads instead of playing
        self.reward = load_reward(params.reward.preset)
        self.scorer = Scorer(self.reward, [waiting.clinic])
        self.opinions = opinions_of(self.reward, params.language_models, ROOT, params.seed)  # of judges, models or people, for the presets that ask them
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
        """Rollouts in one rollout step, at most: one, unless the algorithm refills groups without signal; none, if it reads its pairs from a file."""
        if self.pairs is not None:
            return 0
        return self.algorithm.dynamic_sampling.max_draws if self.algorithm.dynamic_sampling is not None else 1

    @property
    def plays_first(self) -> bool:
        """Whether all experience is sampled before the first update (offline algorithms)."""
        return not self.algorithm.on_policy

    def cases(self, step: int, draw: int) -> list[Case]:
        """The cases of one rollout of a step."""
        return cases_of_draw(self.train, self.params.rollout.prompts, (step - 1) * self.max_draws + draw, self.params.seed)

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
        """What was played and scored for a step, draw after draw, all of it or the first `draws`; of a file of pairs, the step's share."""
        if self.pairs is not None:
            return self.pairs.share(step, self.params.train_doctor.steps)
        trajectories: list[Trajectory] = []
        scores: list[Scores] = []
        for draw in range(self.max_draws if draws is None else draws):
            if draw and (step, draw) not in self._scored and not self.scores_file(step, draw).exists():  # enough groups before it
                break
            trajectories += self.played(step, draw)
            scores += self.scored(step, draw)
        return teaching(trajectories, scores), scores


def _session(warm_start: Path, params: Params, algorithm: Algorithm) -> Session:
    """A policy that begins at the warm start."""
    return Session(str(warm_start), params.machines.compute, params.rollout, algorithm, params.seed, params.train_doctor.lora, params.decoding.train.temperature)


T = TypeVar("T")


def _keep(held: dict[tuple[int, int], list[T]], step: int, draw: int, found: list[T]) -> None:
    """At hand are a step and its neighbours: the next one may be played while this one is learned from."""
    for old in [key for key in list(held) if abs(key[0] - step) > 1]:
        held.pop(old, None)
    held[step, draw] = found


def open_training(params_file: Path | None, warm_start: Path, cases: Path, index: Path) -> Training:
    """Load everything once; what an earlier run of the same inputs left is gone on from.

    Raises:
        TrainingError: it does not fit into memory.
    """
    params = load_params(params_file)
    algorithm = load_algorithm(params)
    waiting = open_waiting_room(params, index, cases)
    log.info("%s", plan_text(params, algorithm))
    memory = estimate(model_shape(str(warm_start), params.machines.compute, params.train_doctor.lora), params.rollout, algorithm, holes=not params.machines.spare_memory)
    log.info("%s", memory_text(memory))
    refuse_what_cannot_fit(memory, available_bytes())
    return Training(params, algorithm, waiting, warm_start, cases, input_hash(params, warm_start, cases, index))


def plan_text(params: Params, algorithm: Algorithm) -> str:
    """The accounting of a run in one line."""
    optimizer, group_size = algorithm.optimizer, algorithm.group_size
    trajectories = params.rollout.prompts * group_size
    updates = gradient_steps_per_rollout(algorithm.planned_units(params.rollout.prompts), algorithm.gradient_units, optimizer.num_epochs)
    return (
        f"{params.rollout.prompts} cases x {group_size} samples = {trajectories} trajectories a rollout step, {updates} gradient steps each; "
        f"{params.train_doctor.steps} rollout steps; warm-up {optimizer.warmup_rollout_steps} rollout steps = {optimizer.warmup_rollout_steps * updates} gradient steps"
    )


def input_hash(params: Params, warm_start: Path, cases: Path, index: Path) -> str:
    """sha256 over everything a training result depends on: parameters, recipes, data, start weights and code."""
    digest = hashlib.sha256()
    digest.update(json.dumps(_what_counts(params), sort_keys=True).encode())
    for recipe in (recipe_path(params), reward_path(params.reward.preset)):
        digest.update(recipe.read_bytes())
    if (pairs := pairs_path(load_algorithm(params))) is not None:
        digest.update(pairs.read_bytes())
    starter = ROOT / params.patient_cases.starter.directory
    for folder in (warm_start, cases, index, starter):
        digest.update(folder_hash(folder).encode())
    for name in CODE:
        place = ROOT / name
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _what_counts(params: Params) -> dict[str, Any]:
    """The parameters that a training result depends on: not when a run gives up, where an endpoint is, or who judges the evaluation."""
    counting = {"seed", "patient_cases", "consultation", "reward", "warm_start", "language_models", "algorithm", "rollout", "decoding", "train_doctor"}
    sections = params.model_dump(mode="json", include=counting)
    del sections["language_models"]["evaluation_judge"], sections["rollout"]["max_failed_share"], sections["reward"]["max_missing_share"]
    for model in filter(None, sections["language_models"].values()):
        for transport in ("url", "key_env", "timeout_s", "retries", "concurrency"):
            model.pop(transport, None)
    return sections | {"compute": params.machines.compute}


@task(cache_policy=NO_CACHE)
def restore(run: Training) -> tuple[int, dict[str, float]]:
    """Go on from the last complete checkpoint; returns the last rollout step that is done and its metrics (step 0: the warm start, none)."""
    done = steps_saved(run.folder)
    if not done:
        return 0, {}
    run.session.restore(run.folder / f"global_step_{done[-1]}")
    log.info("resuming after rollout step %d from %s", done[-1], run.folder)
    return done[-1], json.loads((run.step_folder(done[-1]) / "metrics.json").read_text())


def added(metrics: dict[str, float], later: dict[str, float]) -> dict[str, float]:
    """Metrics of a step after one more draw: seconds add up, the rest is of all draws so far."""
    return metrics | {name: value + metrics.get(name, 0.0) if name.endswith("_s") and not name.endswith("per_s") else value for name, value in later.items()}


def enough(run: Training, step: int, draws: int) -> bool:
    """Whether a step's first `draws` rollouts hold all the groups it can learn from: always, unless the algorithm refills those without signal."""
    dynamic = run.algorithm.dynamic_sampling
    return dynamic is None or len(informative_groups(*run.experience(step, draws), dynamic)) >= run.params.rollout.prompts


@task(cache_policy=NO_CACHE, task_run_name="learn {step}")
def learn(run: Training, step: int) -> dict[str, float]:
    """The training phase of one step. A retry first returns to the policy that the step started from."""
    live = run.session
    if live.learner.policy_version != step - 1:
        _return_to(run, step - 1)
    trajectories, scores = run.experience(step)
    dropped: dict[str, float] = {}
    if run.algorithm.dynamic_sampling is not None:
        trajectories, scores, dropped = keep_informative(trajectories, scores, run.algorithm.dynamic_sampling, run.params.rollout.prompts)
    began = time.monotonic()
    metrics = live.learn(trajectories, scores, step, Phase(f"learn {step}", "gradient steps")) | dropped
    return {f"learn/{name}": value for name, value in metrics.items()} | {"time/learn_s": time.monotonic() - began}


def _return_to(run: Training, step: int) -> None:
    if step == 0:
        fresh = _session(run.warm_start, run.params, load_algorithm(run.params))
        run.session.model.load_state_dict(fresh.model.state_dict())
        run.session.learner.load_state(fresh.learner.state())
    else:
        run.session.restore(run.folder / f"global_step_{step}")


@task(cache_policy=NO_CACHE, task_run_name="save {step}")
def save(run: Training, step: int, metrics: dict[str, float], *, last: bool) -> Path | None:
    """Write the step's metrics, and its checkpoint if it is due (the last one's always is); returns the checkpoint if it is one that stays."""
    plan = run.params.train_doctor
    write_json(run.step_folder(step) / "metrics.json", metrics)
    if step % plan.save_freq and not last:
        return None
    directory = run.session.save(run.folder, step)
    prune(run.folder, plan.keep_every)
    return directory if step % plan.keep_every == 0 or last else None


def history(run: Training) -> list[dict[str, float]]:
    """Metrics of every finished step, in order."""
    paths = sorted((run.folder / "steps").glob("*/metrics.json"))
    return [{"step": int(path.parent.name), **json.loads(path.read_text())} for path in paths]


def write_curve(run: Training, path: Path) -> None:
    """The learning curve as CSV, for `dvc plots` and people; only columns that do not depend on the clock."""
    rows = [{k: v for k, v in row.items() if not k.startswith("time/")} for row in history(run)]
    columns = sorted({name for row in rows for name in row} - {"step"})
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["step", *columns])
        writer.writeheader()
        writer.writerows(rows)
