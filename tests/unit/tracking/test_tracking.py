"""The record, against a real MLflow store in a temporary folder: one store for the module, read back through MLflow's
API.
"""

import json
import math
import os
import sqlite3
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from clinic.events import Asked, Diagnosed, FoundPassage, Searched
from rl.experience import Scores, Trajectory
from tests.stores import store_in
from tracking import registry, store, traces
from tracking import runs as tracking

mlflow = tracking.mlflow  # imported by the door, after it has set MLflow's environment
VARIABLES = ["MLFLOW_TRACKING_URI", "ANAMNESIS_HOME", "DVC_ROOT", "DVC_STAGE", "DVC_EXP_NAME", "DVC_EXP_BASELINE_REV"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    with store_in(tmp_path_factory.mktemp("project")) as root:
        yield root


@pytest.fixture(scope="module")
def client(root):
    return mlflow.MlflowClient()


@pytest.fixture
def run(root, request):
    with tracking.training_run(request.node.name, request.node.name, {}, {}, root) as run_id:
        yield run_id


FOUND = tuple(
    FoundPassage(passage_id=f"{title}#0", title=title, text=text, source="a book", licence="CC0-1.0", score=score)
    for title, text, score in (("Pleurisy", "pain on breathing", 0.75), ("Angina", "pain on effort", 0.5))
)


def consultation(sample=0, stop_reason="diagnosed", found=FOUND):
    texts = [
        {"role": "system", "content": "Ask, then diagnose."},
        {"role": "user", "content": "我胸口疼 (3 left)"},
        {"role": "assistant", "content": "<answer>Search: chest pain</answer>"},
        {"role": "user", "content": "Pleurisy: pain on breathing\nAngina: pain on effort (2 left)"},
        {"role": "assistant", "content": "<answer>Question: Does it hurt to breathe?</answer>"},
        {"role": "user", "content": "Yes. (1 left)"},
        {"role": "assistant", "content": "<answer>Diagnosis: Pleurisy</answer>"},
    ]
    events = [
        Searched("chest pain", found),
        Asked(text="Does it hurt to breathe?", topic="pleuritic_pain", present=True, repeated=False, reply="Yes."),
        Diagnosed("Pleurisy"),
    ]
    if stop_reason == "failed":  # the environment broke in the last turn
        events.pop()
    turns = ((10, 20), (30, 60), (65, 75))
    return Trajectory(
        episode_id=f"case-7/{sample}",
        case_id="case-7",
        group_id="4/case-7",
        sample=sample,
        policy_version=3,
        turn_budget=3,
        token_ids=tuple(range(75)),
        logprobs=(0.0,) * 75,
        loss_mask=(0,) * 75,
        turns=turns,
        texts=tuple(texts),
        events=tuple(event.to_json() for event in events),
        stop_reason=stop_reason,
        privileged={"diagnosis_id": "pleurisy"},
        started_s=1.0,
        ended_s=6.0,
    )


def scored(trajectory):
    return Scores(
        trajectory.episode_id, ({"turn": -0.1}, {"turn": -0.1, "information": 0.25}, {"turn": -0.1, "diagnosis": 1.0})
    )


def stored_traces(client, run_id, spans=True):
    experiment = client.get_run(run_id).info.experiment_id
    return client.search_traces(
        locations=[experiment], filter_string=f"attribute.run_id = '{run_id}'", include_spans=spans, max_results=100
    )


# the store


def test_the_store_lies_in_the_project_and_lets_readers_read(root, client):
    assert mlflow.get_tracking_uri() == f"sqlite:///{root}/mlruns/mlflow.db"
    assert "MLFLOW_TRACKING_URI" not in os.environ  # else it would win over the next project's root
    with sqlite3.connect(root / "mlruns" / "mlflow.db") as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    experiment = client.get_experiment_by_name("anamnesis")
    assert experiment.artifact_location == f"file://{root}/mlruns/artifacts"
    assert "rollout step" in experiment.tags["mlflow.note.content"]


def test_setup_again_changes_nothing_and_a_deleted_experiment_comes_back(root, client):
    experiment = tracking.setup(root)
    client.delete_experiment(experiment)
    assert tracking.setup(root) == experiment
    assert client.get_experiment(experiment).lifecycle_stage == "active"


def test_processes_take_turns_at_making_the_store(root):
    other = sqlite3.connect(root / "mlruns" / "mlflow.lock", check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    threading.Timer(0.5, other.close).start()
    began = time.monotonic()
    tracking.setup(root)
    assert time.monotonic() - began > 0.4


def test_the_store_is_the_parents_in_a_temporary_copy(tmp_path, root, monkeypatch):
    copy = tmp_path / ".dvc" / "tmp" / "exps" / "copy"
    assert tracking.home(copy) == copy
    monkeypatch.setenv("DVC_ROOT", str(root))
    assert tracking.home(copy) == root
    tracking.setup(copy)
    assert mlflow.get_tracking_uri() == f"sqlite:///{root}/mlruns/mlflow.db"
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path))
    assert tracking.home(copy) == tmp_path


def test_a_relative_address_is_meant_from_the_project(root, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlruns/mlflow.db")
    tracking.setup(root)
    assert mlflow.get_tracking_uri() == f"sqlite:///{root}/mlruns/mlflow.db"
    assert not (tmp_path / "mlruns").exists()


def test_a_locked_store_is_tried_again_and_then_named(root, monkeypatch):
    monkeypatch.setattr(store, "PAUSES_S", (0.0, 0.0))
    tries = []

    def busy(times):
        tries.append(1)
        if len(tries) <= times:
            raise mlflow.exceptions.MlflowException("(sqlite3.OperationalError) database is locked")
        return "done"

    assert store.patiently(busy, 2) == "done"
    tries.clear()
    with pytest.raises(tracking.TrackingError, match=r"mlflow\.db stayed locked through 3 tries"):
        store.patiently(busy, 3)


def test_other_errors_of_the_store_pass_through(client):
    with pytest.raises(mlflow.exceptions.MlflowException, match="not found"):
        store.patiently(client.get_run, "0" * 32)


# runs


def test_a_run_is_described(root, client, monkeypatch, tmp_path):
    git = tmp_path / "git"
    git.write_text('#!/bin/sh\ncase "$*" in *rev-parse*) echo abc123;; *) echo " M params.yaml";; esac\n')
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("DVC_STAGE", "train_doctor")
    (root / "params.yaml").write_text("seed: 1\n")
    params = {
        "rl": {"lr": 3e-5, "betas": [0.9, 0.95], "off": None},
        "odd(key)": "x",
        "prompt": "a" * 9000,
        "other": "a" * 9001,
    }
    with tracking.training_run("described", "described", params, {"prefect.flow_run_id": "77"}, root) as run_id:
        assert client.get_run(run_id).info.status == "RUNNING"
    run = client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "described"
    recorded = run.data.params
    assert (recorded["rl.lr"], recorded["rl.betas"], recorded["rl.off"], recorded["odd_key_"]) == (
        "3e-05",
        "[0.9, 0.95]",
        "null",
        "x",
    )
    assert "9000 characters" in recorded["prompt"]
    assert len(recorded["prompt"]) <= 500
    assert recorded["prompt"] != recorded["other"]
    expected = {
        "git.sha": "abc123",
        "mlflow.source.git.commit": "abc123",
        "git.dirty": "true",
        "dvc.stage": "train_doctor",
        "prefect.flow_run_id": "77",
        "input_hash": "described",
    }
    assert expected.items() <= run.data.tags.items()
    assert [file.path for file in client.list_artifacts(run_id)] == ["params.yaml"]
    assert (root / "mlruns" / "artifacts" / run_id / "artifacts" / "params.yaml").read_text() == "seed: 1\n"


def test_many_parameters_fit(root, client):
    with tracking.training_run("many", "many", {"x": {str(i): i for i in range(250)}}, {}, root) as run_id:
        pass
    assert len(client.get_run(run_id).data.params) == 250


def test_a_run_is_there_or_not_and_has_a_last_step(run):
    assert tracking.is_there(run)
    assert not tracking.is_there("0" * 32)
    assert tracking.last_step(run) == -1
    tracking.log_step(run, 3, {"x": 1.0})
    tracking.log_step(run, 2, {"y": 1.0})
    assert tracking.last_step(run) == 3


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError, "FAILED"), (KeyboardInterrupt, "KILLED"), (SystemExit, "KILLED")]
)
def test_a_stopped_training_is_taken_up_again(root, client, error, status):
    key = f"stopped-{error.__name__}"
    runs = []

    def stop():
        with tracking.training_run("stopped", key, {"a": 1, "b": 1}, {}, root) as run_id:
            runs.append(run_id)
            raise error

    with pytest.raises(error):
        stop()
    (first,) = runs
    assert client.get_run(first).info.status == status
    with tracking.training_run("stopped", key, {"a": 2, "c": 3}, {}, root) as second:
        assert client.get_run(second).info.status == "RUNNING"
    assert second == first
    run = client.get_run(first)
    assert run.info.status == "FINISHED"
    assert run.data.tags["resumes"] == "1"
    assert run.data.params == {"a": "1", "b": "1", "c": "3"}
    with tracking.training_run("stopped", key, {}, {}, root) as third:  # a finished one is left alone
        assert third != first


def test_a_training_killed_outright_is_taken_up_too(root, client):
    opened = tracking.training_run("shot", "shot", {}, {}, root)
    first = opened.__enter__()  # and never closed
    with tracking.training_run("shot", "shot", {}, {}, root) as second:
        assert second == first
    assert client.get_run(first).info.status == "FINISHED"


def test_a_training_of_the_same_inputs_in_another_place_has_a_run_of_its_own(root, client):
    """As two people have it who share a server and try the bundled clinic."""
    mine = tracking.training_run("mine", "shared", {}, {"place": "here"}, root)
    first = mine.__enter__()
    with tracking.training_run("other", "shared", {}, {"place": "there"}, root) as second:
        assert second != first
    assert client.get_run(first).info.status == "RUNNING"
    with tracking.training_run("mine", "shared", {}, {"place": "here"}, root) as again:
        assert again == first


def test_no_git_is_no_obstacle(root, client, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with tracking.training_run("plain", "plain", {}, {}, root) as run_id:
        assert client.get_run(run_id).data.tags["git.sha"] == "unknown"


# points


def test_a_repeated_step_is_not_doubled(run, client):
    for step in (1, 2, 3):
        tracking.log_step(run, step, {"reward/mean": step / 10, "train/kl": 0.5})
    for step in (2, 3, 4):  # as after a kill
        tracking.log_step(run, step, {"reward/mean": step / 7, "train/kl": 0.5})
    history = client.get_metric_history(run, "reward/mean")
    assert [(point.step, point.value) for point in history] == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 4 / 7)]
    assert [point.step for point in client.get_metric_history(run, "train/kl")] == [1, 2, 3, 4]


def test_another_metric_may_come_later_in_the_same_step(run, client):
    tracking.log_step(run, 0, {"reward/mean": 0.1})
    tracking.log_step(run, 0, {"validation/accuracy": 0.5, "reward/mean": 9.0})
    assert client.get_run(run).data.metrics == {"reward/mean": 0.1, "validation/accuracy": 0.5}


def test_a_step_that_diverged_is_recorded(run, client):
    tracking.log_step(run, 1, {"train/loss": float("nan"), "train/ratio": float("inf")})
    assert math.isnan(client.get_run(run).data.metrics["train/loss"])


def test_final_values_stand_at_the_last_step_once(run, client):
    tracking.log_step(run, 8, {"reward/mean": 0.1})
    for _ in range(2):
        tracking.log_metrics_final(run, {"test/accuracy": 0.75, "test/top3": float("nan")})
    assert [(point.step, point.value) for point in client.get_metric_history(run, "test/accuracy")] == [(8, 0.75)]
    assert len(client.get_metric_history(run, "test/top3")) == 1


def test_a_run_shows_the_figures_that_were_measured_last_as_its_report_does(run, client):
    tracking.log_step(run, 8, {"reward/mean": 0.1})
    for accuracy in (0.75, 0.60, 0.60, 0.65):
        tracking.log_metrics_final(run, {"test/accuracy": accuracy})
        assert client.get_run(run).data.metrics["test/accuracy"] == accuracy
        time.sleep(0.002)  # MLflow tells points of one step apart by the millisecond
    history = client.get_metric_history(run, "test/accuracy")
    assert sorted((point.step, point.value) for point in history) == [(8, 0.60), (8, 0.65), (8, 0.75)]


# data sets and files


@pytest.mark.parametrize("digest", ["889b5d79" * 4 + ".dir", "ab" * 32])
def test_a_data_set_is_named_by_its_digest(run, client, digest):
    for _ in range(2):
        tracking.log_dataset(run, "cases", Path("data/cases"), digest, "train")
    (found,) = client.get_run(run).inputs.dataset_inputs
    assert (found.dataset.name, found.dataset.digest, found.dataset.source_type) == ("cases", digest[:36], "local")
    assert json.loads(found.dataset.source) == {"uri": "data/cases"}
    assert {tag.key: tag.value for tag in found.tags} == {"mlflow.data.context": "train", "digest": digest}


def test_files_and_folders(run, client, tmp_path):
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "table.md").write_text("| a |")
    tracking.log_artifacts(run, tmp_path / "report")
    tracking.log_artifacts(run, tmp_path / "report" / "table.md")
    assert {"report", "table.md"} <= {file.path for file in client.list_artifacts(run)}
    assert [file.path for file in client.list_artifacts(run, "report")] == ["report/table.md"]


# consultations


def test_a_consultation_reads_back_as_a_chat(run, client):
    played = consultation()
    assert tracking.log_consultations(run, [played], [scored(played)], 4, "train", {"condition": "sampled"}) == 1
    (trace,) = stored_traces(client, run)
    root, *rest = trace.data.spans
    assert (root.name, root.span_type, root.parent_id) == ("consultation", "AGENT", None)
    said = [
        *played.texts[:3],
        {"role": "tool", "name": "library", "content": played.texts[3]["content"]},
        *played.texts[4:],
    ]
    assert root.inputs == {"messages": said[:-1]}
    assert root.outputs == {"choices": [{"message": played.texts[-1]}]}
    turns = [span for span in rest if span.span_type == "CHAT_MODEL"]
    assert [turn.name for turn in turns] == ["turn 1: search", "turn 2: question", "turn 3: diagnosis"]
    assert {turn.parent_id for turn in turns} == {root.span_id}
    assert turns[1].inputs == {"messages": said[:4]}
    assert turns[1].outputs == {"choices": [{"message": played.texts[4]}]}
    assert turns[1].attributes["event"]["topic"] == "pleuritic_pain"
    (search,) = [span for span in rest if span.span_type == "RETRIEVER"]
    assert search.parent_id == turns[0].span_id
    assert search.inputs == {"query": "chest pain"}
    assert search.outputs == [
        {
            "page_content": "[Pleurisy#0] Pleurisy: pain on breathing",
            "metadata": {
                "doc_uri": "Pleurisy#0",
                "title": "Pleurisy",
                "section": "",
                "source": "a book",
                "licence": "CC0-1.0",
                "score": 0.75,
            },
        },
        {
            "page_content": "[Angina#0] Angina: pain on effort",
            "metadata": {
                "doc_uri": "Angina#0",
                "title": "Angina",
                "section": "",
                "source": "a book",
                "licence": "CC0-1.0",
                "score": 0.5,
            },
        },
    ]
    assert (trace.info.request_preview, trace.info.response_preview) == (
        "我胸口疼 (3 left)",
        "<answer>Diagnosis: Pleurisy</answer>",
    )
    assert trace.info.token_usage == {"input_tokens": 105, "output_tokens": 50, "total_tokens": 155}
    own = {
        "rl.step": "4",
        "case_id": "case-7",
        "episode_id": "case-7/0",
        "sample": "0",
        "policy_version": "3",
        "split": "train",
        "stop_reason": "diagnosed",
        "condition": "sampled",
    }
    assert own.items() <= trace.info.tags.items()


def test_a_search_in_the_opening_is_nobodys_turn(run, client):
    whole = consultation()
    played = replace(whole, turns=whole.turns[1:], events=whole.events[1:])
    tracking.log_consultations(run, [played], [], 4, "train", {})
    (trace,) = stored_traces(client, run)
    root, *rest = trace.data.spans
    assert root.inputs["messages"][3] == {"role": "tool", "name": "library", "content": played.texts[3]["content"]}
    turns = [span for span in rest if span.span_type == "CHAT_MODEL"]
    assert [turn.name for turn in turns] == ["turn 1: question", "turn 2: diagnosis"]
    assert turns[0].outputs == {"choices": [{"message": played.texts[4]}]}
    assert not [span for span in rest if span.span_type == "RETRIEVER"]


def test_time_is_the_episodes_shared_out_by_tokens(run, client, monkeypatch):
    monkeypatch.setattr(traces.time, "time", lambda: 1006.0)
    tracking.log_consultations(run, [consultation()], [], 4, "train", {})
    (trace,) = stored_traces(client, run)
    root, *rest = trace.data.spans
    assert (root.start_time_ns, root.end_time_ns) == (1_001 * 10**9, 1_006 * 10**9)
    assert [(s.start_time_ns, s.end_time_ns) for s in rest if s.span_type == "CHAT_MODEL"] == [
        (1_001 * 10**9, 1_002 * 10**9),
        (1_002 * 10**9, 1_005 * 10**9),
        (1_005 * 10**9, 1_006 * 10**9),
    ]
    assert (trace.info.request_time, trace.info.execution_duration, trace.info.state) == (1_001_000, 5_000, "OK")


def test_what_is_right_and_whether_the_doctor_was_are_told_where_they_are_known(run, client):
    played = consultation()
    truths = {played.episode_id: traces.Truth("Pleurisy", correct=False)}
    tracking.log_consultations(run, [played], [], 4, "test", {}, truths=truths)
    (trace,) = stored_traces(client, run)
    told = {a.name: a for a in trace.info.assessments}
    assert told["diagnosis"].expectation.value == "Pleurisy"
    assert told["correct"].feedback.value is False


def test_a_data_set_says_what_its_stage_told_of_it(run, client):
    tracking.log_dataset(run, "warm_start", Path("models/warm_start"), "abc", "training", {"loss": 0.5})
    (found,) = client.get_run(run).inputs.dataset_inputs
    assert json.loads(found.dataset.profile) == {"loss": 0.5}


def test_an_evaluation_has_a_run_of_its_own_once_for_the_same_figures(run, client):
    made = [tracking.evaluation_run(run, key, {"seed": 3}, {"stage": "evaluate_doctor"}) for key in ("a", "a", "b")]
    assert made[0] == made[1] != made[2]
    shown = client.get_run(made[0])
    assert (shown.info.status, shown.data.params) == ("FINISHED", {"seed": "3"})
    assert shown.info.run_name == f"test {client.get_run(run).info.run_name}"
    assert shown.data.tags["training"] == run
    assert shown.data.tags["mlflow.runType"] == "genai_evaluate"  # by which MLflow lists evaluations
    client.update_run(made[0], status="RUNNING")  # as a kill leaves it
    assert tracking.evaluation_run(run, "a", {"seed": 3}, {"stage": "evaluate_doctor"}) == made[0]
    assert client.get_run(made[0]).info.status == "FINISHED"


def test_a_persons_rating_stands_on_the_trace(run, client):
    played = consultation()
    tracking.log_consultations(run, [played], [], 4, "consult", {"condition": "now"})
    trace_id = traces.trace_id_of(run, 4, "consult", {"condition": "now"}, played)
    traces.log_rating(trace_id, 4.0, "asked well")
    (trace,) = stored_traces(client, run)
    (rating,) = [a for a in trace.info.assessments if a.source.source_type == "HUMAN"]
    assert (trace.info.trace_id, rating.name, rating.feedback.value, rating.rationale) == (
        trace_id,
        "human",
        4.0,
        "asked well",
    )


def test_without_a_beginning_the_last_episode_ends_now(run, client):
    tracking.log_consultations(run, [consultation()], [], 4, "train", {})
    (trace,) = stored_traces(client, run)
    assert abs(trace.data.spans[0].end_time_ns / 1e9 - time.time()) < 60


def test_rewards_are_feedback_and_the_diagnosis_an_expectation(run, client):
    played = consultation()
    tracking.log_consultations(run, [played], [scored(played)], 4, "train", {})
    (trace,) = stored_traces(client, run)
    by_place = {(a.name, a.span_id): a for a in trace.info.assessments}
    whole = {name: a.value for (name, span_id), a in by_place.items() if span_id is None}
    assert whole.pop("diagnosis") == "pleurisy"
    assert whole == pytest.approx(
        {"reward": 0.95, "reward.turn": -0.3, "reward.information": 0.25, "reward.diagnosis": 1.0}
    )
    assert by_place["diagnosis", None].expectation is not None
    assert ("correct", None) not in by_place  # nobody said what is right
    assert by_place["reward", None].source.source_type == "CODE"
    assert by_place["reward", None].rationale == "-0.3 turn +0.25 information +1 diagnosis"
    turns = [span.span_id for span in trace.data.spans if span.span_type == "CHAT_MODEL"]
    assert [by_place["turn_reward", span_id].value for span_id in turns] == pytest.approx([-0.1, 0.15, 0.9])
    found = client.search_traces(
        locations=[client.get_run(run).info.experiment_id],
        filter_string=f"feedback.reward > 0.9 AND attribute.run_id = '{run}'",
    )
    assert len(found) == 1


def test_a_consultation_is_recorded_once(run, client):
    group = [consultation(sample) for sample in range(40)]  # more than are written together
    marks = [scored(t) for t in group]
    assert tracking.log_consultations(run, group[:30], marks, 4, "train", {}) == 30
    assert tracking.log_consultations(run, group, marks, 4, "train", {}) == 10  # a resumed run repeats the step
    assert tracking.log_consultations(run, group, marks, 4, "train", {}) == 0
    assert len(stored_traces(client, run, spans=False)) == 40
    assert tracking.log_consultations(run, group[:1], marks, 5, "train", {}) == 1
    assert tracking.log_consultations(run, group[:1], marks, 5, "validation", {}) == 1
    assert tracking.log_consultations(run, group[:1], marks, 5, "validation", {"condition": "no_questions"}) == 1
    assert tracking.log_consultations(run, [], [], 6, "train", {}) == 0


def test_what_was_half_written_is_written_over(run, client, monkeypatch):
    played = consultation()
    with monkeypatch.context() as patch:
        patch.setattr(traces.TracingClient, "log_spans", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            tracking.log_consultations(run, [played], [scored(played)], 4, "train", {})
    assert tracking.log_consultations(run, [played], [scored(played)], 4, "train", {}) == 1
    (trace,) = stored_traces(client, run)
    assert len(trace.data.spans) == 5
    assert sum(a.name == "reward" for a in trace.info.assessments) == 1
    assert sum(a.name == "turn_reward" for a in trace.info.assessments) == 3


def test_a_failed_episode_shows_as_an_error(run, client):
    failed = consultation(stop_reason="failed")
    tracking.log_consultations(run, [failed], [Scores(failed.episode_id, ())], 4, "train", {})
    (trace,) = stored_traces(client, run)
    assert trace.info.state == "ERROR"
    assert trace.data.spans[0].status.status_code == "ERROR"
    assert trace.data.spans[-1].name == "turn 3: failed"
    assert [a.name for a in trace.info.assessments] == ["diagnosis"]


def test_passages_are_shown_in_any_language_and_with_any_line_ends(run, client):
    chinese = replace(FOUND[0], title="胸膜炎", text="呼吸时胸痛。\n多为感染所致（还剩2轮）")
    tracking.log_consultations(run, [consultation(0, found=(chinese,)), consultation(1, found=())], [], 4, "train", {})
    shown = {
        trace.info.tags["sample"]: [span.outputs for span in trace.data.spans if span.span_type == "RETRIEVER"]
        for trace in stored_traces(client, run)
    }
    assert [document["page_content"] for document in shown["0"][0]] == [
        "[Pleurisy#0] 胸膜炎: 呼吸时胸痛。\n多为感染所致（还剩2轮）"
    ]
    assert shown["1"] == [[]]


# checkpoints


def test_a_checkpoint_is_a_model_with_its_metrics(run, client, tmp_path):
    tracking.log_step(run, 10, {"validation/accuracy": 0.5})
    for _ in range(2):  # the second as after a kill
        model_id = tracking.log_checkpoint(
            run, 10, tmp_path, "ab" * 32, {"validation/accuracy": 0.5, "checkpoint/bytes": 7}
        )
    models = [
        m for m in client.search_logged_models([client.get_run(run).info.experiment_id]) if m.source_run_id == run
    ]
    assert [m.model_id for m in models] == [model_id]
    (model,) = models
    assert (model.name, model.status, model.model_type) == ("global_step_10", "READY", "doctor")
    assert model.params == {"path": str(tmp_path), "sha256": "ab" * 32, "step": "10"}
    assert model.params.items() <= model.tags.items()
    assert {(m.key, m.value, m.step) for m in model.metrics} == {
        ("validation/accuracy", 0.5, 10),
        ("checkpoint/bytes", 7.0, 10),
    }
    assert len(client.get_metric_history(run, "validation/accuracy")) == 1
    assert len(client.get_metric_history(run, "checkpoint/bytes")) == 1
    assert [output.model_id for output in client.get_run(run).outputs.model_outputs] == [model_id]


def test_a_checkpoint_saved_again_keeps_the_points_of_its_step(run, client, tmp_path):
    for step in (1, 2, 3):
        tracking.log_step(run, step, {"reward/mean": step / 10})
    model_id = tracking.log_checkpoint(run, 2, tmp_path, "cd" * 32, {"reward/mean": 0.7})
    assert [(m.step, m.value) for m in client.get_logged_model(model_id).metrics] == [(2, 0.2)]
    assert [(m.step, m.value) for m in client.get_metric_history(run, "reward/mean")] == [(1, 0.1), (2, 0.2), (3, 0.3)]


# registry


def immutable_copy(root, sha):
    directory = root / "models" / "registry" / sha
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(sha)
    return directory


def test_the_same_model_registers_once(run, root, client):
    directory = immutable_copy(root, "11" * 32)
    version, created = registry.register(
        "doctor-once", directory, "11" * 32, run, "challenger", {"gate": "passed", "git.sha": "abc"}
    )
    assert created
    assert registry.register(
        "doctor-once", directory, "11" * 32, run, "champion", {"gate": "none", "note": "again"}
    ) == (version, False)
    (found,) = client.search_model_versions("name = 'doctor-once'")
    assert (str(found.version), found.run_id) == (version, run)
    tags = client.get_model_version("doctor-once", version).tags
    assert tags == {"gate": "passed", "git.sha": "abc", "note": "again", "sha256": "11" * 32, "path": str(directory)}
    for alias in ("challenger", "champion"):
        assert registry.version_at("doctor-once", alias).path == directory
    for uri in (f"models:/doctor-once/{version}", "models:/doctor-once@champion"):
        assert Path(mlflow.artifacts.download_artifacts(uri)).resolve() == directory.resolve()


def test_an_alias_moves_and_moves_back(root):
    old, new = (immutable_copy(root, digit * 64) for digit in "23")
    first, _ = registry.register("doctor-moves", old, old.name, None, "champion", {})
    second, created = registry.register("doctor-moves", new, new.name, None, "champion", {})
    assert created
    assert second != first
    assert registry.version_at("doctor-moves", "champion").path == new
    assert registry.register("doctor-moves", old, old.name, None, "champion", {}) == (first, False)
    assert registry.version_at("doctor-moves", "champion").path == old


def test_no_model_or_alias_is_no_champion(root):
    assert registry.version_at("doctor-unknown", "champion") is None
    registry.register("doctor-known", immutable_copy(root, "4" * 64), "4" * 64, None, "challenger", {})
    assert registry.version_at("doctor-known", "champion") is None


def test_a_changed_or_missing_champion_is_refused(root):
    directory = immutable_copy(root, "5" * 64)
    registry.register("doctor-hurt", directory, directory.name, None, "champion", {})
    assert registry.version_at("doctor-hurt", "champion", digest=lambda path: path.name).path == directory
    with pytest.raises(tracking.TrackingError, match="missing or changed"):
        registry.version_at("doctor-hurt", "champion", digest=lambda _: "6" * 64)
    directory.rename(directory.with_name("elsewhere"))
    with pytest.raises(tracking.TrackingError, match="missing or changed"):
        registry.version_at("doctor-hurt", "champion")


def test_only_an_immutable_copy_can_be_registered(root, tmp_path):
    for directory in (tmp_path / ("7" * 64), tmp_path):
        with pytest.raises(tracking.TrackingError, match="immutable copy"):
            registry.register("doctor-never", directory, "7" * 64, None, "champion", {})
    (tmp_path / ("7" * 64)).mkdir()
    with pytest.raises(tracking.TrackingError, match="immutable copy"):
        registry.register("doctor-never", tmp_path / ("7" * 64), "7" * 64, None, "champion", {})


def test_what_the_pipeline_itself_writes_makes_no_tree_dirty(tmp_path):
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@x", *words], check=True)

    (tmp_path / "metrics").mkdir()
    for name in ("params.yaml", "dvc.lock", "metrics/a.json"):
        (tmp_path / name).write_text("1")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "start")
    (tmp_path / "dvc.lock").write_text("{}")
    (tmp_path / "metrics/a.json").unlink()
    assert tracking._origin(tmp_path)["git.dirty"] == "false"
    (tmp_path / "params.yaml").write_text("2")
    assert tracking._origin(tmp_path)["git.dirty"] == "true"


def test_an_input_that_no_commit_holds_makes_the_tree_dirty_and_a_note_beside_it_does_not(tmp_path):
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x", *words], cwd=tmp_path, check=True)

    for name in ("data/own/march.csv", "data/cases/cases.parquet"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("rows")
    deps, outs = ("data/own", "../elsewhere", "a [1].csv"), ("data/cases",)
    stage = {"deps": [{"path": path} for path in deps], "outs": [{"path": path} for path in outs]}
    (tmp_path / "dvc.lock").write_text(json.dumps({"stages": {"patient_cases": stage, "warm_start": {}}}))
    git("init", "--quiet")
    git("add", "data/own", "dvc.lock")
    git("commit", "--quiet", "--message", "all")
    (tmp_path / "notes.txt").write_text("mine")
    assert tracking._origin(tmp_path)["git.dirty"] == "false"
    (tmp_path / "data/own/april.csv").write_text("rows")
    assert tracking._origin(tmp_path)["git.dirty"] == "true"
    (tmp_path / ".gitignore").write_text("april.csv")  # DVC's, say
    assert tracking._origin(tmp_path)["git.dirty"] == "false"
