"""Own cases from a table to a registered doctor, tiny: alone, in a mix with weights, in Chinese; and what is said of bad
tables. Real server, real DVC.
"""

import csv
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from clinic.starter import draw_cases, load_starter
from doctor.parameters import load_params

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., str]
ILLNESSES = {
    "感冒": ("我流鼻涕，嗓子疼。", ["流鼻涕", "嗓子疼", "打喷嚏"]),
    "胃炎": ("我胃疼，想吐。", ["胃疼", "想吐", "没胃口"]),
    "偏头痛": ("我头一侧跳着疼。", ["头疼", "怕光", "恶心"]),
}


@pytest.fixture(scope="module")
def run(environment: dict[str, str]) -> Run:
    def call(project: Path, *command: str, ok: bool = True) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=project,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert (done.returncode == 0) == ok, done.stdout[-4000:]
        return done.stdout

    return call


def change(project: Path, **values: str) -> None:
    """Rewrite keys of params.yaml at whatever depth; every one must be there."""
    path = project / "params.yaml"
    text = path.read_text()
    for key, value in values.items():
        text, found = re.subn(rf"(?m)^(\s+{key}: )[^#\n]*", rf"\g<1>{value}  ", text)
        assert found, key
    path.write_text(text)


def use(project: Path, table: str, language: str = "en") -> None:
    change(
        project,
        imported=f"[{{format: own, path: data/own/{table}, mapping: data/own/m.yaml, language: {language}, cases: 0, licence: CC0-1.0}}]",
    )


def alone(project: Path) -> None:
    path = project / "params.yaml"
    path.write_text(re.sub(r"(?m)^    cases: \d+", "    cases: 0", path.read_text()))
    change(project, matching="cross_encoder")


def vignettes(project: Path, count: int) -> None:
    """Vignettes and diagnoses, nothing else, in a CSV; patients of the starter clinic, whose words the base model reads."""
    clinic = load_starter(ROOT / "data/starter", 0.8)
    folder = project / "data/own"
    folder.mkdir(parents=True)
    with (folder / "mine.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "illness"])
        for case in draw_cases(clinic, count, 7, load_params().patient_cases.split):
            told = [fact for fact in case.facts if fact.topic not in case.opening]
            chosen = [*(fact for fact in told if fact.present), *[fact for fact in told if not fact.present][:4]]
            sentences = [f"{fact.text[0].upper()}{fact.text[1:]}." for fact in chosen]
            writer.writerow([" ".join([case.self_report, *sentences]), case.diagnosis])
    (folder / "m.yaml").write_text("name: mine\nvignette: text\ndiagnosis: illness\n")


@pytest.fixture(scope="module")
def own_alone(copy_project: Callable[[str], Path], run: Run) -> Path:
    """A project that has been through the whole pipeline on own cases alone, up to a registered doctor."""
    project = copy_project("own")
    vignettes(project, 200)
    alone(project)
    use(project, "mine.csv")
    change(
        project,
        start="best_of_n",
        best_of_n="{samples: 4, cases: 10, temperature: 1.0, instructions: short}",
        steps="2",
        validation_cases="6",
    )
    path = project / "params.yaml"
    path.write_text(re.sub(r"(?m)^  cases: \d+", "  cases: 10", path.read_text()))  # of evaluation and comparison
    run(project, "-m", "flows.retrain")
    return project


def test_own_cases_alone_make_a_registered_doctor(own_alone: Path) -> None:
    counts = json.loads((own_alone / "metrics/patient_cases.json").read_text())
    assert counts["sources"] == {"mine": 200}
    start = json.loads((own_alone / "metrics/warm_start.json").read_text())
    assert start["imitated"] > 0
    assert start["best_reward"] > start["mean_reward"]
    evaluation = json.loads((own_alone / "metrics/evaluate_doctor.json").read_text())
    assert {name.split("@")[-1] for name in evaluation if "minus" not in name} == {"mine"}
    assert {"trained@mine", "warm_start@mine", "no_questions@mine", "full_information@mine"} <= set(evaluation)
    assert sum(path.is_dir() for path in (own_alone / "models/registry").iterdir()) == 1


@pytest.mark.course
def test_a_mix_is_played_by_its_weights(own_alone: Path, run: Run) -> None:
    path = own_alone / "params.yaml"
    path.write_text(re.sub(r"(?m)^    cases: \d+", "    cases: 400", path.read_text()))
    change(own_alone, start="imitation", source_weights="{starter: 1, mine: 1}", steps="2", validation_cases="12")
    run(own_alone, "-m", "dvc", "repro", "train_doctor")
    source = dict(pd.read_parquet(own_alone / "data/cases/cases.parquet")[["case_id", "source"]].to_numpy())
    folder = max((own_alone / "checkpoints/anamnesis").iterdir(), key=lambda path: path.stat().st_mtime)
    prompts = [
        source[json.loads(case_id)]
        for step in sorted((folder / "steps").iterdir())
        for case_id in pd.read_parquet(step / "rollout.parquet")["case_id"][::4]
    ]
    assert len(prompts) == 8
    assert 3 <= prompts.count("mine") <= 5
    looked = json.loads((folder / "validation" / "00002.json").read_text())
    apart = [looked[f"validation/{name}/accuracy"] for name in ("starter", "mine")]
    assert looked["validation/accuracy"] == pytest.approx(sum(apart) / 2)


@pytest.mark.course
def test_chinese_lines_run_end_to_end(copy_project: Callable[[str], Path], run: Run) -> None:
    project = copy_project("zh")
    (project / "data/own").mkdir(parents=True)
    rows = [
        {
            "主诉": opening,
            "对话": [{"doctor": [f"有没有{sign}？"], "patient": [f"有，{sign}{i}天了。"]} for sign in signs],
            "诊断": name,
            "建议": "多休息。",
        }
        for i in range(2, 40)
        for name, (opening, signs) in ILLNESSES.items()
    ]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (project / "data/own/zh.jsonl").write_text(lines, encoding="utf-8")
    mapping = "name: zh\nopening: 主诉\ndialogue: 对话\ndiagnosis: 诊断\nrecommendation: 建议\n"
    (project / "data/own/m.yaml").write_text(mapping, encoding="utf-8")
    alone(project)
    use(project, "zh.jsonl", "zh")
    change(project, start="recorded", turn_budget="3", near_duplicate="1.0", steps="2", response_length="60")
    run(project, "-m", "dvc", "repro")
    cases = pd.read_parquet(project / "data/cases/cases.parquet")
    assert set(cases["language"]) == {"zh"}
    assert len(cases) == len(rows)
    start = json.loads((project / "metrics/warm_start.json").read_text())
    assert start["dialogues"] == (cases["split"] == "train").sum()
    played = pd.read_parquet(project / "metrics/consultations/rollout.parquet")
    dialogue = json.loads(played["texts"].iloc[0])
    assert dialogue[0]["content"] == "先问病人，再下诊断。"
    assert re.search(r"（还剩\d轮）\Z", dialogue[1]["content"])
    page = (project / "metrics/report.html").read_text()
    assert '<html lang="zh">' in page
    for shown in ("与其他医生比较", "训练后@zh", "训练步数", "问诊实录"):
        assert shown in page
    assert "The doctor among others" not in page


BAD = {
    "no diagnosis": (
        b"text,illness\nA man has a cough. It is dry.,\nA man has a rash. It itches.,\n",
        r"error: mine\.csv: 2 of 2 records are no cases, more than patient_cases\.max_rejected_share = 0\.05; the commonest reason \(2\): no diagnosis: column 'illness' is empty \(lines 2, 3\); mend",
    ),
    "wrong column": (
        b"text,ilness\nA man has a cough. It is dry.,Croup\n",
        r"error: .*m\.yaml: illness|error: .*m\.yaml: diagnosis: mine\.csv has no column 'illness' \(it has: text, ilness\); did you mean 'ilness'\?",
    ),
    "mixed encodings": (
        b"text,illness\nA man has a cough. It is dry.,Croup\n" + "A café owner has a rash. It itches.,Eczema\n".encode("latin-1"),
        r"error: mine\.csv: 1 of 2 records .*: byte 0xe9 is no UTF-8; save the file as UTF-8 \(line 3\)",
    ),
    "the same row twice": (
        b"text,illness\nA man has a cough. It is dry.,Croup\nA man has a cough. It is dry.,Croup\n",
        r"error: mine\.csv: 1 of 2 records .*: case id 'mine-\w+' is used twice, first in line 2 \(line 3\)",
    ),
    "nothing but a header": (b"text,illness\n", r"error: patient_cases: there is no case at all; name a file"),
    "one case": (
        b"text,illness\nA man has a cough. It is dry.,Croup\n",
        r"error: patient_cases: none of 1 cases falls to (?:train|validation|test); add cases",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_table_is_one_line_and_nothing_is_written(
    copy_project: Callable[[str], Path], run: Run, name: str
) -> None:
    project = copy_project("bad_table")
    content, told = BAD[name]
    (project / "data/own").mkdir(parents=True)
    (project / "data/own/mine.csv").write_bytes(content)
    (project / "data/own/m.yaml").write_text("name: mine\nvignette: text\ndiagnosis: illness\n")
    alone(project)
    use(project, "mine.csv")
    change(project, start="none")
    said = run(project, "-m", "flows.patient_cases", "--out", "out/cases", ok=False)
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, said[-3000:]
    assert re.search(told, errors[0]), errors[0]
    assert not (project / "out/cases").exists()


def test_imitation_without_starter_cases_is_refused(copy_project: Callable[[str], Path], run: Run) -> None:
    project = copy_project("nobody")
    alone(project)
    said = run(project, "-m", "flows.warm_start", "--out", "out/warm_start", ok=False)
    assert "warm_start.start imitation needs cases of the starter clinic" in said
