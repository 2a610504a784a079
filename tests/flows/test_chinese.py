"""The starter clinic in Chinese, from texts to a registered-shape doctor, tiny: base model, knowledge base, cases, warm start,
training, evaluation, report. Real server, real DVC.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
HAN = re.compile(r"[\u4e00-\u9fff]")


def test_the_chinese_slice_runs_end_to_end(copy_project: Callable[[str], Path], environment: dict[str, str]) -> None:
    project = copy_project("chinese")

    def run(*words: str) -> str:
        done = subprocess.run(
            words, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert done.returncode == 0, done.stdout[-4000:]
        return done.stdout

    shown = run(sys.executable, "-m", "commands.profile", "chinese", "--write")
    assert "+    language: zh" in shown
    recipe, params = project / "recipes/base_model.yaml", project / "params.yaml"
    text = re.sub(r"(?m)^(\s+(?:dialogues|checklists|charts)): \d+", r"\1: 20", recipe.read_text())
    for name, value in {"cases": 60, "width": 64, "layers": 2, "article_repeats": 1}.items():
        text = re.sub(rf"(?m)^{name}: \d+", f"{name}: {value}", text)
    recipe.write_text(text)
    # of the evaluation
    text = re.sub(
        r"(?m)^    cases: \d+", "    cases: 300", re.sub(r"(?m)^  cases: \d+", "  cases: 60", params.read_text())
    )
    params.write_text(re.sub(r"(?m)^  steps: \d+", "  steps: 2", text))
    run(sys.executable, "-m", "flows.base_model", "--out", "models/base")
    run("dvc", "repro")
    cases = pd.read_parquet(project / "data/cases/cases.parquet")
    assert set(cases["language"]) == {"zh"}
    assert cases["diagnosis"].nunique() >= 25
    played = pd.read_parquet(project / "metrics/consultations/rollout.parquet")
    dialogue = json.loads(played["texts"].iloc[0])
    assert dialogue[0]["content"] == "先问病人，再下诊断。"
    assert re.search(r"（还剩\d轮）\Z", dialogue[1]["content"])
    latin = [
        m["content"]
        for texts in played["texts"]
        for m in json.loads(texts)
        if m["role"] == "user"
        and re.search(r"[A-Za-z]{3}", re.sub(r"<answer>|</answer>|<think>|</think>", "", m["content"]))
    ]
    assert latin == []
    metrics = json.loads((project / "metrics/evaluate_doctor.json").read_text())
    assert (
        metrics["bayes_optimal"]["overall"]["accuracy"]["mean"]
        > metrics["bayes_no_questions"]["overall"]["accuracy"]["mean"]
    )
    page = (project / "metrics/report.html").read_text()
    assert '<html lang="zh">' in page
    for shown in ("与其他医生比较", "贝叶斯最优", "心血管科", "训练步数", "问诊实录"):
        assert shown in page
    assert len(HAN.findall(page)) > 500
