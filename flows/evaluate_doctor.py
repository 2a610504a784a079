"""Checkpoint -> measures with intervals and baselines on held-out cases, and a page about them."""

from pathlib import Path

from prefect import flow

from clinic.tables import Evaluation
from doctor.parameters import ROOT, load_params
from rl.files import write_json
from tasks.command_line import run
from tasks.evaluation import compare, evaluate_bayes_full_information, evaluate_policy, evaluate_reference, open_wards, write_accuracy_plot
from tasks.outputs import output, plots_file
from tasks.report import evaluation_page
from tracking.console import follow
from tracking.recorder import record_evaluation


@flow(name="evaluate_doctor", on_running=[follow])
def evaluate_doctor(
    out: Path | None = None,
    params_file: Path | None = None,
    doctor: Path = ROOT / "models/doctor",
    warm_start: Path = ROOT / "models/warm_start",
    cases: Path = ROOT / "data/cases",
    index: Path = ROOT / "data/kb_index",
) -> None:
    """Compare the trained doctor with its warm start (or any other checkpoint) and with reference doctors, on the same test cases and budget."""
    out = output(out, "evaluate_doctor.json")
    params = load_params(params_file)
    played = out.parent / "consultations"
    metrics = Evaluation()
    for ward in open_wards(params, cases, index):
        questions = ward.budget - 1
        metrics |= evaluate_policy(ward, "trained", doctor, ward.budget, chart=False, keep=played if ward.first else played / ward.source)
        metrics |= evaluate_policy(ward, "warm_start", warm_start, ward.budget, chart=False, keep=None)
        metrics |= compare(ward, "trained", "warm_start")
        if ward.consultations:
            metrics |= evaluate_policy(ward, "no_questions", doctor, 1, chart=False, keep=None)
            metrics |= evaluate_policy(ward, "full_information", doctor, 1, chart=True, keep=None)
        if ward.generative:
            metrics |= evaluate_reference(ward, "random_questions", "at_random", questions)
            metrics |= evaluate_reference(ward, "bayes_optimal", "greedy", questions)
            metrics |= evaluate_reference(ward, "bayes_no_questions", "greedy", 0)
            metrics |= evaluate_bayes_full_information(ward)
    write_json(out, metrics.to_json())
    write_accuracy_plot(metrics, plots_file(out, "evaluate_doctor.csv"))
    page = evaluation_page(params, metrics, {"models/doctor": doctor, "models/warm_start": warm_start, "data/cases": cases, "data/kb_index": index}, out)
    record_evaluation(metrics, doctor, played, page)


if __name__ == "__main__":
    run(evaluate_doctor, Path("metrics/evaluate_doctor.json"))
