"""Medical texts -> searchable index."""

from pathlib import Path

from prefect import flow

from doctor.parameters import load_params
from rl.files import write_json
from tasks.command_line import run
from tasks.knowledge_base import index_documents, measure_retrieval
from tasks.outputs import metrics_file, output
from tracking.console import follow, named


@flow(name="knowledge_base", flow_run_name=named, on_running=[follow])
def knowledge_base(out: Path | None = None, params_file: Path | None = None) -> None:
    """Split documents into passages, embed them, build the index, measure retrieval where queries are given."""
    out = output(out, "kb_index")
    params = load_params(params_file).knowledge_base
    counts = index_documents(params, out)
    quality = measure_retrieval(params, out)
    write_json(metrics_file(out, "knowledge_base"), {**counts, **quality})


if __name__ == "__main__":
    run(knowledge_base, Path("data/kb_index"))
