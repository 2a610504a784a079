"""Steps are written to MLflow beside the run: it does not wait, and nothing is lost."""

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from clinic.tables import DoctorTable, Evaluation, Interval, Summary
from doctor.parameters import load_params
from rl.files import folder_hash
from tracking import provenance
from tracking import recorder as module
from tracking.errors import AwayError
from tracking.recorder import Recorder, final_metrics, untouched

PLAN = SimpleNamespace(steps=9, traces_per_step=2, keep_every=2)
ENDLESS_S = 20.0  # what waits longer waits for a server that never comes, and not for a processor


@pytest.fixture
def written(monkeypatch):
    """What reaches MLflow, in order; a write waits for `go`."""
    go, seen = threading.Event(), []

    def log_step(run_id, step, metrics):
        assert go.wait(10)
        if metrics.get("bad"):
            raise RuntimeError("the store is gone")
        seen.append((run_id, "step", step))

    monkeypatch.setattr(module.runs, "log_step", log_step)
    monkeypatch.setattr(module.runs, "last_step", lambda run_id: {"new": -1, "old": 2}.get(run_id, 99))
    monkeypatch.setattr(
        module.runs, "log_checkpoint", lambda run_id, step, *_: seen.append((run_id, "checkpoint", step))
    )
    monkeypatch.setattr(
        module.traces,
        "log_consultations",
        lambda run_id, chosen, scores, step, *_, **__: seen.append((run_id, f"{len(chosen)} traces", step)),
    )
    monkeypatch.setattr(
        module, "trajectories_of_note", lambda trajectories, scores, count: (trajectories[:count], scores[:count])
    )
    monkeypatch.setattr(module, "truths_of", lambda cases, chosen: {})
    monkeypatch.setattr(module, "folder_hash", lambda directory: "sha")
    return SimpleNamespace(go=go, seen=seen)


def run(folder=Path("nowhere")):
    return SimpleNamespace(
        folder=folder,
        params=SimpleNamespace(train_doctor=PLAN),
        max_draws=1,
        rollout_file=lambda step, draw: folder / "steps" / f"{step:05d}" / "rollout.parquet",
        scores_file=lambda step, draw: folder / "steps" / f"{step:05d}" / "scores.parquet",
        train=(),
        pairs=None,
        experience=lambda step: (["a", "b", "c"], [1, 2, 3]),
    )


def test_a_step_does_not_wait_for_the_store_and_arrives_whole(written, tmp_path):
    recorder = Recorder(run(), "r")
    recorder.step(0, {"x": 1.0})
    recorder.step(1, {"x": 1.0})
    recorder.step(2, {"x": 1.0}, tmp_path)
    assert written.seen == []
    written.go.set()
    recorder.written()
    assert written.seen == [
        ("r", "step", 0),
        ("r", "step", 1),
        ("r", "2 traces", 1),
        ("r", "step", 2),
        ("r", "2 traces", 2),
        ("r", "checkpoint", 2),
    ]


@pytest.mark.parametrize(("run_id", "steps"), [("new", [0, 1, 2, 3, 4]), ("old", [2, 3, 4]), ("whole", [4])])
def test_points_that_the_store_lost_are_written_again_from_disk(written, tmp_path, run_id, steps):
    (tmp_path / "validation").mkdir()
    (tmp_path / "validation" / "00000.json").write_text(json.dumps({"validation/accuracy": 0.3}))
    for step in range(1, 6):  # a killed run had begun a fifth
        (tmp_path / "steps" / f"{step:05d}").mkdir(parents=True)
        (tmp_path / "steps" / f"{step:05d}" / "metrics.json").write_text(json.dumps({"x": float(step)}))
    written.go.set()
    recorder = Recorder(run(tmp_path), run_id)
    recorder.step(4, {"x": 4.0})
    recorder.step(5, {"x": 5.0})
    recorder.written()
    assert [step for _, what, step in written.seen if what == "step"] == [*steps, 5]


def test_what_went_wrong_is_raised_before_the_next_checkpoint(written):
    recorder = Recorder(run(), "r")
    written.go.set()
    recorder.step(1, {"bad": 1.0})
    with pytest.raises(RuntimeError, match="the store is gone"):
        recorder.written()


@pytest.fixture
def away(written, monkeypatch):
    """A server that is away until the event is set."""
    back = threading.Event()
    log_step = module.runs.log_step

    def log_if_there(run_id, step, metrics):
        if not back.is_set():
            raise AwayError("the MLflow server http://x does not answer")
        log_step(run_id, step, metrics)

    monkeypatch.setattr(module.runs, "log_step", log_if_there)
    monkeypatch.setattr(module, "RETRY_S", 0.05)
    monkeypatch.setattr(module, "STALL_S", 0.2)
    monkeypatch.setattr(module, "PATIENCE_S", 0.3)
    written.go.set()
    return back


def test_a_training_goes_on_without_mlflow_and_is_written_in_order_when_it_is_back(written, away, caplog):
    caplog.set_level("INFO")
    recorder = Recorder(run(), "r")
    for step in (1, 2, 3):
        began = time.monotonic()
        recorder.step(step, {"x": 1.0})
        recorder.written()
        assert time.monotonic() - began < ENDLESS_S
    assert written.seen == []
    away.set()
    while len(written.seen) < 6:
        recorder.written()
    assert [step for _, what, step in written.seen if what == "step"] == [1, 2, 3]
    assert [step for _, what, step in written.seen if what == "2 traces"] == [1, 2, 3]
    assert sum("does not answer; the training goes on" in line for line in caplog.messages) == 1
    assert sum("MLflow answers again" in line for line in caplog.messages) == 1
    recorder.close()


def test_a_training_that_ends_without_mlflow_says_what_a_rerun_will_do(written, away):
    recorder = Recorder(run(), "r")
    recorder.step(1, {"x": 1.0})
    with pytest.raises(AwayError, match=r"MLflow has 1 of its steps still to record .* goes on from nowhere"):
        recorder.finish({})
    began = time.monotonic()
    recorder.close()
    assert time.monotonic() - began < ENDLESS_S
    assert written.seen == []


def test_at_the_end_a_server_that_takes_one_step_after_another_is_waited_for(written, monkeypatch):
    """Each in less than the patience, all together in more; what an earlier process left in one go, too."""
    monkeypatch.setattr(module, "PATIENCE_S", 0.4)
    monkeypatch.setattr(module, "STALL_S", 0.1)
    log_step = module.runs.log_step

    def slowly(run_id, step, metrics):
        time.sleep(0.2)
        log_step(run_id, step, metrics)

    monkeypatch.setattr(module.runs, "log_step", slowly)
    monkeypatch.setattr(module, "history", lambda _: [{"step": step, "x": 1.0} for step in range(1, 5)])
    monkeypatch.setattr(module.runs, "log_metrics_final", lambda *_: None)
    monkeypatch.setattr(module.runs, "note_doctor", lambda *_: None)
    written.go.set()
    recorder = Recorder(run(), "new")
    for step in range(5, 9):
        recorder.step(step, {"x": 1.0})
    recorder.finish({"chosen_steps": [8], "chosen_accuracy": 0.5, "sha256": "s"})
    assert [step for _, what, step in written.seen if what == "step"] == list(range(1, 9))


def test_the_data_that_a_flow_was_told_to_use_is_what_is_named(monkeypatch, tmp_path):
    """Not the project's own, whose hash stands in dvc.lock."""
    (tmp_path / "project").mkdir()
    monkeypatch.setattr(provenance, "ROOT", tmp_path / "project")
    monkeypatch.setattr(provenance, "output_digest", lambda name: f"md5 of {name}")
    monkeypatch.setattr(module, "told_by", lambda stage: {"told by": stage})
    for place in ("project/data/kb_index", "project/models/warm_start", "other"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "other" / "cases.parquet").write_text("cases")
    seen = {}
    monkeypatch.setattr(module.runs, "log_dataset", lambda run_id, name, *what: seen.update({name: what}))
    project = tmp_path / "project"
    used = SimpleNamespace(cases=tmp_path / "other", index=project / "data/kb_index")
    module._name_data(SimpleNamespace(factory=used, warm_start=project / "models/warm_start"), "r")
    assert seen == {
        "cases": (tmp_path / "other", folder_hash(tmp_path / "other")[:32], "training", {}),
        "knowledge_base": (
            *(project / "data/kb_index", "md5 of data/kb_index", "training"),
            {"told by": "knowledge_base"},
        ),
        "warm_start": (
            *(project / "models/warm_start", "md5 of models/warm_start", "training"),
            {"told by": "warm_start"},
        ),
    }


def test_a_training_keeps_the_name_of_its_place(tmp_path):
    here = module._place(tmp_path / "here")
    assert module._place(tmp_path / "here") == here
    assert module._place(tmp_path / "there") != here
    (tmp_path / "here").rename(tmp_path / "moved")
    assert module._place(tmp_path / "moved") == here


def test_a_run_that_ends_early_still_writes_what_it_has(written):
    recorder = Recorder(run(), "r")
    recorder.step(1, {"x": 1.0})
    threading.Timer(0.2, written.go.set).start()
    recorder.close()
    assert ("r", "step", 1) in written.seen


def test_a_step_is_what_it_was_when_it_was_recorded(written):
    """The metrics of a step are not those that the loop adds to the same dict later."""
    recorder = Recorder(run(), "r")
    metrics = {"x": 1.0}
    recorder.step(1, metrics)
    metrics["bad"] = 1.0
    written.go.set()
    recorder.written()
    assert ("r", "step", 1) in written.seen


def test_what_is_withheld_is_no_metric():
    def doctor(mean, missing=()):
        accuracy = None if missing else Interval(mean, mean, mean)
        measures = {"accuracy": accuracy, "turns": Interval(6.0, 6.0, 6.0)}
        return DoctorTable(Summary(9, measures, dict.fromkeys(missing, "without a turn")), {})

    whole = {"trained": doctor(0.5), "warm_start": doctor(0.25), "bayes_optimal": doctor(0.75)}
    cut = {"full_information@own": doctor(0.0, ("a",))}
    assert final_metrics(Evaluation(doctors=whole | cut | {"trained@own": doctor(0.25)})) == {
        "test/accuracy": 0.5,
        "test/turns": 6.0,
        "test/accuracy at own": 0.25,
        "test/turns at own": 6.0,
        "test/closed_distance": 0.5,
        "test_of_others/warm_start": 0.25,
        "test_of_others/bayes_optimal": 0.75,
    }
    assert final_metrics(Evaluation(doctors=cut)) == {}
    alone = {"trained@own": doctor(0.25), "warm_start@own": doctor(0.5)}
    assert final_metrics(Evaluation(doctors=alone)) == {
        "test/accuracy": 0.25,
        "test/turns": 6.0,
        "test/accuracy at own": 0.25,
        "test/turns at own": 6.0,
        "test_of_others/warm_start at own": 0.5,
    }


def test_parameters_that_touch_no_training_are_not_shown_with_it():
    params = load_params()
    told = params.model_dump(exclude=untouched(params))
    assert {"retrain", "evaluate_doctor"} & told.keys() == set()
    assert told["language_models"].keys() == {"patient", "reward_judge"}
    assert "best_of_n" not in told["warm_start"]
    chosen = params.model_copy(update={"warm_start": params.warm_start.model_copy(update={"start": "best_of_n"})})
    assert "best_of_n" in chosen.model_dump(exclude=untouched(chosen))["warm_start"]


def test_an_evaluation_without_mlflow_says_how_to_record_it_later(monkeypatch, tmp_path, caplog):
    def away(root):
        raise AwayError("the MLflow server http://x does not answer")

    monkeypatch.setattr(module.runs, "setup", away)
    page = tmp_path / "report.html"
    module.record_evaluation(load_params(), Evaluation(doctors={}), tmp_path, tmp_path, page, tmp_path)
    assert "report.html alone, and `dvc repro --force --single-item evaluate_doctor` records it later" in caplog.text


def test_a_run_that_the_store_lost_is_none(monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(module.runs, "folder_hash", lambda directory: "sha")
    assert module.runs.run_of(tmp_path / "model", tmp_path) is None
    note = tmp_path / "runs" / "doctors" / "sha.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"mlflow_run_id": "r"}))
    monkeypatch.setattr(module.runs, "is_there", lambda run_id: run_id == "r")
    assert module.runs.run_of(tmp_path / "model", tmp_path) == "r"
    monkeypatch.setattr(module.runs, "is_there", lambda run_id: False)
    assert module.runs.run_of(tmp_path / "model", tmp_path) is None
    assert "no run r" in caplog.text
