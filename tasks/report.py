"""The page of an evaluation, and the tables that `dvc plots` shows."""

import csv
import logging
from collections.abc import Mapping
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from clinic.cases import read_cases
from clinic.events import read_events
from clinic.tables import Evaluation
from doctor.model_card import learned_by
from doctor.parameters import Params
from doctor.scoring import right
from doctor.stages import input_hash
from rl.experience import read_scores, read_trajectories
from rl.files import folder_hash
from tasks.outputs import plots_file
from tracking.report_page import Seen, write_accuracy_by_turns, write_confusion, write_report

log = logging.getLogger(__name__)


@task(cache_policy=NO_CACHE)
def evaluation_page(params: Params, metrics: Evaluation, given: Mapping[str, Path], out: Path) -> Path:
    """Write `report.html` beside the metrics, and the confusion and accuracy-by-turns tables for `dvc plots`; returns
    the page's path.

    The same inputs give the same bytes: no date, no commit. These are in the MLflow run.

    Args:
        params: of the evaluation.
        metrics: what it measured.
        given: models and data that it used, by their names in dvc.yaml.
        out: the metrics file.
    """
    seen, facts = _seen(given["data/cases"], out.parent / "consultations"), _facts(params, given)
    curve = plots_file(out, "train_doctor.csv")
    rows = (
        [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(curve.open())] if curve.exists() else []
    )
    page = out.with_name("report.html")
    write_report(page, f"{params.train_doctor.project}: {params.train_doctor.experiment}", facts, metrics, rows, seen)
    write_confusion(seen, plots_file(out, "confusion.csv"))
    write_accuracy_by_turns(seen, plots_file(out, "accuracy_by_turns.csv"))
    log.info("report: %s", page)
    return page


def _facts(params: Params, given: Mapping[str, Path]) -> dict[str, str]:
    """What made the doctor and its figures. How it learned is for its card to say: parameters may have changed since, and
    any other doctor can be evaluated.
    """
    patient, learned = params.language_models.patient, learned_by(given["models/doctor"])
    told = {
        "algorithm": learned.get("algorithm", ""),
        "reward": params.reward.preset,
        "seed": learned.get("seed", ""),
        "turn budget": str(params.consultation.turn_budget),
        "patients": patient.model if patient is not None else "scripted",
        "all inputs": f"sha256 {input_hash('evaluate_doctor', params, given)[:12]}",
        **{
            Path(name).name.replace("_", " "): f"{path.name}, sha256 {folder_hash(path)[:12]}"
            for name, path in given.items()
        },
    }
    return {name: text for name, text in told.items() if text}


def _seen(cases: Path, consultations: Path) -> list[Seen]:
    """The doctor's test consultations that were played, with their cases and rewards."""
    by_id = {case.case_id: case for case in read_cases(cases / "cases.parquet", "test")}
    played = zip(
        read_trajectories(consultations / "rollout.parquet"), read_scores(consultations / "scores.parquet"), strict=True
    )
    return [
        Seen(
            case=(case := by_id[t.case_id]),
            messages=t.texts,
            events=read_events(t.events),
            rewards=score.turns,
            stop_reason=t.stop_reason,
            correct=right(case, t),
        )
        for t, score in played
        if t.played
    ]
