"""The whole pipeline, tiny: DVC, resume after a kill, remote, registry, deployments. Real server, store and remote."""

import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import mlflow
import psutil
import pytest
from safetensors.torch import load_file

from doctor.consult import held_out
from tests.flows.conftest import asked
from tracking.store import EXPERIMENT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def run(environment: dict[str, str]) -> Run:
    def call(project: Path, *command: str, ok: bool = True, typed: str = "") -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            command,
            cwd=project,
            env=environment,
            input=typed,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert not ok or done.returncode == 0, done.stdout[-4000:]
        return done

    return call


@pytest.fixture(scope="module")
def finished(copy_project: Callable[..., Path], run: Run) -> Path:
    """A project whose `retrain` flow has run once, never interrupted."""
    project = copy_project("whole", own_cache=True)
    run(project, sys.executable, "-m", "flows.retrain")
    return project


def weights(project: Path, model: str = "models/doctor") -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in load_file(project / model / "model.safetensors").items()}


def steps(project: Path) -> list[dict[str, float]]:
    return [json.loads(path.read_text()) for path in sorted(project.glob("checkpoints/*/*/steps/*/metrics.json"))]


def chosen_steps(project: Path) -> list[int]:
    chosen: list[int] = json.loads((project / "metrics/train_doctor.json").read_text())["chosen_steps"]
    return chosen


def test_a_second_repro_does_nothing(finished: Path, run: Run) -> None:
    assert "up to date" in run(finished, "dvc", "repro").stdout


def test_the_evaluation_has_every_doctor_and_measure(finished: Path) -> None:
    metrics = json.loads((finished / "metrics/evaluate_doctor.json").read_text())
    for name in ("trained", "warm_start", "random_questions", "no_questions", "full_information", "bayes_optimal"):
        overall = metrics[name]["overall"]
        for measure in ("accuracy", "top3", "reward", "turns", "fact_recall"):
            if (name, measure) != ("full_information", "fact_recall"):
                assert overall[measure]["low"] <= overall[measure]["mean"] <= overall[measure]["high"]
    assert metrics["no_questions"]["overall"]["turns"]["mean"] == 1
    assert metrics["bayes_optimal"]["overall"]["valid_question_rate"]["mean"] == 1


def test_stages_and_training_say_which_run_they_are_a_part_of(finished: Path, environment: dict[str, str]) -> None:
    client = mlflow.MlflowClient(f"sqlite:///{finished}/mlruns/mlflow.db")
    experiment = client.get_experiment_by_name(EXPERIMENT)
    (training,) = client.search_runs([experiment.experiment_id], "tags.stage = 'train_doctor'")
    whole = training.data.tags["prefect.parent_flow_run_id"]
    assert asked(environment, f"/flow_runs/{whole}")["name"].startswith("retrain")
    parts = asked(environment, "/flow_runs/filter", {"flow_runs": {"tags": {"all_": [f"parent:{whole}"]}}})
    stages = {"knowledge_base", "patient_cases", "warm_start", "train_doctor", "evaluate_doctor"}
    assert {part["name"].split()[0] for part in parts} == stages
    assert training.data.tags["prefect.flow_run_id"] in {part["id"] for part in parts}


def test_the_same_model_registers_once(finished: Path, run: Run) -> None:
    assert "unchanged" in run(finished, sys.executable, "-m", "flows.retrain").stdout


def test_a_person_rates_a_consultation_in_the_terminal(finished: Path, run: Run) -> None:
    watched = min(held_out(finished / "data/cases"))
    said = run(finished, sys.executable, "-m", "commands.consult", "--case", watched, typed="very\n4\n").stdout
    assert said.count("How good was it?") == 2  # "very" is no score
    assert "The rating is kept on its trace in MLflow." in said
    client = mlflow.MlflowClient(f"sqlite:///{finished}/mlruns/mlflow.db")
    experiment = client.get_experiment_by_name(EXPERIMENT)
    (trace,) = client.search_traces(locations=[experiment.experiment_id], filter_string="tags.split = 'consult'")
    (rating,) = [one for one in trace.info.assessments if one.name == "human"]
    assert (rating.feedback.value, rating.source.source_type) == (4, "HUMAN")


def test_a_fresh_clone_pulls_and_has_nothing_to_do(finished: Path, run: Run, tmp_path: Path) -> None:
    run(finished, "dvc", "remote", "add", "--default", "--force", "folder", str(tmp_path / "remote"))
    run(finished, "git", "add", "-A")
    run(finished, "git", "commit", "-qm", "results")
    run(finished, "dvc", "push")
    clone = tmp_path / "clone"
    run(tmp_path, "git", "clone", "-q", str(finished), str(clone))
    run(clone, "dvc", "pull")
    assert "up to date" in run(clone, "dvc", "repro").stdout
    assert weights(clone) == weights(finished)


def kill_when(project: Path, environment: dict[str, str], seen: Callable[[], bool]) -> None:
    """Start `dvc repro` and kill its whole process group, hard, once something is seen."""
    process = subprocess.Popen(
        ["dvc", "repro"],
        cwd=project,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    deadline = time.monotonic() + 600
    while not seen():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
    process.wait()


def inside(project: Path, stage: str, seconds: float) -> Callable[[], bool]:
    """Whether the stage's process has been running in that project for so long."""

    def seen() -> bool:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if (
                    f"flows.{stage}" in process.cmdline()
                    and process.cwd() == str(project)
                    and time.time() - process.create_time() > seconds
                ):
                    return True
        return False

    return seen


def test_killed_runs_end_with_the_same_weights(
    finished: Path, copy_project: Callable[..., Path], environment: dict[str, str], run: Run
) -> None:
    """Killed in every stage, twice in training."""
    project = copy_project("killed", own_cache=True)
    kill_when(project, environment, inside(project, "knowledge_base", 5))
    assert not (project / "data/kb_index").exists()
    kill_when(project, environment, inside(project, "patient_cases", 0.5))
    assert not (project / "data/cases").exists()
    kill_when(
        project,
        environment,
        lambda: any(project.glob("models/.warm_start.partial")) or (project / "models/warm_start").exists(),
    )
    kill_when(project, environment, lambda: bool(list(project.glob("checkpoints/*/*/steps/00002/rollout.parquet"))))
    done_before = len(steps(project))
    assert 1 <= done_before < 4
    kill_when(project, environment, lambda: bool(list(project.glob("checkpoints/*/*/global_step_3/complete.json"))))
    kill_when(project, environment, lambda: (project / "metrics/consultations/rollout.parquet").exists())
    assert not (project / "metrics/evaluate_doctor.json").exists()
    run(project, "dvc", "repro")
    assert (project / "metrics/evaluate_doctor.json").read_bytes() == (
        finished / "metrics/evaluate_doctor.json"
    ).read_bytes()
    assert [row["learn/gradient_steps"] for row in steps(project)] == [
        row["learn/gradient_steps"] for row in steps(finished)
    ]
    assert all(row["learn/gradient_steps"] > 0 for row in steps(project))
    assert weights(project, "models/warm_start") == weights(finished, "models/warm_start")
    assert weights(project) == weights(finished)
    assert weights(project) != weights(project, "models/warm_start")


CUT = """
import os, runpy, sys
from rl import halfway
halfway.EVERY_S, halfway.SHARE, keep, kept = 0.0, float("inf"), halfway.Halfway.keep, []
def cut(*what):
    keep(*what)
    kept.append(what)
    if len(kept) == 5:
        os._exit(9)
halfway.Halfway.keep = cut
sys.argv = ["flows.warm_start", "--out", "out/warm_start"]
runpy.run_module("flows.warm_start", run_name="__main__")
"""


def test_a_warm_start_goes_on_where_it_was_kept(finished: Path, copy_project: Callable[[str], Path], run: Run) -> None:
    project = copy_project("halfway")
    for name in ("data/kb_index", "data/cases"):
        shutil.copytree(finished / name, project / name)
    assert run(project, sys.executable, "-c", CUT, ok=False).returncode == 9
    (kept,) = project.glob("checkpoints/*/warm_start-*")
    said = run(project, sys.executable, "-m", "flows.warm_start", "--out", "out/warm_start").stdout
    assert said.count("going on after gradient step") == 1
    assert weights(project, "out/warm_start") == weights(finished, "models/warm_start")
    assert not kept.exists()


@pytest.mark.parametrize(
    ("sent", "status"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.course)]
)
def test_a_stop_ends_a_training_and_what_it_started(
    finished: Path, environment: dict[str, str], tmp_path: Path, sent: signal.Signals, status: int
) -> None:
    """It has a Prefect server of its own; the signal comes while it plays or learns."""
    params = tmp_path / "params.yaml"
    text = re.sub(r"^  steps: 4$", "  steps: 400", (finished / "params.yaml").read_text(), count=1, flags=re.MULTILINE)
    params.write_text(text.replace("  experiment: ", f"  experiment: {sent.name}-", 1))
    process = subprocess.Popen(
        [sys.executable, "-m", "flows.train_doctor", "--params-file", params, "--out", tmp_path / "doctor"],
        cwd=finished,
        env={name: value for name, value in environment.items() if name != "PREFECT_API_URL"},
        stdout=(tmp_path / "log").open("w"),
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 300
    while not list(finished.glob(f"checkpoints/*/{sent.name}-*/steps/00002/rollout.parquet")):
        assert process.poll() is None, (tmp_path / "log").read_text()[-2000:]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    started = psutil.Process(process.pid).children(recursive=True)
    assert started  # the server
    process.send_signal(sent)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(15)
    assert process.poll() == status, (tmp_path / "log").read_text()[-2000:]
    gone, left = psutil.wait_procs(started, timeout=5)
    assert not left
    assert len(gone) == len(started)
    assert "stopped" in (tmp_path / "log").read_text()
    assert not (tmp_path / "doctor").exists()


def copies(project: Path) -> list[Path]:
    return [path for path in (project / "models/registry").iterdir() if path.is_dir()]


@pytest.mark.course
def test_a_registered_model_keeps_its_weights(finished: Path, run: Run) -> None:
    before = weights(finished)
    (copy,) = copies(finished)
    params = finished / "params.yaml"
    assert chosen_steps(finished) == [0, 2, 4]
    params.write_text(
        params.read_text().replace("seed: 0\n", "seed: 5\n", 1).replace("export: average", "export: best", 1)
    )
    run(finished, sys.executable, "-m", "flows.retrain")
    (step,) = chosen_steps(finished)
    assert weights(finished) in [
        weights(path.parent, path.name) for path in finished.glob(f"checkpoints/*/*/global_step_{step}")
    ]
    assert weights(finished) != before
    assert weights(copy.parent, copy.name) == before
    assert len(copies(finished)) == 2


@pytest.mark.parametrize(
    ("damage", "stage", "told"),
    [
        (lambda p: (p / "data/kb_index/index.faiss").write_bytes(b"x"), "knowledge_search", "index.faiss"),
        (
            lambda p: (p / "models/warm_start/model.safetensors").write_bytes(b"x" * 64),
            "train_doctor",
            "models/warm_start",
        ),
        (lambda p: (p / "data/cases/cases.parquet").write_bytes(b"x"), "warm_start", "cases.parquet"),
        (lambda p: shutil.rmtree(p / "data/starter/articles"), "knowledge_base", "articles"),
        (
            lambda p: (p / "params.yaml").write_text((p / "params.yaml").read_text() + "sede: 1\n"),
            "patient_cases",
            "sede",
        ),
    ],
)
def test_bad_input_is_one_line_and_a_non_zero_exit(
    copy_project: Callable[[str], Path],
    finished: Path,
    run: Run,
    damage: Callable[[Path], object],
    stage: str,
    told: str,
) -> None:
    project = copy_project("bad")
    for name in ("data/kb_index", "data/cases", "models/warm_start"):
        shutil.copytree(finished / name, project / name)
    damage(project)
    if stage == "knowledge_search":
        done = run(
            project,
            sys.executable,
            "-c",
            "from kb.index import KnowledgeIndex; from pathlib import Path; KnowledgeIndex.load(Path('data/kb_index'))",
            ok=False,
        )
    else:
        done = run(project, sys.executable, "-m", f"flows.{stage}", "--out", "out/result", ok=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, done.stdout[-3000:]
        assert told in lines[0]
        assert not (project / "out/result").exists()
    assert done.returncode != 0
    assert told in done.stdout


def test_deployments_schedule_and_run(finished: Path, environment: dict[str, str], run: Run, tmp_path: Path) -> None:
    run(finished, "prefect", "work-pool", "create", "local", "--type", "process")
    run(finished, "prefect", "--no-prompt", "deploy", "--all")
    deadline = time.monotonic() + 90
    while "retrain" not in run(finished, "prefect", "flow-run", "ls", "--state", "Scheduled").stdout:
        assert time.monotonic() < deadline, "no scheduled run appeared"
        time.sleep(2)
    console = tmp_path / "worker.log"
    worker = subprocess.Popen(
        ["prefect", "worker", "start", "--pool", "local", "--limit", "1"],
        cwd=finished,
        env={**environment, "PREFECT_WORKER_QUERY_SECONDS": "2"},
        stdout=console.open("w"),
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a shell's background job ignores it, and so would the worker
    )
    try:
        shown = run(
            finished, "prefect", "deployment", "run", "patient_cases/cases", "--watch", "--watch-timeout", "300"
        ).stdout
        indexed = run(
            finished, "prefect", "deployment", "run", "knowledge_base/index", "--watch", "--watch-timeout", "300"
        ).stdout
    finally:
        worker.send_signal(signal.SIGINT)
        worker.wait(30)
    assert re.search("completed", shown, re.IGNORECASE)
    assert list(finished.glob("runs/*/cases/cases.parquet"))
    (found,) = re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", indexed)[:1]
    told = re.compile(r"\d+ documents, \d+ passages")
    assert sum(bool(told.match(line)) for line in run_page(environment, found)) == 1
    lines = [line for line in console.read_text().splitlines() if told.search(line)]
    assert len(lines) == 1
    assert re.fullmatch(r"\d\d:\d\d:\d\d knowledge_base \| .*", lines[0])
    assert "Finished in state" not in console.read_text()
    assert any("Finished in state" in line for line in run_page(environment, found))


def run_page(environment: dict[str, str], flow_run_id: str) -> list[str]:
    """The log messages that the Prefect server keeps of a flow run."""
    logs = asked(environment, "/logs/filter", {"logs": {"flow_run_id": {"any_": [flow_run_id]}}, "limit": 200})
    return [entry["message"] for entry in logs]


def test_retrain_tells_each_event_once(finished: Path, run: Run) -> None:
    """Everything was reproduced by then, but for the knowledge base."""
    params = finished / "params.yaml"
    params.write_text(params.read_text().replace("\n  batch_size: 32", "\n  batch_size: 16", 1))
    shown = run(finished, sys.executable, "-m", "flows.retrain").stdout
    lines = shown[: shown.index("Held-out cases")].strip().splitlines()
    assert all(
        re.match(r"\d\d:\d\d:\d\d \w+ \| ", line) and len(re.findall(r"\d\d:\d\d:\d\d", line)) == 1 for line in lines
    ), shown
    assert sum("Stage 'patient_cases' didn't change, skipping" in line for line in lines) == 1
    assert sum("passages (" in line for line in lines) == 1
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", shown)


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [("params.yaml", "\n  prompts:", "\n  promts:"), ("recipes/grpo.yaml", "group_size:", "grop_size:")],
)
def test_a_misspelt_key_is_named_before_dvc_clears_an_output(
    copy_project: Callable[[str], Path], run: Run, file: str, right: str, wrong: str
) -> None:
    project = copy_project("misspelt")
    text = (project / file).read_text()
    assert right in text
    (project / file).write_text(text.replace(right, wrong, 1))
    done = run(project, sys.executable, "-m", "flows.retrain", ok=False)
    assert done.returncode == 2
    (line,) = done.stdout.strip().splitlines()
    assert line.startswith(f"error: {file}: unknown key")
    assert "did you mean" in line
