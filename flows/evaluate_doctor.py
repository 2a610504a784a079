"""Checkpoint -> measures with intervals and baselines on held-out cases, and a page about them."""

from pathlib import Path

from prefect import flow

from clinic.doctors import at_random, greedy
from clinic.tables import Evaluation
from doctor.evaluation import open_evaluation_sets
from doctor.evaluation_text import headline, write_accuracy_plot
from doctor.parameters import ROOT, load_params
from rl.files import write_json
from tasks.command_line import run
from tasks.evaluation import compare, evaluate_fitted, evaluate_full_information, evaluate_policy, evaluate_reference
from tasks.outputs import metrics_file, output, plots_file
from tasks.report import evaluation_page
from tracking.console import WATCHED
from tracking.recorder import record_evaluation


@flow(name="evaluate_doctor", **WATCHED)
def evaluate_doctor(
    out: Path | None = None,
    params_file: Path | None = None,
    doctor: Path = ROOT / "models/doctor",
    warm_start: Path = ROOT / "models/warm_start",
    cases: Path = ROOT / "data/cases",
    index: Path = ROOT / "data/kb_index",
) -> None:
    """Compare the trained doctor with its warm start (or any other checkpoint) and with reference doctors, on the same
    test cases and budget.

    Args:
        out: where the figures go; by default a folder of its own under runs/, so that nothing versioned is touched.
        params_file: another params.yaml.
        doctor: folder of the weights that are evaluated.
        warm_start: folder of those that it is compared with.
        cases: folder of the case table.
        index: folder of the knowledge base.
    """
    params = load_params(params_file)
    out = output(out, "evaluate_doctor.json")
    played = out.parent / "consultations"
    metrics = Evaluation()
    for test_set in open_evaluation_sets(params, cases, index):
        questions = test_set.budget - 1
        metrics |= evaluate_policy(
            test_set,
            "trained",
            doctor,
            test_set.budget,
            opened="",
            keep=played if test_set.first else played / test_set.source,
        )
        metrics |= evaluate_policy(test_set, "warm_start", warm_start, test_set.budget, opened="", keep=None)
        metrics |= compare(test_set, "trained", "warm_start")
        if test_set.consultations:
            metrics |= evaluate_policy(test_set, "no_questions", doctor, 1, opened="", keep=None)
            metrics |= evaluate_policy(test_set, "full_information", doctor, 1, opened="chart", keep=None)
            metrics |= evaluate_fitted(test_set)
        if test_set.generative:
            metrics |= evaluate_reference(test_set, "random_questions", at_random, questions)
            metrics |= evaluate_reference(test_set, "bayes_optimal", greedy, questions)
            metrics |= evaluate_reference(test_set, "bayes_no_questions", greedy, 0)
            metrics |= evaluate_full_information(test_set)
    write_json(out, metrics.to_json())
    write_json(metrics_file(out, "summary"), headline(metrics))
    write_accuracy_plot(metrics, plots_file(out, "evaluate_doctor.csv"))
    page = evaluation_page(
        params,
        metrics,
        {"models/doctor": doctor, "models/warm_start": warm_start, "data/cases": cases, "data/kb_index": index},
        out,
    )
    record_evaluation(params, metrics, doctor, played, page, cases)


if __name__ == "__main__":
    run(evaluate_doctor, Path("metrics/evaluate_doctor.json"))
