"""Consultations in the MLflow store as traces.

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
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

from clinic.events import FoundPassage, Searched, read_events, speakers
from rl.experience import Scores, StopReason, Trajectory

# prepares MLflow's environment, so before MLflow
from tracking.store import patiently

# isort: split
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
from mlflow.tracing.client import TracingClient
from mlflow.tracing.constant import (
    TRACE_SCHEMA_VERSION,
    TRACE_SCHEMA_VERSION_KEY,
    SpanAttributeKey,
    TraceMetadataKey,
    TraceTagKey,
)

log = logging.getLogger(__name__)

TRACES_AT_ONCE = 32  # whose spans are written together
PREVIEW_CHARS = 1000  # MLflow's limit


@dataclass(frozen=True)
class Truth:
    """What a consultation should have ended with, and whether it did."""

    diagnosis: str
    correct: bool


@dataclass(frozen=True, kw_only=True)
class _Consultation:
    """One consultation on its way into the store; made by `log_consultations`, read by the functions below it."""

    trace_id: str
    played: Trajectory
    score: Scores | None
    truth: Truth | None
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
    truths: Mapping[str, Truth] | None = None,
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
        truths: by episode id, where it is known.

    Returns:
        How many were new.
    """
    began = time.time() - max((t.ended_s for t in trajectories), default=0.0)  # the last of these ends now
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
        trace_id = trace_id_of(run_id, step, split, tags, t)
        wanted[trace_id] = _Consultation(
            trace_id=trace_id,
            played=t,
            score=scored.get(t.episode_id),
            truth=(truths or {}).get(t.episode_id),
            tags={**tags, **about, "rl.step": str(step), "split": split},
            clock=_clock(t, began),
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


def trace_id_of(run_id: str, step: int, split: str, tags: Mapping[str, str], held: Trajectory) -> str:
    """The trace under which `log_consultations` records a consultation."""
    return "tr-" + _hash(run_id, str(step), split, tags.get("condition", ""), held.episode_id)


def log_rating(trace_id: str, score: float, comment: str) -> None:
    """A person's score, on a trace that is there; `human`, as the reward preset calls it."""
    rating = Feedback(
        "human", score, source=AssessmentSource("HUMAN", "visitor"), rationale=comment or None, trace_id=trace_id
    )
    patiently(TracingClient().log_assessment, trace_id, rating)


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
    if truth := consultation.truth:
        found.append(Expectation("diagnosis", truth.diagnosis, AssessmentSource("CODE", "case")))
        found.append(Feedback("correct", truth.correct, source=AssessmentSource("CODE", "case")))
    elif diagnosis := consultation.played.privileged.get("diagnosis_id"):
        found.append(Expectation("diagnosis", diagnosis, AssessmentSource("CODE", "case")))
    if (score := consultation.score) and score.turns:
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
    played, clock, events = consultation.played, consultation.clock, read_events(consultation.played.events)
    messages = [
        {"role": "tool", "name": who, "content": message["content"]} if who == "library" else dict(message)
        for message, who in zip(played.texts, speakers(played.texts, events, len(played.turns)), strict=True)
    ]
    root = consultation.span_id("root")
    span = partial(_span, consultation)
    spans = [span(root, None, "consultation", (clock[0], clock[-1]), _said(SpanType.AGENT, messages))]
    places = [i for i in range(len(played.opening), len(messages)) if messages[i]["role"] == "assistant"]
    for k, (place, (start, stop)) in enumerate(zip(places, played.turns, strict=True)):
        event = events[k] if k < len(events) else None  # the environment failed in this turn
        kind = event.kind if event else StopReason.FAILED
        usage = {"input_tokens": start, "output_tokens": stop - start, "total_tokens": stop}
        tokens = {SpanAttributeKey.CHAT_USAGE: usage} if played.token_ids else {}  # a served doctor's are not told
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
        "section": passage.section,
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
