"""The MLflow store, and consultations in it as traces.

With `tasks.tracking`, which builds on this and passes its names on, the only door to MLflow.

A consultation becomes one trace, made after the fact: the root span shows the dialogue, each doctor turn is a chat span, each
search a retriever span below it. Rewards are feedback on the trace and on the turns, the case's diagnosis an expectation. When
turns began and ended is not recorded; an episode's time is shared out among its turns by the tokens sampled in them.
"""

import logging
import os
import re
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from clinic.actions import Kind
from rl.experience import Scores, Trajectory

# Read by MLflow when it is imported (no usage statistics leave this machine) and when it makes its span exporter: batches of
# 512 spans instead of 5 write traces about three times faster.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "true")
os.environ.setdefault("MLFLOW_ASYNC_TRACE_LOGGING_MAX_SPAN_BATCH_SIZE", "512")

import mlflow
from mlflow.entities import AssessmentSource, SpanType
from mlflow.exceptions import MlflowException
from mlflow.tracing.constant import SpanAttributeKey, TraceMetadataKey
from mlflow.tracing.provider import safe_set_span_in_context

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

EXPERIMENT = "anamnesis"
DESCRIPTION = """Language-model doctors trained by reinforcement in simulated consultations.

One run per training, one point per rollout step. `reward/` what the reward measured, `rollout/` the consultations, `train/` the
updates, `validation/` held-out cases, `time/` where the time went. Traces: sample consultations, one span per doctor turn.
Models: every saved checkpoint. The registry's `@champion` is the doctor in use."""
PAUSES_S = (0.1, 0.3, 1.0, 3.0)  # between tries while the store is locked; each try waits up to 20 s by itself
TRACES_AT_ONCE = 32  # MLflow silently drops what waits above 2048 spans
TRIES = 3


class TrackingError(RuntimeError):
    """The record cannot be written or read as it must; the message names the thing, the value and the fix."""


def patiently(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Make a call on the store, a few times while another process keeps the database locked.

    Raises:
        TrackingError: it stayed locked. Any other error passes through.
    """
    for pause in (*PAUSES_S, None):
        try:
            return call(*args, **kwargs)
        except (MlflowException, sqlite3.OperationalError) as error:
            if "is locked" not in str(error):
                raise
            if pause is None:
                raise TrackingError(
                    f"the MLflow store {mlflow.get_tracking_uri()} stayed locked through {len(PAUSES_S) + 1} tries; "
                    "stop the other writer (a second training, a database browser), and keep mlruns/ off network disks"
                ) from error
            log.warning("the MLflow store is locked, trying again in %.1f s", pause)
            time.sleep(pause)
    raise AssertionError("unreachable")


def home(root: Path) -> Path:
    """The project that owns the store: $ANAMNESIS_HOME, else $DVC_ROOT (the parent's in `dvc exp run --temp`), else `root`."""
    return Path(os.environ.get("ANAMNESIS_HOME") or os.environ.get("DVC_ROOT") or root).resolve()


def setup(root: Path) -> str:
    """Point MLflow at the project's store and make what is missing there. May be called any number of times.

    $MLFLOW_TRACKING_URI wins if set; a relative SQLite path in it is meant from the project's home.

    Args:
        root: the working tree, maybe a temporary copy of the project.

    Returns:
        The id of the experiment.
    """
    owner = home(root)
    given = os.environ.get("MLFLOW_TRACKING_URI")
    uri = given or "sqlite:///mlruns/mlflow.db"
    artifacts = None  # a tracking server knows its own place
    if uri.startswith("sqlite:///"):
        database = owner / uri.removeprefix("sqlite:///")
        database.parent.mkdir(parents=True, exist_ok=True)
        uri, artifacts = f"sqlite:///{database}", (owner / "mlruns" / "artifacts").as_uri()
        patiently(_write_ahead, database)
    mlflow.set_tracking_uri(uri)
    if given is None:
        os.environ.pop("MLFLOW_TRACKING_URI", None)  # MLflow exports it, and then it would win over the next call's root
    return patiently(_experiment, artifacts)


def _write_ahead(database: Path) -> None:
    """Let readers (the UI) and the writer work at the same time; points are also written four times faster."""
    with closing(sqlite3.connect(database, timeout=20)) as connection:
        (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        log.warning("%s cannot use a write-ahead log (journal mode %s): the MLflow UI and a training may block each other", database, mode)


def _experiment(artifacts: str | None) -> str:
    client = mlflow.MlflowClient()
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is None:
        try:
            return str(client.create_experiment(EXPERIMENT, artifact_location=artifacts, tags={"mlflow.note.content": DESCRIPTION}))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another process was faster
                raise
        found = client.get_experiment_by_name(EXPERIMENT)
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)




Identity = tuple[str, str, str]


def log_consultations(  # what a trace shows
    run_id: str, trajectories: Sequence[Trajectory], scores: Sequence[Scores], step: int, split: str, tags: Mapping[str, str], began_s: float | None = None
) -> int:
    """Record consultations, each once: one of the same run, step, split, episode and `condition` tag is not recorded again.

    About 20 traces per second, 25 kB each: give it every evaluation, and of training a sample.

    Args:
        run_id: the run whose Traces tab shows them.
        trajectories: what happened.
        scores: matched by episode; a consultation without scores gets no feedback.
        step: rollout step.
        split: for example `train`.
        tags: more tags on every trace; `condition` tells apart the conditions under which one case was evaluated.
        began_s: Unix time when the rollout phase began; if left out, the last of these episodes is taken to end now.

    Returns:
        How many were new.

    Raises:
        TrackingError: some did not arrive in the store.
    """
    began = began_s if began_s is not None else time.time() - max((t.ended_s for t in trajectories), default=0.0)
    scored = {score.episode_id: score for score in scores}
    experiment = str(patiently(mlflow.MlflowClient().get_run, run_id).info.experiment_id)
    wanted: dict[Identity, Callable[[], str]] = {}
    for trajectory in trajectories:
        sheet = {**tags, **_sheet(trajectory), "rl.step": str(step), "split": split}
        wanted[_identity(sheet)] = partial(_record, trajectory, scored.get(trajectory.episode_id), sheet, run_id, experiment, began)
    new = left = wanted.keys() - _recorded(experiment, run_id, step)
    for _ in range(TRIES):
        if not left:
            return len(new)
        made = _write([(identity, record) for identity, record in wanted.items() if identity in left])
        left = left - _recorded(experiment, run_id, step)
        if left:  # MLflow only warns when it cannot write
            log.warning("%d of %d traces did not arrive in the MLflow store, trying again", len(left), len(made))
            patiently(mlflow.MlflowClient().delete_traces, experiment, trace_ids=[made[identity] for identity in left])
    if left:
        raise TrackingError(f"{len(left)} of {len(new)} traces of run {run_id} step {step} never arrived in {mlflow.get_tracking_uri()}; MLflow's warnings above say why")
    return len(new)


def _write(records: Sequence[tuple[Identity, Callable[[], str]]]) -> dict[Identity, str]:
    """Make the traces and wait until they are written; a few at a time, for the queue drops what does not fit."""
    made = {}
    for start in range(0, len(records), TRACES_AT_ONCE):
        made.update({identity: record() for identity, record in records[start : start + TRACES_AT_ONCE]})
        mlflow.flush_trace_async_logging()
    return made


def _sheet(trajectory: Trajectory) -> dict[str, str]:
    return {
        "case_id": trajectory.case_id,
        "episode_id": trajectory.episode_id,
        "sample": str(trajectory.sample),
        "policy_version": str(trajectory.policy_version),
        "stop_reason": trajectory.stop_reason,
    }


def _identity(tags: Mapping[str, str]) -> Identity:
    return tags.get("split", ""), tags.get("condition", ""), tags.get("episode_id", "")


def _recorded(experiment: str, run_id: str, step: int) -> set[Identity]:
    """What is there of a step. Tags are written together with the feedback, so a trace found by them is whole."""
    found: set[Identity] = set()
    token = None
    while True:
        page = patiently(
            mlflow.MlflowClient().search_traces,
            locations=[experiment],
            filter_string=f"attribute.run_id = '{run_id}' AND tags.`rl.step` = '{step}'",
            max_results=500,
            include_spans=False,
            page_token=token,
        )
        found |= {_identity(trace.info.tags) for trace in page}
        token = page.token
        if not token:
            return found


def _record(trajectory: Trajectory, score: Scores | None, sheet: Mapping[str, str], run_id: str, experiment: str, began: float) -> str:
    """Make one trace; returns its id. The exporter writes it in the background."""
    messages = list(trajectory.texts)
    clock = _clock(trajectory, began)
    root = mlflow.start_span_no_context(
        "consultation",
        span_type=SpanType.AGENT,
        inputs={"messages": messages[:-1]},
        tags=dict(sheet),
        metadata={TraceMetadataKey.SOURCE_RUN: run_id},
        experiment_id=experiment,
        start_time_ns=clock[0],
    )
    places = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    turns = [_turn(root, trajectory, k, place, (clock[k], clock[k + 1])) for k, place in enumerate(places[: len(clock) - 1])]
    with safe_set_span_in_context(root):  # feedback on an active trace is written with it, not row by row
        _assess(root.trace_id, [turn.span_id for turn in turns], trajectory, score)
    root.end(outputs={"choices": [{"message": messages[-1]}]}, status="ERROR" if trajectory.stop_reason == "failed" else "OK", end_time_ns=clock[-1])
    return str(root.trace_id)


def _clock(trajectory: Trajectory, began: float) -> list[int]:
    """Unix nanoseconds at which turns begin and end, one more than turns; within the episode estimated from sampled tokens."""
    weights = [max(stop - start, 1) for start, stop in trajectory.turns] or [1]
    length = (trajectory.ended_s - trajectory.started_s) / sum(weights)
    return [round((began + trajectory.started_s + length * done) * 1e9) for done in accumulate(weights, initial=0)]


def _turn(root: Any, trajectory: Trajectory, k: int, place: int, times: tuple[int, int]) -> Any:
    """The span of turn `k`, whose message is at `place`."""
    messages = list(trajectory.texts)
    event = trajectory.events[k] if k < len(trajectory.events) else {}  # none when the environment failed
    start, stop = trajectory.turns[k]
    kind = str(event.get("kind", "failed"))
    span = mlflow.start_span_no_context(
        f"turn {k + 1}: {kind}",
        span_type=SpanType.CHAT_MODEL,
        parent_span=root,
        inputs={"messages": messages[:place]},
        attributes={"event": event, SpanAttributeKey.CHAT_USAGE: {"input_tokens": start, "output_tokens": stop - start, "total_tokens": stop}},
        start_time_ns=times[0],
    )
    if kind == Kind.SEARCH:
        reply = messages[place + 1]["content"] if place + 1 < len(messages) else ""
        search = mlflow.start_span_no_context("search", span_type=SpanType.RETRIEVER, parent_span=span, inputs={"query": event.get("text", "")}, start_time_ns=times[1])
        search.end(outputs=_documents(reply, int(event.get("hits", 0))), end_time_ns=times[1])
    span.end(outputs={"choices": [{"message": messages[place]}]}, end_time_ns=times[1])
    return span


def _documents(reply: str, hits: int) -> list[dict[str, Any]]:
    """The passages as the doctor read them, one "title: text" per line; in one piece if the lines do not add up."""
    text = re.sub(r" \(\d+ left\)\Z", "", reply)
    lines = text.splitlines() if len(text.splitlines()) == hits else [text] * (hits > 0 and text != "")
    return [{"page_content": line, "metadata": {"doc_uri": line.partition(": ")[0]}} for line in lines]


def _assess(trace_id: str, spans: Sequence[str], trajectory: Trajectory, score: Scores | None) -> None:
    """Attach rewards as feedback and the case's diagnosis as expectation to the active trace."""
    source = AssessmentSource(source_type="CODE", source_id="reward")
    if diagnosis := trajectory.privileged.get("diagnosis_id"):
        mlflow.log_expectation(trace_id=trace_id, name="diagnosis", value=diagnosis, source=AssessmentSource(source_type="CODE", source_id="case"))
    if score is None:
        return
    components: dict[str, float] = {}
    for turn in score.turns:
        for name, value in turn.items():
            components[name] = components.get(name, 0.0) + float(value)
    formula = " ".join(f"{value:+.4g} {name}" for name, value in components.items())
    mlflow.log_feedback(trace_id=trace_id, name="reward", value=float(score.reward), rationale=formula, source=source)
    for name, value in components.items():
        mlflow.log_feedback(trace_id=trace_id, name=f"reward.{name}", value=value, source=source)
    for span_id, turn, reward in zip(spans, score.turns, score.turn_rewards, strict=False):
        formula = " ".join(f"{value:+.4g} {name}" for name, value in turn.items())
        mlflow.log_feedback(trace_id=trace_id, name="turn_reward", value=float(reward), rationale=formula, span_id=span_id, source=source)
