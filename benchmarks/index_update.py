"""Whether an index that was brought up to date is the one that is built from nothing, and what that costs.

python -m benchmarks.index_update data/library/medquad_docs.jsonl.gz --queries data/library/queries.jsonl.gz

The documents as they are come after an older edition of them, in which some are missing, some have another sentence and
some are there that are gone by now. The newer one is built twice: after the older one with its cache, and with none.
"""

import argparse
import gzip
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import kb
from kb.cache import Cache, maker_of
from kb.config import KnowledgeBaseParams, read_params
from kb.embed import Embedder, load_embedder
from kb.files import numbered_lines
from kb.index import KnowledgeIndex
from kb.search import QUERY_BATCH, Searcher

PARAMS = Path("params.yaml")
TOUCHED = 20  # documents that are new, changed and gone, each
ASKED = 1000
HITS = 10


def main() -> None:
    """Print one JSON line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.index_update", description=__doc__)
    parser.add_argument("documents", type=Path, help="JSONL with doc_id and text, maybe .gz")
    parser.add_argument("--queries", type=Path, required=True, help="JSONL with text, maybe .gz")
    parser.add_argument("--params", type=Path, default=PARAMS)
    parser.add_argument("--compute", choices=("float32", "bfloat16"), help="default: that of the parameters")
    parser.add_argument(
        "--vectors",
        type=Path,
        help="cache of a build from nothing: its vectors are taken and nothing else; the updated index embeds what is new itself",
    )
    given = parser.parse_args()
    params = read_params(given.params)
    if given.compute is not None:
        params = params.model_copy(update={"compute": given.compute})
    with tempfile.TemporaryDirectory(prefix="update-") as folder:
        measured = _measured(given.documents, given.queries, params, given.vectors, Path(folder))
    sys.stdout.write(json.dumps(measured) + "\n")


def _measured(
    documents: Path, queries: Path, params: KnowledgeBaseParams, vectors: Path | None, folder: Path
) -> dict[str, object]:
    rows = [json.loads(raw) for _, raw in numbered_lines(documents) if raw.strip()]
    embedder = load_embedder(params.embedder, QUERY_BATCH, params.compute)
    maker = maker_of("vectors", embedder.weights, embedder.compute)
    whole, updated = Cache(folder / "whole.sqlite"), Cache(folder / "updated.sqlite")
    for cache in (whole, updated):
        cache.get(maker, [])  # makes the file
        if vectors is not None:
            _copy(vectors, cache.path, maker)

    def build(name: str, edition: Sequence[dict[str, str]], cache: Cache) -> tuple[KnowledgeIndex, dict[str, float]]:
        source = folder / "documents.jsonl.gz"
        with gzip.open(source, "wt", encoding="utf-8", compresslevel=1) as file:
            file.writelines(json.dumps(row) + "\n" for row in edition)
        began = time.perf_counter(), time.process_time()
        built = kb.build([source], folder / name, params, cache=cache.path)
        took = {
            "embedded": built.embedded,
            "s": time.perf_counter() - began[0],
            "cpu_s": time.process_time() - began[1],
        }
        return KnowledgeIndex.load(folder / name), {key: round(value, 1) for key, value in took.items()}

    full, from_nothing = build("full", rows, whole)
    older, before = build("index", _older(rows), updated)
    _forget(updated.path, maker, _texts(full) - _texts(older))
    index, after = build("index", rows, updated)
    _, again = build("index", rows, updated)
    asked = [json.loads(raw)["text"] for _, raw in numbered_lines(queries) if raw.strip()]
    asked = asked[:: max(1, len(asked) // ASKED)][:ASKED]
    ours, theirs = (_found(one, asked, embedder) for one in (index, full))
    return {
        "documents": len(rows),
        "passages": len(index.passages),
        "new, changed, gone": [TOUCHED] * 3,
        "vectors": "embedded" if vectors is None else "of an earlier build, but for those of new texts",
        "from_nothing": from_nothing,
        "older": before,
        "update": after,
        "unchanged": again,
        "same_files": index.manifest.files == full.manifest.files,
        "same_passages": index.passages.table.equals(full.passages.table),
        "queries": len(asked),
        "same_top_10": sum(one == other for one, other in zip(ours, theirs, strict=True)),
    }


def _older(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """An edition before: every so-many-th document is not there yet, says something else, or is there besides."""
    step = len(rows) // TOUCHED
    older: list[dict[str, str]] = []
    for number, row in enumerate(rows):
        match number % step if number < step * TOUCHED else None:
            case 0:
                continue
            case 1:
                older.append({**row, "text": f"{row['text']} This was known before."})
            case 2:
                older += [row, {**row, "doc_id": f"{row['doc_id']}-gone", "text": f"Once it was said. {row['text']}"}]
            case _:
                older.append(row)
    return older


def _texts(index: KnowledgeIndex) -> set[str]:
    return set(index.passages.table.column("sha256").to_pylist())


def _copy(known: Path, cache: Path, maker: str) -> None:
    with closing(sqlite3.connect(cache)) as database:
        database.execute("ATTACH ? AS known", (str(known),))
        with database:
            database.execute("INSERT INTO made SELECT * FROM known.made WHERE maker = ?", (maker,))


def _forget(cache: Path, maker: str, names: set[str]) -> None:
    with closing(sqlite3.connect(cache)) as database, database:
        database.executemany("DELETE FROM made WHERE maker = ? AND name = ?", [(maker, name) for name in names])


def _found(index: KnowledgeIndex, asked: Sequence[str], embedder: Embedder) -> list[list[tuple[str, float]]]:
    """Ids and scores of the best passages of every query."""
    found = Searcher(index, embedder).search_many(asked, HITS)
    return [[(hit.passage.passage_id, hit.score) for hit in hits] for hits in found]


if __name__ == "__main__":
    main()
