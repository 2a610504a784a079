"""Writes a training or an evaluation into MLflow. Nothing here changes a result."""

import hashlib
import json
import logging
import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any

from clinic.cases import Case, read_cases
from clinic.tables import Evaluation
from doctor.evaluation_text import closed_distance, first_source, trajectories_of_note
from doctor.parameters import HOME, ROOT, Params
from doctor.scoring import right
from doctor.training import Training, history, kept, past_experience
from rl.experience import Scores, Trajectory, read_scores, read_trajectories
from rl.files import folder_hash, write_json
from tracking import runs, traces
from tracking.console import PARENT, Bar, duration
from tracking.errors import AwayError
from tracking.progress import Phase
from tracking.provenance import data_digest, is_own
from tracking.report_page import recorded
from tracking.traces import Truth

log = logging.getLogger(__name__)
Sample = tuple[list[Trajectory], list[Scores]]
# in the progress line, where they exist
SHOWN = (
    ("reward/mean", "reward", ".3f"),
    ("student/reward", "student's", ".3f"),
    ("rollout/accuracy", "accuracy", ".3f"),
    ("rollout/turns", "turns", ".1f"),
    ("learn/explained_variance", "explained variance", ".2f"),
    ("learn/preferred", "preferred", ".2f"),
    ("learn/groups_drawn", "groups drawn", ".0f"),
)


STALL_S = 4.0  # how long a step waits for the record of the one before it
RETRY_S = 5.0  # between two tries to reach a server that is away
PATIENCE_S = 60.0  # at the end, between two steps that MLflow takes of what is still to be written
TEST_TRACES = 20  # consultations of an evaluation
EVALUATION_PARAMS = {"seed", "consultation", "language_models", "decoding", "evaluate_doctor"}


class Recorder:
    """Writes one training into its MLflow run, beside the rollout that follows a step.

    While MLflow is away the training goes on. What it records is in its folder anyway, so that nothing has to be kept
    elsewhere: it is written in order once MLflow is back, by this process or by the next one that goes on with the run.
    """

    def __init__(self, run: Training, run_id: str) -> None:
        """Begin to write.

        Args:
            run: the training.
            run_id: its MLflow run.
        """
        self._run, self._id = run, run_id
        self._cases = {case.case_id: case for case in run.train}
        self._steps: Phase | None = None  # once the first is recorded
        self._writer = ThreadPoolExecutor(1, "mlflow")
        self._unwritten: list[Future[None]] = []
        self._away_since = 0.0  # monotonic seconds; 0: it is there
        self._taken_at = 0.0  # monotonic seconds, of the last step that MLflow took
        self._ending = threading.Event()

    def step(self, step: int, metrics: Mapping[str, float], checkpoint: Path | None = None) -> None:
        """One point per rollout step, a fixed sample of its consultations as traces, its checkpoint if it stays, and a
        line with rate and time left.

        The first step to be recorded is where this process begins: the warm start, or what an earlier run did and told.
        """
        if self._steps is None:
            self._submit(self._catch_up, step)
        self._submit(self._write, step, dict(metrics), self._sample(step, self._run.experience), checkpoint)
        steps, first = self._run.params.train_doctor.steps, self._steps is None
        phase = self._steps = self._steps or Phase("training", "steps", step, logged=False)
        if not first:
            log.info("%s", step_text(phase.bar(step, steps), metrics))
        if "validation/accuracy" in metrics and not (first and step):
            log.info("step %d  validation accuracy %.3f", step, metrics["validation/accuracy"])
        phase(step, steps)

    def _submit(self, write: Callable[..., None], *what: Any) -> None:
        """Write after what is to be written before it; until MLflow answers, or the run ends."""

        def insist() -> None:
            while True:
                try:
                    write(*what)
                except AwayError as error:
                    if not self._away_since:
                        self._away_since = time.monotonic()
                        log.warning("%s; the training goes on, and what it records is written later", error)
                    if self._ending.wait(RETRY_S):
                        raise
                else:
                    if self._away_since:
                        log.info("MLflow answers again, after %s", duration(time.monotonic() - self._away_since))
                        self._away_since = 0.0
                    return

        self._unwritten.append(self._writer.submit(copy_context().run, insist))

    def _catch_up(self, step: int) -> None:
        """Write of the steps before this one what the store lacks: it was lost, was away, or the run had ended in it."""
        last, begun = runs.last_step(self._id), self._run.folder / "validation" / "00000.json"
        if last < 0 < step and begun.exists():
            runs.log_step(self._id, 0, json.loads(begun.read_text()))
        past = {int(row["step"]): row for row in history(self._run) if last <= row["step"] < step}  # the last in part
        for done, row in past.items():
            metrics = {name: value for name, value in row.items() if name != "step"}
            self._write(done, metrics, self._sample(done, partial(past_experience, self._run)), kept(self._run, done))
        if missing := len(past.keys() - {last}):
            log.info("MLflow lacked %d earlier steps; they are written again from %s", missing, self._run.folder)

    def _sample(self, step: int, experience: Callable[[int], Sample]) -> Sample:
        count = self._run.params.train_doctor.traces_per_step
        return (
            trajectories_of_note(*experience(step), count) if step and count and self._run.pairs is None else ([], [])
        )

    def _write(self, step: int, metrics: Mapping[str, float], sample: Sample, checkpoint: Path | None) -> None:
        runs.log_step(self._id, step, metrics)
        if sample[0]:
            truths = truths_of(self._cases, sample[0])
            traces.log_consultations(self._id, *sample, step, "train", {}, truths=truths)
        if checkpoint is not None:
            runs.log_checkpoint(self._id, step, checkpoint, folder_hash(checkpoint), metrics)
        self._taken_at = time.monotonic()

    def written(self) -> None:
        """Wait until every step so far is in MLflow, for a moment and not while it is away; raise what kept one out.

        Called before the next checkpoint, so that a killed run has one step to record again.
        """
        self._wait(0.0 if self._away_since else STALL_S)

    def _deliver(self) -> None:
        """Wait for all that is to be written, as long as MLflow takes some of it.

        Raises:
            AwayError: it has taken nothing for `PATIENCE_S`.
        """
        began, told = time.monotonic(), False
        while self._unwritten:
            left = PATIENCE_S - (time.monotonic() - max(began, self._taken_at))
            if left <= 0:
                raise AwayError(
                    f"the training is done, but MLflow has {len(self._unwritten)} of its steps still to record and does not "
                    f"answer; nothing is lost: start the server, then run this again, which goes on from {self._run.folder}"
                )
            self._wait(min(left, STALL_S))
            if self._unwritten and not told:
                told = True
                log.info("the training is done; waiting for MLflow to take what it lacks")

    def _wait(self, longest_s: float) -> None:
        done, left = wait(self._unwritten, longest_s)
        for writing in [writing for writing in self._unwritten if writing in done]:
            writing.result()
        self._unwritten = [writing for writing in self._unwritten if writing in left]

    def close(self) -> None:
        """Wait for what is being written, whatever comes of it; not for what cannot be."""
        self._ending.set()
        self._writer.shutdown(wait=True, cancel_futures=bool(self._away_since))

    def finish(self, chosen: Mapping[str, Any]) -> None:
        """Which checkpoints became the doctor; its run is found again by `runs.run_of`.

        Raises:
            AwayError: MLflow has not come back; a rerun has only to record.
        """
        self._deliver()
        steps = chosen["chosen_steps"]
        runs.log_metrics_final(
            self._id,
            {
                "selected/last_step": float(steps[-1]),
                "selected/averaged": float(len(steps)),
                "selected/validation_accuracy": float(chosen["chosen_accuracy"]),
            },
        )
        runs.note_doctor(HOME, chosen["sha256"], self._id)


@contextmanager
def open_recording(run: Training, flow_run_id: str) -> Iterator[Recorder]:
    """Open (or, after a kill, reopen) the MLflow run of a training, with the id of the Prefect flow run it belongs to,
    and name its data sets.
    """
    runs.setup(HOME)
    told = run.params.model_dump(mode="json", exclude=untouched(run.params))
    params = {
        **told,
        "reward": told["reward"] | run.reward.model_dump(mode="json", exclude={"name"}),
        "recipe": run.algorithm.recipe.model_dump(mode="json", exclude={"name"}),
    }
    tags = {"prefect.flow_run_id": flow_run_id, "stage": "train_doctor", "checkpoints": str(run.folder)}
    tags["place"] = _place(run.folder)
    if parent := os.environ.get(PARENT):
        tags["prefect.parent_flow_run_id"] = parent
    with runs.training_run(run.params.run_name, run.input_hash, params, tags, ROOT) as run_id:
        _name_data(run, run_id)
        recorder = Recorder(run, run_id)
        try:
            yield recorder
        finally:
            recorder.close()


def _place(folder: Path) -> str:
    """A name for a training's folder that no other has, wherever it lies: on a server a second one of the same inputs has
    the same input hash.
    """
    note = folder / "place.json"
    if not note.exists():
        write_json(note, {"place": secrets.token_hex(16)})
    return str(json.loads(note.read_text(encoding="utf-8"))["place"])


def _name_data(run: Training, run_id: str) -> None:
    """Say which data a training reads: the project's own, or what its flow was told to take."""
    used = {
        "cases": ("data/cases", run.factory.cases, "patient_cases"),
        "knowledge_base": ("data/kb_index", run.factory.index, "knowledge_base"),
        "warm_start": ("models/warm_start", run.warm_start, "warm_start"),
    }
    for name, (output, place, stage) in used.items():
        if place is not None:
            told = told_by(stage) if is_own(output, place) else {}
            runs.log_dataset(run_id, name, place, data_digest(output, place), "training", told)


def told_by(stage: str) -> dict[str, Any]:
    """What a stage told of what it made: counts, losses; empty if it has told nothing that can be read."""
    try:
        return dict(json.loads((ROOT / "metrics" / f"{stage}.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def untouched(params: Params) -> dict[str, Any]:
    """What of `params.yaml` a training has nothing to do with, for its table of parameters."""
    best_of_n = {} if params.warm_start.start == "best_of_n" else {"warm_start": {"best_of_n"}}
    return {"evaluate_doctor": True, "retrain": True, "language_models": {"evaluation_judge"}, **best_of_n}


def step_text(bar: Bar, metrics: Mapping[str, float]) -> str:
    """A rollout step in one line, with seconds a step and time left."""
    told = [f"{label} {metrics[name]:{form}}" for name, label, form in SHOWN if name in metrics]
    told.append(f"{1 / bar.rate:.1f} s/step" + (f", {duration(bar.left)} left" if bar.left else ""))
    return "  ".join([f"step {bar.done}/{bar.total}", *told])


def record_evaluation(
    params: Params, metrics: Evaluation, doctor: Path, consultations: Path, page: Path, cases: Path
) -> None:
    """Final figures and the page on the doctor's training run; an evaluation run with its data set, the figures
    and a sample of the test consultations. If MLflow is away, the evaluation is worth having without.
    """
    try:
        _record_evaluation(params, metrics, doctor, consultations, page, cases)
    except AwayError as error:
        again = "`dvc repro --force --single-item evaluate_doctor`"
        log.warning("%s; the evaluation is in %s alone, and %s records it later", error, page, again)


def _record_evaluation(
    params: Params, metrics: Evaluation, doctor: Path, consultations: Path, page: Path, cases: Path
) -> None:
    runs.setup(HOME)
    run_id = runs.run_of(doctor, HOME)
    if run_id is None:
        log.info("the doctor was not trained in this MLflow store; the evaluation is in the metrics file only")
        return
    figures = final_metrics(metrics)
    runs.log_metrics_final(run_id, figures)
    told = recorded(page.read_text(encoding="utf-8"), time.strftime("%Y-%m-%d %H:%M %Z"), run_id, runs.origin(run_id))
    runs.log_text(run_id, told, page.name)
    step, data = max(runs.last_step(run_id), 0), folder_hash(cases)
    key = hashlib.sha256("\0".join([run_id, data, json.dumps(figures, sort_keys=True)]).encode()).hexdigest()
    tags = {"stage": "evaluate_doctor", "doctor.sha256": folder_hash(doctor), "rl.step": str(step)}
    asked = params.model_dump(mode="json", include=EVALUATION_PARAMS)
    evaluation = runs.evaluation_run(run_id, key, asked, tags | runs.origin(run_id))
    runs.log_dataset(evaluation, "cases", cases, data_digest("data/cases", cases), "test")
    runs.log_step(evaluation, step, figures)
    chosen, scores = trajectories_of_note(
        read_trajectories(consultations / "rollout.parquet"),
        read_scores(consultations / "scores.parquet"),
        TEST_TRACES,
    )
    seen = {case.case_id: case for case in read_cases(cases / "cases.parquet", "test")}
    traces.log_consultations(evaluation, chosen, scores, step, "test", {}, truths=truths_of(seen, chosen))


def record_consultation(doctor: Path, held: Trajectory) -> str | None:
    """Keep a consultation as a trace of the doctor's training run, where people can rate it; its id, if there is one."""
    runs.setup(HOME)
    run_id = runs.run_of(doctor, HOME)
    if run_id is None:
        return None
    when = {"condition": time.strftime("%Y-%m-%dT%H:%M:%S")}  # the same case may be seen again
    step = max(runs.last_step(run_id), 0)
    traces.log_consultations(run_id, [held], [], step, "consult", when)
    return traces.trace_id_of(run_id, step, "consult", when, held)


def rate_consultation(trace_id: str, score: float, comment: str) -> None:
    """Keep a person's score of a consultation on its trace."""
    runs.setup(HOME)
    traces.log_rating(trace_id, score, comment)


def truths_of(cases: Mapping[str, Case], trajectories: Sequence[Trajectory]) -> dict[str, Truth]:
    """What consultations should have ended with, by episode id."""
    return {
        t.episode_id: Truth((case := cases[t.case_id]).diagnosis, right(case, t))
        for t in trajectories
        if t.case_id in cases and t.turns
    }


def final_metrics(metrics: Evaluation) -> dict[str, float]:
    """The evaluation as MLflow metrics: every measure of the trained doctor, the accuracy of those it is compared with,
    whose tables the report has. What is not known, or withheld, is no metric.
    """
    flat: dict[str, float] = {}
    first = first_source(metrics).removeprefix("@")
    for name, table in metrics.doctors.items():
        doctor, _, source = name.partition("@")
        where = f" at {source}" if source else ""
        for measure, value in table.overall.measures.items():
            if value and doctor == "trained":
                flat[f"test/{measure}{where}"] = value.mean
                if source == first:  # by this name runs are compared, whatever their source
                    flat[f"test/{measure}"] = value.mean
            elif value and measure == "accuracy":
                flat[f"test_of_others/{doctor}{where}"] = value.mean
    closed = closed_distance(metrics)
    return flat if math.isnan(closed) else flat | {"test/closed_distance": closed}
