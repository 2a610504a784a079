"""Base model -> policy that can hold a mediocre consultation (supervised fine-tuning)."""

from pathlib import Path

from prefect import flow

from doctor.parameters import ROOT, load_params
from rl.files import write_json
from tasks.command_line import run
from tasks.outputs import metrics_file, output
from tasks.warm_start import fine_tune
from tracking.console import WATCHED


@flow(name="warm_start", **WATCHED)
def warm_start(
    out: Path | None = None,
    params_file: Path | None = None,
    cases: Path = ROOT / "data/cases",
    index: Path = ROOT / "data/kb_index",
) -> None:
    """Fine-tune the base model on doctor turns, as `warm_start.start` says.

    Args:
        out: where the weights go; by default a folder of its own under runs/, so that nothing versioned is touched.
        params_file: another params.yaml.
        cases: folder of the case table.
        index: folder of the knowledge base.
    """
    params = load_params(params_file)
    out = output(out, "warm_start")
    metrics = fine_tune(params, cases, index, out)
    write_json(metrics_file(out, "warm_start"), metrics)


if __name__ == "__main__":
    run(warm_start, Path("models/warm_start"))
