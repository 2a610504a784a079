"""Compute only what is new: passages of unchanged documents and vectors of unchanged texts come from the cache.

What comes out is the same with any cache and with none. Shape suffixes: N passages, D dimension.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kb.cache import Cache, maker_of
from kb.documents import D, Document
from kb.embed import Embedder, Vectors
from kb.passages import Passage
from kb.splitting import split_passages

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Told how many passages of how many are embedded."""

SPLITTER = ("kb.passages", "kb.sentences", "kb.splitting")  # the code that makes passages
KEPT_EVERY = 2048  # documents cut, or passages embedded, between two transactions; a kill loses so many at most


@dataclass(frozen=True)
class EmbeddedPassages:
    """Made by `embed_passages`, read by the caller of `kb.index.build_index`.

    Attributes:
        vectors: float32, shape (N, D), row i for passage i.
        embedded: texts that the embedder had to read.
    """

    vectors: Vectors
    embedded: int


def split_documents(
    documents: Sequence[D],
    embedder: Embedder,
    max_tokens: int,
    overlap_tokens: int,
    cache: Cache | None,
    read: Callable[[Sequence[D]], Sequence[Document]],
) -> list[Passage]:
    """As `split_passages`, which sees only the documents that are not in the cache as they are now.

    Args:
        documents: of which the hash is known.
        embedder: whose tokens count; it is not asked if all documents are known.
        max_tokens: as for `split_passages`.
        overlap_tokens: likewise.
        cache: passages by document; None: all documents are cut.
        read: gives the whole documents.

    Raises:
        KnowledgeBaseError: as `split_passages`.
    """
    maker = maker_of("passages", embedder.weights, max_tokens, overlap_tokens, code=SPLITTER)
    known = {} if cache is None else cache.get(maker, [document.sha256 for document in documents])
    new = [document for document in documents if document.sha256 not in known]
    fresh: dict[str, list[Passage]] = {document.doc_id: [] for document in new}
    for first in range(0, len(new), KEPT_EVERY):
        part = new[first : first + KEPT_EVERY]
        for passage in split_passages(read(part), embedder.count_tokens, max_tokens, overlap_tokens):
            fresh[passage.doc_id].append(passage)
        if cache is not None:
            cache.put(maker, {document.sha256: _to_bytes(fresh[document.doc_id]) for document in part})
    logger.info("split %d of %d documents, the others are known", len(new), len(documents))
    return [
        passage
        for document in documents
        for passage in (fresh[document.doc_id] if document.doc_id in fresh else _from_bytes(known[document.sha256]))
    ]


def embed_passages(
    passages: Sequence[Passage],
    embedder: Embedder,
    cache: Cache | None,
    progress: Progress | None = None,
    kept_every: int = KEPT_EVERY,
) -> EmbeddedPassages:
    """Embed passages, each text once, and only those whose vectors are not in the cache.

    Args:
        passages: N passages.
        embedder: makes the vectors that are missing.
        cache: where vectors are kept, by what the embedder is and what it read; None: nowhere.
        progress: told after every part.
        kept_every: texts of a part; what is embedded is in the cache before the next part begins.
    """
    texts = {passage.sha256: passage.embedded_text for passage in passages}
    vectors, embedded = embed_texts(texts, embedder, cache, progress, kept_every)
    vectors_ND = np.empty((len(passages), embedder.dimension), np.float32)
    for row, passage in enumerate(passages):
        vectors_ND[row] = vectors[passage.sha256]
    logger.info("embedded %d of %d texts, the others are known", embedded, len(texts))
    return EmbeddedPassages(vectors_ND, embedded)


def embed_texts(
    texts: Mapping[str, str],
    embedder: Embedder,
    cache: Cache | None,
    progress: Progress | None = None,
    kept_every: int = KEPT_EVERY,
) -> tuple[dict[str, Vectors], int]:
    """As `embed_passages`, of texts by their hashes.

    Returns:
        Hash to vector, and how many were embedded.
    """
    maker = maker_of("vectors", embedder.weights, embedder.compute)
    known = {} if cache is None else cache.get(maker, list(texts))
    vectors = {name: np.frombuffer(content, np.float32) for name, content in known.items()}
    missing = sorted(texts.keys() - vectors.keys(), key=lambda name: (-len(texts[name]), name))  # the longest first
    for first in range(0, len(missing), kept_every):
        part = missing[first : first + kept_every]
        vectors_MD = embedder.encode([texts[name] for name in part])
        vectors.update(zip(part, vectors_MD, strict=True))
        if cache is not None:
            cache.put(maker, {name: vectors[name].tobytes() for name in part})
        if progress is not None:
            progress(first + len(part), len(missing))
    return vectors, len(missing)


def _to_bytes(passages: Sequence[Passage]) -> bytes:
    return json.dumps([vars(passage) for passage in passages], ensure_ascii=False).encode()


def _from_bytes(content: bytes) -> list[Passage]:
    return [Passage(**fields) for fields in json.loads(content)]
