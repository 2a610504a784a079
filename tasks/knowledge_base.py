"""Tasks of `knowledge_base`: documents -> passages -> words and vectors -> index, and its retrieval quality."""

import logging
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from doctor.places import KB_CACHE, ROOT
from kb.building import build_knowledge_base, import_embedder
from kb.config import KnowledgeBaseParams, read_params
from kb.quality import found_from, load_queries, retrieval_quality, tell_unknown
from kb.search import open_index
from tracking.progress import Phase

log = logging.getLogger(__name__)
DEPTH = 10


def import_ahead(params_file: Path | None) -> None:
    """Import what a build is going to need and takes seconds; for the time that Prefect's server takes to start."""
    import_embedder(read_params(params_file or ROOT / "params.yaml"), ROOT, KB_CACHE)


@task(cache_policy=NO_CACHE)
def index_documents(params: KnowledgeBaseParams, out: Path) -> dict[str, Any]:
    """Build the index at `out`; returns its counts.

    Records that cannot be used are counted and listed, not dropped silently.
    """
    built = build_knowledge_base(params, ROOT, out, cache=KB_CACHE, progress=Phase("embedding", "passages"))
    manifest = built.manifest
    log.info(
        "%d documents, %d passages (%d embedded, the others known), index of %s",
        built.documents,
        manifest.n_passages,
        built.embedded,
        manifest.index_kind or "words",
    )
    vectors = {} if manifest.index_kind is None else {"index_recall@10": manifest.recall_at_10}
    return {
        "documents": built.documents,
        "passages": manifest.n_passages,
        "rejected": built.rejected,
        "dimension": manifest.dimension,
        **vectors,
    }


@task(cache_policy=NO_CACHE)
def measure_retrieval(params: KnowledgeBaseParams, index: Path) -> dict[str, float]:
    """Strict retrieval quality on the queries named in params; empty without queries."""
    if params.queries is None or params.qrels is None:
        return {}
    queries, qrels = load_queries(ROOT / params.queries, ROOT / params.qrels)
    searcher, relevance = open_index(index), found_from(qrels)
    tell_unknown(qrels, relevance, searcher.documents())
    ranked = searcher.search_documents(list(queries.values()), DEPTH)
    return dict(retrieval_quality(dict(zip(queries, ranked, strict=True)), qrels, relevance, DEPTH))
