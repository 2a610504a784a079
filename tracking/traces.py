"""The MLflow store, and consultations in it as traces.

With `tracking.runs`, which builds on this and passes its names on, the only door to MLflow.

A consultation becomes one trace, made after the fact: the root span shows the dialogue, each doctor turn is a chat
span, each search a retriever span below it. Rewards are feedback on the trace and on the turns, the case's diagnosis an
expectation. When turns began and ended is not recorded; an episode's time is shared out among its turns by the tokens
sampled in them.

Traces go straight to the store, not through MLflow's tracer and its background exporter, which drops what it cannot
write or queue with no more than a warning and takes a second to flush.
"""

import base64
import hashlib
import json
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from clinic.events import FoundPassage, Searched, read_events
from rl.experience import Scores, StopReason, Trajectory

# MLflow reads these when it is imported: no usage statistics leave this machine.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "true")

import mlflow
from mlflow.entities import (
    Assessment,
    AssessmentSource,
    Expectation,
    Feedback,
    Span,
    SpanType,
    TraceInfo,
    TraceLocation,
    TraceState,
)
from mlflow.exceptions import MlflowException
from mlflow.tracing.client import TracingClient
from mlflow.tracing.constant import (
    TRACE_SCHEMA_VERSION,
    TRACE_SCHEMA_VERSION_KEY,
    SpanAttributeKey,
    TraceMetadataKey,
    TraceTagKey,
)

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

EXPERIMENT = "anamnesis"
DESCRIPTION = """Language-model doctors trained by reinforcement in simulated consultations.

One run per training, one point per rollout step. `reward/` what the reward measured, `rollout/` the consultations, `learn/` the
updates, `validation/` held-out cases, `time/` where the time went. Traces: sample consultations, one span per doctor turn.
Models: every saved checkpoint. The registry's `@challenger` is the latest doctor."""
PAUSES_S = (0.1, 0.3, 1.0, 3.0)  # between tries while the store is locked; each try waits up to 20 s by itself
TRACES_AT_ONCE = 32  # whose spans are written together
PREVIEW_CHARS = 1000  # MLflow's limit


class TrackingError(RuntimeError):
    """The record cannot be written or read as it must; the message names the thing, the value and the fix."""


def patiently(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Make a call on the store, a few times while another process keeps the database locked.

    Raises:
        TrackingError: it stayed locked. Any other error passes through.
    """
    pauses = list(PAUSES_S)
    while True:
        try:
            return call(*args, **kwargs)
        except (MlflowException, sqlite3.OperationalError) as error:
            if "is locked" not in str(error):
                raise
            if not pauses:
                raise TrackingError(
                    f"the MLflow store {mlflow.get_tracking_uri()} stayed locked through {len(PAUSES_S) + 1} tries; "
                    "stop the other writer (a second training, a database browser), and keep mlruns/ off network disks"
                ) from error
        log.warning("the MLflow store is locked, trying again in %.1f s", pauses[0])
        time.sleep(pauses.pop(0))


def home(root: Path) -> Path:
    """The project that owns the store: $ANAMNESIS_HOME, else $DVC_ROOT (the parent's in `dvc exp run --temp`), else
    `root`.
    """
    return Path(os.environ.get("ANAMNESIS_HOME") or os.environ.get("DVC_ROOT") or root).resolve()


def setup(root: Path) -> str:
    """Point MLflow at the project's store and make what is missing there. May be called any number of times.

    $MLFLOW_TRACKING_URI wins if set; a relative SQLite path in it is meant from the project's home. `root` is the
    working tree, maybe a temporary copy of the project. Returns the id of the experiment.
    """
    given = os.environ.get("MLFLOW_TRACKING_URI")
    uri = given or "sqlite:///mlruns/mlflow.db"
    local = uri.startswith("sqlite:///")
    database = home(root) / uri.removeprefix("sqlite:///")
    mlflow.set_tracking_uri(f"sqlite:///{database}" if local else uri)
    if given is None:
        # MLflow exports it, and then it would win over the next call's root
        os.environ.pop("MLFLOW_TRACKING_URI", None)
    if not local:
        return patiently(_experiment, None)  # a tracking server knows its own place for artifacts
    database.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(database.with_suffix(".lock"), timeout=60)) as turn:
        patiently(turn.execute, "BEGIN EXCLUSIVE")  # two processes that make MLflow's tables at once break both
        _write_ahead(database)
        return patiently(_experiment, (home(root) / "mlruns" / "artifacts").as_uri())


def _write_ahead(database: Path) -> None:
    """Let readers (the UI) and the writer work at the same time; points are also written four times faster."""
    with closing(sqlite3.connect(database, timeout=20)) as connection:
        (mode,) = patiently(connection.execute, "PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        log.warning(
            "%s cannot use a write-ahead log (journal mode %s): the MLflow UI and a training may block each other",
            database,
            mode,
        )


def _experiment(artifacts: str | None) -> str:
    client = mlflow.MlflowClient()
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is None:
        try:
            return str(
                client.create_experiment(
                    EXPERIMENT, artifact_location=artifacts, tags={"mlflow.note.content": DESCRIPTION}
                )
            )
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another process was faster
                raise
        found = client.get_experiment_by_name(EXPERIMENT)
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)


@dataclass(frozen=True)
class _Consultation:
    """One consultation on its way into the store; made by `log_consultations`, read by the functions below it."""

    trace_id: str
    played: Trajectory
    score: Scores | None
    tags: dict[str, str]
    clock: list[int]  # Unix nanoseconds at which turns begin and end, one more than turns

    def span_id(self, what: str) -> str:
        return _hash(self.trace_id, what)[:16]


def log_consultations(
    run_id: str,
    trajectories: Sequence[Trajectory],
    scores: Sequence[Scores],
    step: int,
    split: str,
    tags: Mapping[str, str],
    began_s: float | None = None,
) -> int:
    """Record consultations, each once: one of the same run, step, split, episode and `condition` tag is not recorded
    again.

    A trace takes about 15 ms and 25 kB: give it every evaluation, and of training a sample.

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
    """
    began = began_s if began_s is not None else time.time() - max((t.ended_s for t in trajectories), default=0.0)
    scored = {score.episode_id: score for score in scores}
    wanted: dict[str, _Consultation] = {}
    for t in trajectories:
        about = {
            "case_id": t.case_id,
            "episode_id": t.episode_id,
            "sample": str(t.sample),
            "policy_version": str(t.policy_version),
            "stop_reason": t.stop_reason,
        }
        trace_id = "tr-" + _hash(run_id, str(step), split, tags.get("condition", ""), t.episode_id)
        wanted[trace_id] = _Consultation(
            trace_id,
            t,
            scored.get(t.episode_id),
            {**tags, **about, "rl.step": str(step), "split": split},
            _clock(t, began),
        )
    experiment = str(patiently(mlflow.MlflowClient().get_run, run_id).info.experiment_id)
    there = _recorded(experiment, run_id, step)
    new = [consultation for trace_id, consultation in wanted.items() if trace_id not in there]
    client = TracingClient()
    for start in range(0, len(new), TRACES_AT_ONCE):
        together = new[start : start + TRACES_AT_ONCE]
        for consultation in together:
            patiently(client.start_trace, _info(consultation, experiment, run_id))
        patiently(client.log_spans, experiment, [span for consultation in together for span in _spans(consultation)])
    return len(new)


def _hash(*parts: str) -> str:
    """32 hexadecimal digits.

    Ids are hashes of what they name, so that writing again what was half written writes over it.
    """
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _clock(trajectory: Trajectory, began: float) -> list[int]:
    weights = [max(stop - start, 1) for start, stop in trajectory.turns] or [1]
    unit = (trajectory.ended_s - trajectory.started_s) / sum(weights)
    return [round((began + trajectory.started_s + unit * done) * 1e9) for done in accumulate(weights, initial=0)]


def _recorded(experiment: str, run_id: str, step: int) -> set[str]:
    """Ids of the whole traces of a step: spans are written last, and MLflow notes on the trace where it has them."""
    found: set[str] = set()
    search = partial(mlflow.MlflowClient().search_traces, locations=[experiment], max_results=500, include_spans=False)
    token: str | None = None
    while token != "":
        page = patiently(
            search, filter_string=f"attribute.run_id = '{run_id}' AND tags.`rl.step` = '{step}'", page_token=token
        )
        found |= {trace.info.trace_id for trace in page if TraceTagKey.SPANS_LOCATION in trace.info.tags}
        token = page.token or ""
    return found


def _info(consultation: _Consultation, experiment: str, run_id: str) -> TraceInfo:
    """A trace without its spans; the list of traces shows the patient's first words and the doctor's last."""
    played, clock = consultation.played, consultation.clock
    opening = next((message["content"] for message in played.texts if message["role"] == "user"), "")
    return TraceInfo(
        consultation.trace_id,
        TraceLocation.from_experiment_id(experiment),
        request_time=clock[0] // 1_000_000,
        execution_duration=(clock[-1] - clock[0]) // 1_000_000,
        state=TraceState.ERROR if played.stop_reason == StopReason.FAILED else TraceState.OK,
        request_preview=opening[:PREVIEW_CHARS],
        response_preview=played.texts[-1]["content"][:PREVIEW_CHARS],
        trace_metadata={TRACE_SCHEMA_VERSION_KEY: str(TRACE_SCHEMA_VERSION), TraceMetadataKey.SOURCE_RUN: run_id},
        tags={TraceTagKey.TRACE_NAME: "consultation", **consultation.tags},
        assessments=_assessments(consultation),
    )


def _assessments(consultation: _Consultation) -> list[Assessment]:
    """Rewards as feedback, on the trace and on its turns; the case's diagnosis as expectation."""
    found: list[Assessment] = []
    if diagnosis := consultation.played.privileged.get("diagnosis_id"):
        found.append(Expectation("diagnosis", diagnosis, AssessmentSource("CODE", "case")))
    if score := consultation.score:
        feedback = partial(Feedback, source=AssessmentSource("CODE", "reward"))
        total: dict[str, float] = {}
        for turn in score.turns:
            for name, value in turn.items():
                total[name] = total.get(name, 0.0) + float(value)
        found.append(feedback("reward", float(score.reward), rationale=_formula(total)))
        found += [feedback(f"reward.{name}", value) for name, value in total.items()]
        for k, (turn, reward) in enumerate(zip(score.turns, score.turn_rewards, strict=True)):
            found.append(
                feedback(
                    "turn_reward", float(reward), span_id=consultation.span_id(f"turn {k}"), rationale=_formula(turn)
                )
            )
    for assessment in found:
        assessment.assessment_id = "a-" + _hash(consultation.trace_id, assessment.name, assessment.span_id or "")
    return found


def _formula(components: Mapping[str, float]) -> str:
    return " ".join(f"{value:+.4g} {name}" for name, value in components.items())


def _spans(consultation: _Consultation) -> list[Span]:
    """The root, the turns, the searches. Inputs and outputs have the shapes that the UI shows as a chat."""
    played, clock, messages = consultation.played, consultation.clock, list(consultation.played.texts)
    root = consultation.span_id("root")
    span = partial(_span, consultation)
    spans = [span(root, None, "consultation", (clock[0], clock[-1]), _said(SpanType.AGENT, messages))]
    places = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    events = read_events(played.events)
    for k, (place, (start, stop)) in enumerate(zip(places, played.turns, strict=True)):
        event = events[k] if k < len(events) else None  # the environment failed in this turn
        kind = event.kind if event else StopReason.FAILED
        tokens = {
            SpanAttributeKey.CHAT_USAGE: {"input_tokens": start, "output_tokens": stop - start, "total_tokens": stop}
        }
        about = {
            "event": event.to_json() if event else {"kind": kind},
            **tokens,
            **_said(SpanType.CHAT_MODEL, messages[: place + 1]),
        }
        turn = consultation.span_id(f"turn {k}")
        spans.append(span(turn, root, f"turn {k + 1}: {kind}", (clock[k], clock[k + 1]), about))
        if isinstance(event, Searched):
            found = [_document(passage) for passage in event.passages]
            about = {
                SpanAttributeKey.SPAN_TYPE: SpanType.RETRIEVER,
                SpanAttributeKey.INPUTS: {"query": event.text},
                SpanAttributeKey.OUTPUTS: found,
            }
            spans.append(span(consultation.span_id(f"search {k}"), turn, "search", (clock[k + 1], clock[k + 1]), about))
    return spans


def _said(kind: str, messages: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    heard, answer = {"messages": list(messages[:-1])}, {"choices": [{"message": messages[-1]}]}
    return {SpanAttributeKey.SPAN_TYPE: kind, SpanAttributeKey.INPUTS: heard, SpanAttributeKey.OUTPUTS: answer}


def _document(passage: FoundPassage) -> dict[str, Any]:
    """A passage in the shape in which the UI shows what a retriever found."""
    about = {
        "doc_uri": passage.passage_id,
        "title": passage.title,
        "source": passage.source,
        "licence": passage.licence,
        "score": passage.score,
    }
    return {"page_content": passage.shown, "metadata": about}


def _span(
    consultation: _Consultation,
    span_id: str,
    parent: str | None,
    name: str,
    times: tuple[int, int],
    about: Mapping[str, Any],
) -> Span:
    def encoded(digits: str) -> str:
        return base64.b64encode(bytes.fromhex(digits)).decode()

    failed = parent is None and consultation.played.stop_reason == StopReason.FAILED
    attributes = {SpanAttributeKey.REQUEST_ID: consultation.trace_id, **about}
    record = {
        "trace_id": encoded(consultation.trace_id.removeprefix("tr-")),
        "span_id": encoded(span_id),
        "parent_span_id": encoded(parent) if parent else None,
        "name": name,
        "start_time_unix_nano": times[0],
        "end_time_unix_nano": times[1],
        "status": {"code": "STATUS_CODE_ERROR" if failed else "STATUS_CODE_OK", "message": ""},
        "attributes": {key: json.dumps(value, ensure_ascii=False) for key, value in attributes.items()},
    }
    return Span.from_dict(record)
