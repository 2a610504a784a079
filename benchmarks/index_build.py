"""What a knowledge base costs beside the bare embedding of its passages, both from nothing and in the same process.

python -m benchmarks.index_build data/library/medquad_docs.jsonl.gz
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import kb
from kb.config import read_params
from kb.embed import load_embedder
from kb.incremental import KEPT_EVERY
from kb.index import KnowledgeIndex

PARAMS = Path("params.yaml")


def main() -> None:
    """Print one JSON line; the embedder is loaded once before, as a searching process has it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.index_build", description=__doc__)
    parser.add_argument("sources", nargs="+", help="files or folders of documents")
    parser.add_argument("--params", type=Path, default=PARAMS)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the index and its cache stay; not there yet")
    given = parser.parse_args()
    if given.keep and given.keep.exists():
        parser.error(f"{given.keep} is there already; name a new folder")
    params = read_params(given.params)
    embedder = load_embedder(params.embedder, params.batch_size, params.compute)
    embedder.encode(["warm"])
    with tempfile.TemporaryDirectory() as passing:
        folder = given.keep or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter(), time.process_time()
        built = kb.build(given.sources, folder / "index", params, cache=folder / "kb.sqlite")
        whole = time.perf_counter() - began[0], time.process_time() - began[1]
        texts = list(dict.fromkeys(passage.embedded_text for passage in KnowledgeIndex.load(folder / "index").passages))
    began = time.perf_counter(), time.process_time()
    for first in range(0, len(texts), KEPT_EVERY):
        embedder.encode(texts[first : first + KEPT_EVERY])
    bare = time.perf_counter() - began[0], time.process_time() - began[1]
    measured = {
        "documents": built.documents,
        "passages": built.manifest.n_passages,
        "compute": params.compute,
        "build_s": round(whole[0], 1),
        "bare_s": round(bare[0], 1),
        "build_cpu_s": round(whole[1], 1),
        "bare_cpu_s": round(bare[1], 1),
        "share_of_bare_cpu": round(bare[1] / whole[1], 3),
    }
    sys.stdout.write(json.dumps(measured) + "\n")


if __name__ == "__main__":
    main()
