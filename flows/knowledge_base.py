"""Medical texts -> searchable index."""

import json
from pathlib import Path

from prefect import flow

from doctor.places import ROOT
from kb.config import read_params
from tasks.command_line import run
from tasks.knowledge_base import import_ahead, index_documents, measure_retrieval
from tasks.outputs import metrics_file, output
from tracking.console import WATCHED


@flow(name="knowledge_base", **WATCHED)
def knowledge_base(out: Path | None = None, params_file: Path | None = None) -> None:
    """Split documents into passages, embed them, build the index, measure retrieval where queries are given.

    Args:
        out: where the index goes; by default a folder of its own under runs/, so that nothing versioned is touched.
        params_file: another params.yaml.
    """
    params = read_params(params_file or ROOT / "params.yaml")
    out = output(out, "kb_index")
    measured = {**index_documents(params, out), **measure_retrieval(params, out)}
    metrics = metrics_file(out, "knowledge_base")
    metrics.parent.mkdir(parents=True, exist_ok=True)
    metrics.write_text(json.dumps(measured, indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run(knowledge_base, Path("data/kb_index"), meanwhile=import_ahead)
