"""Embed only what is new: vectors of unchanged passages come from the previous index.

A vector is reused if what was embedded (title, section, text) has the same hash and the same
embedder made it. Shape suffixes: N passages, D dimension.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kb.embed import Embedder, Vectors
from kb.errors import KnowledgeBaseError
from kb.index import KnowledgeIndex
from kb.passages import Passage

logger = logging.getLogger(__name__)

SAME_VECTOR = 0.999  # cosine; rounding differs between devices by far less, other weights by more
_PROGRESS_EVERY = 2048  # passages between two log lines


@dataclass(frozen=True)
class EmbeddedPassages:
    """Made by `embed_passages`, read by the caller of `kb.index.build_index`.

    Attributes:
        vectors: float32, shape (N, D), row i for passage i.
        embedded: passages the embedder had to read.
        reused: passages whose vector was there already; both counts add up to N.
    """

    vectors: Vectors
    embedded: int
    reused: int


def embed_passages(passages: Sequence[Passage], embedder: Embedder, reuse: Path | None) -> EmbeddedPassages:
    """Embed passages, taking over the vectors of a previous index where nothing changed.

    An absent, corrupt or foreign previous index costs time, not the build: everything is embedded
    anew, and the log says why. One reused vector is computed again as a check, so that new
    weights under an old name are noticed.

    Args:
        passages: N passages.
        embedder: makes the vectors that are missing.
        reuse: folder of the previous index, or None; may be the one about to be replaced.
    """
    known = _known_vectors(embedder, reuse)
    rows = [row for row, passage in enumerate(passages) if passage.sha256 in known]
    if rows and not _still_same(passages[rows[0]], known, embedder):
        logger.warning("embedder %s no longer makes the vectors in %s", embedder.name, reuse)
        known, rows = {}, []
    vectors_ND = np.empty((len(passages), embedder.dimension), dtype=np.float32)
    for row in rows:
        vectors_ND[row] = known[passages[row].sha256]
    missing = [row for row, passage in enumerate(passages) if passage.sha256 not in known]
    for first in range(0, len(missing), _PROGRESS_EVERY):
        part = missing[first : first + _PROGRESS_EVERY]
        vectors_ND[part] = embedder.encode([passages[row].embedded_text for row in part])
        logger.info("embedded %d of %d passages", first + len(part), len(missing))
    return EmbeddedPassages(vectors_ND, embedded=len(missing), reused=len(rows))


def _known_vectors(embedder: Embedder, reuse: Path | None) -> dict[str, Vectors]:
    if reuse is None or not reuse.is_dir():
        return {}
    try:
        previous = KnowledgeIndex.load(reuse)
    except KnowledgeBaseError as error:
        logger.warning("not reusing the previous index: %s", error)
        return {}
    made_by = (previous.manifest.embedder, previous.manifest.dimension)
    if made_by != (embedder.name, embedder.dimension):
        logger.info("not reusing vectors of %s in %s: another embedder", made_by[0], reuse)
        return {}
    vectors_ND = previous.vectors()
    return {p.sha256: vectors_ND[row] for row, p in enumerate(previous.passages)}


def _still_same(passage: Passage, known: dict[str, Vectors], embedder: Embedder) -> bool:
    fresh_D = embedder.encode([passage.embedded_text])[0]
    return float(fresh_D @ known[passage.sha256]) >= SAME_VECTOR
