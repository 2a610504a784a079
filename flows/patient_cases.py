"""Raw cases -> validated, split cases."""

from pathlib import Path

from prefect import flow

from doctor.parameters import load_params
from rl.files import write_json
from tasks.command_line import run
from tasks.outputs import metrics_file, output
from tasks.patient_cases import check_starter, collect_cases
from tracking.console import WATCHED


@flow(name="patient_cases", **WATCHED)
def patient_cases(out: Path | None = None, params_file: Path | None = None) -> None:
    """Check the starter clinic, draw its cases, load imported sets, split and write them.

    Args:
        out: where the case table goes; by default a folder of its own under runs/, so that nothing versioned is touched.
        params_file: another params.yaml.
    """
    params = load_params(params_file).patient_cases
    out = output(out, "cases")
    bayes = check_starter(params)
    counts = collect_cases(params, out)
    write_json(metrics_file(out, "patient_cases"), {**counts, **bayes})


if __name__ == "__main__":
    run(patient_cases, Path("data/cases"))
