"""Documents -> index folder, in one call: read, split, embed, index. Nothing here knows who asks for it."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kb.cache import Cache
from kb.config import KnowledgeBaseParams
from kb.documents import refuse_nothing
from kb.duplicates import merge_duplicates
from kb.embed import Embedder, Vectors, fingerprint, import_library, load_embedder
from kb.errors import KnowledgeBaseError
from kb.files import sha256_text
from kb.incremental import Progress, embed_passages, embed_texts, split_documents
from kb.index import build_index, check_replaceable
from kb.late import LateEmbedder
from kb.lexical import Stems
from kb.manifest import Manifest
from kb.nearest import RECALL_QUERIES
from kb.passages import Passage
from kb.quality import load_queries
from kb.reading import Corpus, all_known

logger = logging.getLogger(__name__)

SAMPLED = 200  # passages in which unknown tokens are counted


@dataclass(frozen=True, kw_only=True)
class Built:
    """What a build did. Made by `build_knowledge_base`.

    Attributes:
        manifest: of the index.
        documents: that were read.
        rejected: records that could not be used.
        embedded: texts that no cache knew.
    """

    manifest: Manifest
    documents: int
    rejected: int
    embedded: int


def build_knowledge_base(
    params: KnowledgeBaseParams,
    root: Path,
    out: Path,
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Built:
    """Build the index that the parameters describe.

    Args:
        params: sources, embedder and everything else.
        root: what relative paths in them are relative to.
        out: the index folder; an index that is there is replaced when the new one is complete.
        cache: file of what earlier builds computed; None: everything is computed.
        progress: told how far the embedding is.

    Raises:
        KnowledgeBaseError: if a source, a setting or the embedder cannot be used, or the embedder does not know the
            writing of the texts, or reads less of one than a passage is long.
    """
    _check_beforehand(params, root, out)
    known = None if cache is None else Cache(cache)
    corpus = Corpus(params.sources, root, params.licences, known)
    refuse_nothing(corpus.documents, corpus.files, corpus.rejected)
    for record in corpus.rejected:
        logger.warning("rejected: %s", record)
    embedder = _embedder(params, known)
    if params.fusion.method != "lexical":
        _check_length(embedder, params)
    passages = split_documents(corpus.documents, embedder, params.max_tokens, params.overlap_tokens, known, corpus.read)
    passages = merge_duplicates(passages, params.near_duplicate, known)
    vectors_ND, queries_QD, embedded = None, None, 0
    if params.fusion.method != "lexical":
        _check_writing(passages, embedder, params)
        result = embed_passages(passages, embedder, known, progress)
        vectors_ND, embedded = result.vectors, result.embedded
        queries_QD = _query_vectors(params, root, embedder, known)
    manifest = build_index(
        passages,
        vectors_ND,
        out,
        embedder,
        params,
        sources=corpus.hashes,
        rejected=corpus.rejected,
        queries_QD=queries_QD,
    )
    return Built(manifest=manifest, documents=len(corpus.documents), rejected=len(corpus.rejected), embedded=embedded)


def import_embedder(params: KnowledgeBaseParams, root: Path, cache: Path) -> None:
    """Import what embeds, which takes seconds, if a build with this cache will have something new to read: for whoever has
    to wait for something else meanwhile.

    Raises:
        KnowledgeBaseError: a source does not exist.
    """
    if not all_known(params.sources, root, Cache(cache)):
        import_library()


def _check_beforehand(params: KnowledgeBaseParams, root: Path, out: Path) -> None:
    """Whatever would stop the build after hours, and can be known now."""
    check_replaceable(out)
    Stems(params.bm25.stemmer)
    if params.queries is not None and params.qrels is not None:
        load_queries(root / params.queries, root / params.qrels)


def _check_length(embedder: Embedder, params: KnowledgeBaseParams) -> None:
    """Refuse an embedder that would leave the end of every long passage unread."""
    if params.max_tokens > embedder.max_tokens:
        raise KnowledgeBaseError(
            f"embedder {params.embedder!r} reads {embedder.max_tokens} tokens of a text and max_tokens is {params.max_tokens}: "
            f"set knowledge_base.max_tokens to {embedder.max_tokens} or less"
        )


def _check_writing(passages: Sequence[Passage], embedder: Embedder, params: KnowledgeBaseParams) -> None:
    """Refuse an embedder to which the texts are mostly one and the same unknown token."""
    step = -(-len(passages) // SAMPLED)
    share = embedder.unknown_share([passage.text for passage in passages[::step]])
    if share > params.max_unknown_share:
        raise KnowledgeBaseError(
            f"embedder {params.embedder!r} does not know {share:.0%} of the texts' tokens, more than max_unknown_share "
            f"({params.max_unknown_share:.0%}): set knowledge_base.fusion.method to lexical, or name an embedder that reads them"
        )


def _embedder(params: KnowledgeBaseParams, cache: Cache | None) -> Embedder:
    """The embedder of the parameters, loaded where no cache can tell what it is."""

    def load() -> Embedder:
        return load_embedder(params.embedder, params.batch_size, params.compute)

    if cache is None:
        return load()
    return LateEmbedder(params.embedder, params.compute, load, fingerprint(params.embedder), cache)


def _query_vectors(params: KnowledgeBaseParams, root: Path, embedder: Embedder, cache: Cache | None) -> Vectors | None:
    if params.queries is None or params.qrels is None:
        return None
    queries, _ = load_queries(root / params.queries, root / params.qrels)
    texts = list(queries.values())[:RECALL_QUERIES]
    vectors, _ = embed_texts({sha256_text(text): text for text in texts}, embedder, cache)
    return np.array([vectors[sha256_text(text)] for text in texts], np.float32).reshape(-1, embedder.dimension)
