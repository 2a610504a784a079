"""The record of what happened: runs, points, data sets and checkpoints, in MLflow.

With `tracking.store` (where it is), `tracking.traces` (consultations) and `tracking.registry` (models) the only door to MLflow. Plain functions, called inside tasks. Results never
depend on what is written here. A resumed training may repeat any call and nothing is recorded twice:

    training_run     the unfinished run with the same input hash and the same place goes on
    log_step         a metric only moves forward: a point at or before the metric's last step is dropped
    evaluation_run   one per training and figures
    log_dataset      one input per (name, digest)
    log_checkpoint   one logged model per (run, step, sha256)

Log a step after it is complete, else the first, abandoned try is what stays on the record.
"""

import getpass
import hashlib
import json
import logging
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from rl.files import folder_hash, write_json

# prepares MLflow's environment, so before MLflow
from tracking.errors import TrackingError
from tracking.provenance import inputs_of
from tracking.store import home, patiently, setup
from tracking.traces import log_consultations

# isort: split
import mlflow
from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelOutput, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_RUN_TYPE, MLFLOW_RUN_TYPE_GENAI_EVALUATE

__all__ = [
    "evaluation_run",
    "home",
    "is_there",
    "last_step",
    "log_artifacts",
    "log_checkpoint",
    "log_consultations",
    "log_dataset",
    "log_metrics_final",
    "log_step",
    "origin",
    "run_of",
    "setup",
    "training_run",
]

log = logging.getLogger(__name__)

MAX_PARAM_CHARS = 500  # MLflow takes 6000; the run page is unreadable long before
MAX_DIGEST_CHARS = 36  # MLflow's limit; an md5 and a DVC ".dir" md5 fit
MADE = ("dvc.lock", "metrics", "plots")  # tracked by git, written by DVC's stages
PARAMS_PER_CALL = 100  # MLflow's limit


@contextmanager
def training_run(name: str, key: str, params: Mapping[str, Any], tags: Mapping[str, str], root: Path) -> Iterator[str]:
    """One run for one training, taken up again where a killed or failed try with the same inputs left it.

    Ends FINISHED, FAILED on an `Exception`, KILLED on anything else (Ctrl-C, exit, a cancelled flow). A process that
    was killed outright leaves RUNNING behind, which is taken up too.

    Args:
        name: shown in the UI.
        key: input hash; an unfinished run with it is resumed.
        params: nested; flattened with dots. On resume the recorded ones stay.
        tags: for example `prefect.flow_run_id`; with `place`, a run that has another one is somebody else's and is left
            alone.
        root: the working tree whose git state, params.yaml and dvc.lock are recorded.

    Yields:
        The run id.
    """
    experiment = setup(root)
    client = mlflow.MlflowClient()
    run_id = _open_run(client, experiment, name, {"input_hash": key, **{k: tags[k] for k in ("place",) if k in tags}})
    try:
        _describe(client, run_id, params, {**_origin(root), **tags})
        for file in ("params.yaml", "dvc.lock"):
            if (root / file).is_file():
                log_artifacts(run_id, root / file)
        yield run_id
    except BaseException as error:
        try:
            patiently(client.set_terminated, run_id, "FAILED" if isinstance(error, Exception) else "KILLED")
        except TrackingError as unclosed:
            log.error("MLflow's run %s stays open: %s", run_id, unclosed)
        raise
    patiently(client.set_terminated, run_id, "FINISHED")


def _open_run(client: Any, experiment: str, name: str, known_by: Mapping[str, str]) -> str:
    same = " and ".join(f"tags.{key} = '{value}'" for key, value in known_by.items())
    unfinished = patiently(
        client.search_runs, [experiment], f"{same} and attributes.status != 'FINISHED'", max_results=1
    )
    if unfinished:
        run = unfinished[0]
        patiently(client.update_run, run.info.run_id, status="RUNNING")
        patiently(client.set_tag, run.info.run_id, "resumes", str(int(run.data.tags.get("resumes", 0)) + 1))
        log.info("run %s (%s) goes on after %s", run.info.run_id, name, run.info.status)
        return str(run.info.run_id)
    tags = {**known_by, **_started_by()}
    return str(patiently(client.create_run, experiment, run_name=name, tags=tags).info.run_id)


def _started_by() -> dict[str, str]:
    """Program and user, as MLflow shows them."""
    tags = {"mlflow.source.name": sys.argv[0]}
    with suppress(KeyError, OSError):  # a container's user may have no name
        tags["mlflow.user"] = getpass.getuser()
    return tags


def _describe(client: Any, run_id: str, params: Mapping[str, Any], tags: Mapping[str, str]) -> None:
    recorded = patiently(client.get_run, run_id).data.params
    flat = dict(_flatten(params))
    changed = sorted(key for key in flat.keys() & recorded.keys() if flat[key] != recorded[key])
    if changed:
        log.warning(
            "run %s was begun with other values of %s; the first ones stay on the record", run_id, ", ".join(changed)
        )
    new = [Param(key, value) for key, value in flat.items() if key not in recorded]
    for start in range(0, len(new), PARAMS_PER_CALL):
        patiently(client.log_batch, run_id, params=new[start : start + PARAMS_PER_CALL])
    patiently(client.log_batch, run_id, tags=[RunTag(key, str(value)) for key, value in tags.items()])


def _flatten(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Leaves of nested mappings as (dotted name, text); a long text keeps its head and its hash, so that two stay
    different.
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(inner, f"{name}.{key}" if name else str(key))
        return
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    if len(text) > MAX_PARAM_CHARS:
        text = f"{text[: MAX_PARAM_CHARS - 100]}... [{len(text)} characters, sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]}]"
    yield re.sub(r"[^\w./: -]", "_", name)[:250], text


def _origin(root: Path) -> dict[str, str]:
    """Where a run comes from: code (git) and stage (DVC). What the pipeline itself writes makes no tree dirty; a file among
    what a stage reads does, if no commit holds it.
    """

    def git(*words: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    environment = {"dvc.stage": "DVC_STAGE", "dvc.exp": "DVC_EXP_NAME", "dvc.exp_baseline": "DVC_EXP_BASELINE_REV"}
    tags = {tag: os.environ[variable] for tag, variable in environment.items() if os.environ.get(variable)}
    try:
        sha = git("rev-parse", "HEAD")
        changes = git(
            "status", "--porcelain", "--untracked-files=no", "--", ".", *(f":(exclude){name}" for name in MADE)
        )
        if not changes and (read := inputs_of(root)):
            changes = git("--literal-pathspecs", "ls-files", "--others", "--exclude-standard", "--", *read)
    except (OSError, subprocess.SubprocessError):
        return tags | {"git.sha": "unknown", "git.dirty": "unknown"}
    return tags | {"git.sha": sha, "mlflow.source.git.commit": sha, "git.dirty": str(bool(changes)).lower()}


def log_step(run_id: str, step: int, metrics: Mapping[str, float]) -> None:
    """Write the points of one rollout step, at once and synchronously.

    A metric only moves forward: a point at or before the metric's last step is dropped, since a resumed run repeats
    steps and MLflow would keep both. Several calls may share a step if their metrics differ.
    """
    client = mlflow.MlflowClient()
    last = _last_steps(patiently(client.get_run, run_id))
    now = time.time_ns() // 1_000_000
    points = [Metric(key, float(value), now, step) for key, value in metrics.items() if step > last.get(key, -1)]
    if points:
        patiently(client.log_batch, run_id, metrics=points)


def log_metrics_final(run_id: str, metrics: Mapping[str, float]) -> None:
    """Write what holds for the run as a whole, as points at its last step. A value that is another than the last one
    takes its place: the run shows what was measured last, as its report does.
    """
    client = mlflow.MlflowClient()
    run = patiently(client.get_run, run_id)
    step, now = max(_last_steps(run).values(), default=0), time.time_ns() // 1_000_000
    shown = {key: str(value) for key, value in run.data.metrics.items()}  # as text NaN is NaN
    changed = {key: float(value) for key, value in metrics.items() if shown.get(key) != str(float(value))}
    if changed:
        patiently(client.log_batch, run_id, metrics=[Metric(key, value, now, step) for key, value in changed.items()])


def evaluation_run(training: str, key: str, params: Mapping[str, Any], tags: Mapping[str, str]) -> str:
    """The run of an evaluation, on MLflow's page of evaluation runs (which leaves out what has a parent run); what was
    found before has one already.

    Args:
        training: run id of the training whose doctor it is of; kept as a tag.
        key: hash of what was found.
        params: nested; flattened with dots.
        tags: more tags.
    """
    client = mlflow.MlflowClient()
    trained = patiently(client.get_run, training).info
    found = patiently(client.search_runs, [trained.experiment_id], f"tags.evaluation = '{key}'", max_results=1)
    if found and found[0].info.status == "FINISHED":
        return str(found[0].info.run_id)
    about = {**tags, **_started_by(), "evaluation": key, "training": training}
    about[MLFLOW_RUN_TYPE] = MLFLOW_RUN_TYPE_GENAI_EVALUATE
    create = partial(client.create_run, run_name=f"test {trained.run_name}", tags=about)
    made = found[0] if found else patiently(create, trained.experiment_id)  # a kill left it open
    run_id = str(made.info.run_id)
    _describe(client, run_id, params, {})
    patiently(client.set_terminated, run_id, "FINISHED")
    return run_id


def is_there(run_id: str) -> bool:
    """Whether the store has a run; one that was lost, or another, has not."""
    try:
        patiently(mlflow.MlflowClient().get_run, run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return False
    return True


def note_doctor(project: Path, sha256: str, run_id: str) -> None:
    """Keep which run made a doctor."""
    write_json(_note(project, sha256), {"mlflow_run_id": run_id})


def run_of_doctor(project: Path, sha256: str) -> str | None:
    """The run in which a doctor was recorded last, whether the store still has it or not; None: it was not made here."""
    note = _note(project, sha256)
    return str(json.loads(note.read_text(encoding="utf-8"))["mlflow_run_id"]) if note.exists() else None


def run_of(model: Path, project: Path) -> str | None:
    """The run that trained a model folder, if it was trained here and the store still has it."""
    run_id = run_of_doctor(project, folder_hash(model))
    if run_id is not None and not is_there(run_id):
        log.warning(
            "MLflow's store has no run %s, which trained %s: was the store lost, or moved away? From its checkpoints "
            "`dvc repro --force --single-item train_doctor` writes it again",
            *(run_id, model),
        )
        return None
    return run_id


def _note(project: Path, sha256: str) -> Path:
    return project / "runs" / "doctors" / f"{sha256}.json"


def origin(run_id: str) -> dict[str, str]:
    """The commit that a run was made at, and whether the working tree differed from it."""
    tags = patiently(mlflow.MlflowClient().get_run, run_id).data.tags
    return {name: tags[name] for name in ("git.sha", "git.dirty") if name in tags}


def last_step(run_id: str) -> int:
    """The last step of which a run has a point; -1 of none."""
    return max(_last_steps(patiently(mlflow.MlflowClient().get_run, run_id)).values(), default=-1)


def _last_steps(run: Any) -> dict[str, int]:
    return {metric.key: metric.step for metric in run.data.to_proto().metrics}


def log_dataset(
    run_id: str, name: str, path: Path, digest: str, context: str, profile: Mapping[str, Any] | None = None
) -> None:
    """Say which data a run used; nothing is read.

    `digest` is DVC's md5 or any hash, shown in the run page beside the name.

    Args:
        run_id: the run.
        name: for example `cases`.
        path: where it lies.
        digest: above 36 characters its head is shown and the whole kept as a tag.
        context: what it was for: `train`, `validation`, `test`.
        profile: what is known of it, such as counts; shown beside it.
    """
    source = json.dumps({"uri": str(path)})
    told = json.dumps(profile) if profile else None
    dataset = Dataset(name, digest[:MAX_DIGEST_CHARS], source_type="local", source=source, profile=told)
    tags = [InputTag("mlflow.data.context", context), InputTag("digest", digest)]
    patiently(mlflow.MlflowClient().log_inputs, run_id, [DatasetInput(dataset, tags)])


def log_artifacts(run_id: str, path: Path) -> None:
    """Copy a file, or a folder under its own name, into the run's artifacts."""
    client = mlflow.MlflowClient()
    if path.is_dir():
        patiently(client.log_artifacts, run_id, str(path), artifact_path=path.name)
    else:
        patiently(client.log_artifact, run_id, str(path))


def log_text(run_id: str, text: str, name: str) -> None:
    """Keep a text as a file among the run's artifacts."""
    patiently(mlflow.MlflowClient().log_text, run_id, text, name)


def log_checkpoint(run_id: str, step: int, directory: Path, sha256: str, metrics: Mapping[str, float]) -> str:
    """Record a saved checkpoint as a logged model with its metrics. The weights stay where they are.

    A metric that the run already has at this step is attached as it was recorded, so that the run gets no second point.

    Returns:
        The logged model's id.
    """
    client = mlflow.MlflowClient()
    run = patiently(client.get_run, run_id)
    about = {"path": str(directory.resolve()), "sha256": sha256, "step": str(step)}
    same = f"source_run_id = '{run_id}' and tags.sha256 = '{sha256}' and tags.step = '{step}'"
    found = [m for m in patiently(client.search_logged_models, [run.info.experiment_id], same) if m.status == "READY"]
    if found:
        model_id = str(found[0].model_id)
    else:
        model = patiently(
            mlflow.create_external_model,
            f"global_step_{step}",
            source_run_id=run_id,
            experiment_id=run.info.experiment_id,
            params=about,
            tags=about,
            model_type="doctor",
        )
        model_id = str(model.model_id)
        patiently(client.log_outputs, run_id, [LoggedModelOutput(model_id, step)])
    latest = {metric.key: metric for metric in run.data.to_proto().metrics}
    points = []
    for key, value in metrics.items():
        point = latest.get(key)
        if point is not None and point.step != step:  # seldom: a resumed training saves again what is long behind
            point = next(
                (metric for metric in patiently(client.get_metric_history, run_id, key) if metric.step == step), None
            )
        if point is None:
            point = Metric(key, float(value), time.time_ns() // 1_000_000, step)
        elif point.value != float(value) and not math.isnan(point.value):
            log.warning(
                "run %s has %s = %g at step %d, not %g; the recorded value stays", run_id, key, point.value, step, value
            )
        points.append(Metric(key, point.value, point.timestamp, step, model_id=model_id))
    patiently(client.log_batch, run_id, metrics=points)
    return model_id
