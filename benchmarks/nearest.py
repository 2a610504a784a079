"""What the vector index costs at a size: real vectors with noise, built, saved, and searched by a process of its own.

python -m benchmarks.nearest data/kb_index 100000
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from kb.config import VectorIndexParams, read_params
from kb.embed import Vectors
from kb.index import KnowledgeIndex
from kb.manifest import IndexKind
from kb.nearest import VectorIndex, choose_kind

NOISE = 0.5  # length of what is added to a vector of length 1: the cosine to it is about .9
QUERIES = 300
HITS = 10
BLOCK = 50_000
PARAMS = Path("params.yaml")


def main() -> None:
    """Print one JSON line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nearest", description=__doc__)
    parser.add_argument("index", type=Path, help="an index folder, whose vectors are the real ones")
    parser.add_argument("count", type=int, help="how many vectors")
    parser.add_argument("--kind", choices=("auto", "flat", "hnsw", "ivf_pq"), default="auto")
    parser.add_argument("--search", type=Path, help=argparse.SUPPRESS)  # the searching process
    given = parser.parse_args()
    params = read_params(PARAMS).index.model_copy(update={"kind": given.kind})
    measured = searched(given.search, given.count, params) if given.search else built(given.index, given.count, params)
    sys.stdout.write(json.dumps(measured) + "\n")


def built(index: Path, count: int, params: VectorIndexParams) -> dict[str, object]:
    """Build and save an index, then have it searched."""
    nearest = KnowledgeIndex.load(index).nearest
    if nearest is None:
        raise SystemExit(f"{index} has no vectors")
    rng = np.random.default_rng(0)
    real_ND = nearest.vectors()
    vectors_ND, queries_QD = noisy(real_ND, count, rng), noisy(real_ND, QUERIES, rng)
    del nearest, real_ND
    began, cpu = time.perf_counter(), time.process_time()
    made = VectorIndex.build(vectors_ND, params)
    build_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    recall = made.recall(queries_QD)
    with tempfile.TemporaryDirectory(prefix="nearest-", dir=index.parent) as folder:
        made.save(Path(folder))
        np.save(Path(folder) / "queries.npy", queries_QD)
        kind = made.kind
        del made, vectors_ND
        size = sum(path.stat().st_size for path in Path(folder).iterdir() if path.name != "queries.npy")
        command = [sys.executable, "-m", "benchmarks.nearest", str(index), str(count), "--kind", params.kind]
        done = subprocess.run([*command, "--search", folder], capture_output=True, text=True, check=True)
    return {
        "vectors": count,
        "kind": kind,
        "build_s": round(build_s, 1),
        "build_cpu_s": round(cpu_s, 1),
        "size_mib": round(size / 2**20),
        "recall@10": round(recall, 4),
        **json.loads(done.stdout),
    }


def noisy(real_ND: Vectors, count: int, rng: np.random.Generator) -> Vectors:
    """Draw unit vectors, each a real one with noise: shape (count, D)."""
    out_ND = np.empty((count, real_ND.shape[1]), np.float32)
    for first in range(0, count, BLOCK):
        rows = rng.integers(len(real_ND), size=min(BLOCK, count - first))
        block = real_ND[rows] + rng.normal(scale=NOISE / real_ND.shape[1] ** 0.5, size=(len(rows), real_ND.shape[1]))
        out_ND[first : first + len(rows)] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return out_ND


def searched(folder: Path, count: int, params: VectorIndexParams) -> dict[str, object]:
    """Search one query at a time; what it took, and what memory it is at the end."""
    index = VectorIndex.load(folder, IndexKind(choose_kind(count, params)), params)
    times = []
    for query_D in np.load(folder / "queries.npy"):
        began = time.perf_counter()
        index.search(query_D[None], HITS)
        times.append(1000 * (time.perf_counter() - began))
    status = Path("/proc/self/status").read_text().splitlines()
    memory = {
        line.split(":")[0]: int(line.split()[1]) // 1024 for line in status if line.startswith(("VmRSS", "RssAnon"))
    }
    p50, p99 = np.percentile(times, [50, 99])
    return {
        "p50_ms": round(float(p50), 2),
        "p99_ms": round(float(p99), 2),
        "rss_mib": memory["VmRSS"],
        "of_it_not_mapped_mib": memory["RssAnon"],
    }


if __name__ == "__main__":
    main()
