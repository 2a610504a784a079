"""Writes a training or an evaluation into MLflow. Nothing here changes a result."""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prefect.runtime import flow_run

from clinic.tables import Evaluation
from rl.checkpoint import folder_hash
from rl.experience import read_scores, read_trajectories
from tasks import traces, tracking
from tasks.console import Bar, duration
from tasks.evaluation import closed_distance, trajectories_of_note
from tasks.outputs import write_json
from tasks.parameters import HOME, ROOT
from tasks.progress import Phase
from tasks.training import Training
from tasks.versioning import output_digest

log = logging.getLogger(__name__)
SHOWN = (
    ("reward/mean", "reward", ".3f"), ("rollout/accuracy", "accuracy", ".3f"), ("rollout/turns", "turns", ".1f"), ("learn/explained_variance", "explained variance", ".2f"),
    ("learn/preferred", "preferred", ".2f"), ("learn/groups_drawn", "groups drawn", ".0f"),
)  # in the progress line, where they exist


class Recorder:
    """Writes one training into its MLflow run."""

    def __init__(self, run: Training, run_id: str) -> None:
        """Args: the training; its MLflow run."""
        self._run, self._id = run, run_id
        self._steps: Phase | None = None  # once the first is recorded

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """One point per rollout step, a fixed sample of its consultations as traces, and a line with rate and time left.

        The first step to be recorded is where this process begins: the warm start, or what an earlier run did and told.
        """
        tracking.log_step(self._id, step, metrics)
        if step:
            self._sample(step)
        steps, first = self._run.params.train_doctor.steps, self._steps is None
        phase = self._steps = self._steps or Phase("training", "steps", step, logged=False)
        if not first:
            log.info("%s", step_text(phase.bar(step, steps), metrics))
        if "validation/accuracy" in metrics and not (first and step):
            log.info("step %d  validation accuracy %.3f", step, metrics["validation/accuracy"])
        phase(step, steps)

    def _sample(self, step: int) -> None:
        count = self._run.params.train_doctor.traces_per_step
        if count and self._run.pairs is None:
            chosen, scores = trajectories_of_note(*self._run.experience(step), count)
            traces.log_consultations(self._id, chosen, scores, step, "train", {})

    def checkpoint(self, step: int, directory: Path, metrics: Mapping[str, float]) -> None:
        """A saved checkpoint as a logged model with the step's metrics."""
        tracking.log_checkpoint(self._id, step, directory, folder_hash(directory), metrics)

    def finish(self, chosen: Mapping[str, Any]) -> None:
        """Which checkpoints became the doctor; its run is found again by `run_of`."""
        steps = chosen["chosen_steps"]
        tracking.log_metrics_final(
            self._id, {"chosen/last_step": float(steps[-1]), "chosen/averaged": float(len(steps)), "chosen/validation_accuracy": float(chosen["chosen_accuracy"])}
        )
        write_json(HOME / "runs" / "doctors" / f"{chosen['sha256']}.json", {"mlflow_run_id": self._id})


@contextmanager
def open_recording(run: Training) -> Iterator[Recorder]:
    """Open (or, after a kill, reopen) the MLflow run of a training and name its data sets."""
    tracking.setup(HOME)
    params = {**run.params.model_dump(mode="json"), "recipe": run.algorithm.recipe.model_dump(mode="json")}
    tags = {"prefect.flow_run_id": str(flow_run.id or ""), "stage": "train_doctor", "checkpoints": str(run.folder)}
    with tracking.training_run(run.params.train_doctor.experiment, run.input_hash, params, tags, ROOT) as run_id:
        for name, path in (("cases", "data/cases"), ("knowledge_base", "data/kb_index"), ("warm_start", "models/warm_start")):
            tracking.log_dataset(run_id, name, ROOT / path, output_digest(path) or run.input_hash[:32], "training")
        yield Recorder(run, run_id)


def step_text(bar: Bar, metrics: Mapping[str, float]) -> str:
    """A rollout step in one line, with seconds a step and time left."""
    told = [f"{label} {metrics[name]:{form}}" for name, label, form in SHOWN if name in metrics]
    told.append(f"{1 / bar.rate:.1f} s/step" + (f", {duration(bar.left)} left" if bar.left else ""))
    return "  ".join([f"step {bar.done}/{bar.total}", *told])


def run_of(model: Path) -> str | None:
    """The MLflow run that trained a model folder, if it was trained here."""
    note = HOME / "runs" / "doctors" / f"{folder_hash(model)}.json"
    return str(json.loads(note.read_text())["mlflow_run_id"]) if note.exists() else None


def record_evaluation(metrics: Evaluation, doctor: Path, consultations: Path, page: Path) -> None:
    """Final figures, the page and a sample of the test consultations on the doctor's training run."""
    tracking.setup(HOME)
    run_id = run_of(doctor)
    if run_id is None:
        log.info("the doctor was not trained in this MLflow store; the evaluation is in the metrics file only")
        return
    measures = {name: table.overall.measures for name, table in metrics.doctors.items()}
    flat = {f"eval/{name.replace('@', ' at ')}/{measure}": value.mean for name, by in measures.items() for measure, value in by.items() if value}
    tracking.log_metrics_final(run_id, {**flat, "eval/closed_distance": closed_distance(metrics)})
    tracking.log_artifacts(run_id, page)
    chosen, scores = trajectories_of_note(read_trajectories(consultations / "rollout.parquet"), read_scores(consultations / "scores.parquet"), 20)
    traces.log_consultations(run_id, chosen, scores, 0, "test", {})
