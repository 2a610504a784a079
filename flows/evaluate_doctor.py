"""Checkpoint -> measures with intervals and baselines on held-out cases."""

from pathlib import Path

from prefect import flow

from tasks.command import run
from tasks.evaluation import evaluate_bayes_full_information, evaluate_policy, evaluate_reference, open_ward, write_accuracy_plot
from tasks.outputs import output, plots_file, write_json
from tasks.parameters import ROOT, load_params
from tasks.recording import record_evaluation


@flow(name="evaluate_doctor")
def evaluate_doctor(
    out: Path | None = None,
    params_file: Path | None = None,
    doctor: Path = ROOT / "models/doctor",
    warm_start: Path = ROOT / "models/warm_start",
    cases: Path = ROOT / "data/cases",
    index: Path = ROOT / "data/kb_index",
) -> None:
    """Compare the trained doctor with its warm start and with reference doctors, on the same test cases and budget."""
    out = output(out, "evaluate_doctor.json")
    ward = open_ward(load_params(params_file), cases, index)
    questions = ward.budget - 1
    metrics = evaluate_policy(ward, "trained", doctor, ward.budget, chart=False, keep=out.parent / "consultations")
    metrics |= evaluate_policy(ward, "warm_start", warm_start, ward.budget, chart=False, keep=None)
    metrics |= evaluate_policy(ward, "no_questions", doctor, 1, chart=False, keep=None)
    metrics |= evaluate_policy(ward, "full_information", doctor, 1, chart=True, keep=None)
    metrics |= evaluate_reference(ward, "random_questions", "at_random", questions)
    metrics |= evaluate_reference(ward, "bayes_optimal", "greedy", questions)
    metrics |= evaluate_reference(ward, "bayes_no_questions", "greedy", 0)
    metrics |= evaluate_bayes_full_information(ward)
    write_json(out, metrics)
    write_accuracy_plot(metrics, plots_file(out, "evaluate_doctor.csv"))
    record_evaluation(metrics, doctor, out.parent / "consultations")


if __name__ == "__main__":
    run(evaluate_doctor, Path("metrics/evaluate_doctor.json"))
