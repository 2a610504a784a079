"""Patients and judges behind a real HTTP endpoint, through `dvc repro`: training and evaluation with them, questions
among the cases, and what happens when they are down.
"""

import csv
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.endpoint_server import chat_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def reply(messages: list[dict]) -> str:
    """A judge if it is asked to grade, else a patient."""
    first = messages[0]["content"]
    if first.startswith("You grade"):
        names = re.findall(r'"(\w+)": 0 to 5', first)
        return json.dumps({name: len(messages[1]["content"]) % 6 for name in names})
    return "Yes, I have that."


def test_patients_and_judges_behind_an_endpoint(
    copy_project: Callable[[str], Path], environment: dict[str, str]
) -> None:
    project = copy_project("models")

    def repro(stage: str, ok: bool = True) -> str:
        done = subprocess.run(
            ["dvc", "repro", stage],
            cwd=project,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert (done.returncode == 0) == ok, done.stdout[-4000:]
        return done.stdout

    params = project / "params.yaml"
    text = params.read_text().replace(
        "  imported: [] ",
        "  imported: [{format: questions, path: data/questions/examples.jsonl, cases: 0, licence: CC0-1.0}] #",
    )
    text = text.replace("  personas: [plain] ", "  personas: [plain, terse, worried] #").replace(
        "  preset: outcome ", "  preset: weighted #"
    )
    text = re.sub(r"(?m)^  steps: \d+", "  steps: 2", text)
    text = re.sub(r"(?m)^  cases: \d+", "  cases: 10", text)  # of the evaluation
    text = re.sub(r"(?m)^  (max_failed_share|max_missing_share): \S+", r"  \1: 0.95", text)
    text = re.sub(r"salt: \w+, validation: \S+ test: \S+}", "salt: a, validation: 0.10, test: 0.30}", text)
    with chat_server(reply, lambda number: "500" if number % 10 == 3 else None) as server:

        def at(model: str) -> str:
            return f"{{url: '{server.url}', model: {model}, key_env: '', timeout_s: 20, retries: 0, concurrency: 8, temperature: 0.0, max_tokens: 60}}"

        for name, model in (("patient", "actor"), ("reward_judge", "judge-a"), ("evaluation_judge", "judge-b")):
            text = re.sub(rf"(?m)^  {name}: null", f"  {name}: {at(model)}", text)
        params.write_text(text)
        out = repro("evaluate_doctor")
        assert {body["model"] for body in server.requests} == {"actor", "judge-a", "judge-b"}
    with (project / "plots/train_doctor.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2
    for row in rows:
        assert 0 < float(row["rollout/failed"]) < 0.9
        assert float(row["rollout/unscored"]) >= float(row["rollout/failed"])
        assert float(row["reward/safety"]) >= 0
        assert row["patient/information_control"]
        assert row["patient/conflict"]
    metrics = json.loads((project / "metrics/evaluate_doctor.json").read_text())
    assert metrics["trained"]["overall"]["combined"]["mean"] > 0
    assert metrics["trained"]["overall"]["dei"]["mean"] > 0
    assert metrics["trained@questions"]["overall"]["accuracy"] is None
    assert metrics["trained@questions"]["overall"]["judge_diagnosis"]["mean"] > 0
    assert "p" in metrics["trained minus warm_start"]["accuracy"]
    assert metrics["patients of trained"]["leaks"] == 0
    assert (project / "metrics/report.html").exists()
    assert "no verdict" in out or "the environment failed" in out
    text = re.sub(r"(?m)^  steps: \d+", "  steps: 3", text)  # another run
    params.write_text(re.sub(r"(?m)^  max_failed_share: 0.95", "  max_failed_share: 0.2", text))
    # the endpoint is gone: nothing is begun
    out = repro("train_doctor", ok=False)
    assert re.search(r"^error: http://127\.0\.0\.1:\d+/v1, model actor: ", out, re.MULTILINE)
    assert "trajectories a rollout step" not in out
    # it answers when asked before the run, a token of each model, and nothing later
    with chat_server(reply, lambda number: "500" if number > 1 else None) as broken:
        params.write_text(params.read_text().replace(server.url, broken.url))
        out = repro("train_doctor", ok=False)
    assert re.search(r"\d+ of \d+ episodes failed, more than rollout\.max_failed_share = 0\.2", out)
    assert out.splitlines()[-2].startswith("error: ")
