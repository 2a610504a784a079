"""Tasks of `knowledge_base`: documents -> passages -> vectors -> index, and its retrieval quality."""

import logging
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from doctor.parameters import ROOT
from kb.config import KnowledgeBaseParams
from kb.documents import load_documents
from kb.duplicates import merge_duplicates
from kb.embed import load_embedder
from kb.incremental import embed_passages
from kb.index import KnowledgeIndex, build_index
from kb.quality import load_queries, retrieval_quality
from kb.search import Searcher
from kb.sources import hash_sources
from kb.splitting import split_passages

log = logging.getLogger(__name__)
STRICT = 2  # the relevance grade that counts as found
DEPTH = 10


@task(cache_policy=NO_CACHE)
def index_documents(params: KnowledgeBaseParams, out: Path) -> dict[str, Any]:
    """Build the index at `out`; returns its counts.

    Records that cannot be used are counted and listed, not dropped silently.
    """
    documents, rejected = load_documents(params.sources, ROOT, params.licences)
    for record in rejected:
        log.warning("rejected: %s", record)
    embedder = load_embedder(params.embedder, params.batch_size)
    passages = split_passages(documents, embedder.count_tokens, params.max_tokens, params.overlap_tokens)
    passages = merge_duplicates(passages, params.near_duplicate)
    embedded = embed_passages(passages, embedder, reuse=out)
    manifest = build_index(passages, embedded.vectors, out, embedder.name, sources=hash_sources(params.sources, ROOT))
    log.info(
        "%d documents, %d passages (%d embedded, %d reused), index %s",
        len(documents),
        len(passages),
        embedded.embedded,
        embedded.reused,
        manifest.index_kind,
    )
    return {
        "documents": len(documents),
        "passages": len(passages),
        "rejected": len(rejected),
        "dimension": embedder.dimension,
    }


@task(cache_policy=NO_CACHE)
def measure_retrieval(params: KnowledgeBaseParams, index: Path) -> dict[str, float]:
    """Strict retrieval quality on the queries named in params; empty without queries."""
    if params.queries is None or params.qrels is None:
        return {}
    queries, qrels = load_queries(ROOT / params.queries, ROOT / params.qrels)
    searcher = Searcher(KnowledgeIndex.load(index), load_embedder(params.embedder, params.batch_size))
    ranked = searcher.search_documents(list(queries.values()), DEPTH)
    return dict(retrieval_quality(dict(zip(queries, ranked, strict=True)), qrels, STRICT, DEPTH))
