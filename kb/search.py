"""Questions -> the passages that answer them, by words and by meaning.

Shape suffixes: N passages, Q queries, K hits, C candidates, D dimension.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kb.config import FusionParams
from kb.embed import Embedder, Vectors, load_embedder
from kb.errors import KnowledgeBaseError
from kb.fusion import Scores, fuse
from kb.index import KnowledgeIndex
from kb.lexical import best_rows
from kb.nearest import Rows
from kb.passages import Origin, Passage

PASSAGES_PER_DOCUMENT = 4
"""How many passages are fetched at first for each document wanted."""

QUERY_BATCH = 32  # queries per forward pass of an embedder that `open_index` loads

Filters = Mapping[str, str | Collection[str]]
"""Field (source, licence, language) to the value or values that a passage may have."""


@dataclass(frozen=True)
class Hit:
    """A passage found. Made by `Searcher`.

    Attributes:
        passage: as it is in the index.
        score: higher is better; what it means depends on the fusion (`kb.fusion.fuse`).
    """

    passage: Passage
    score: float


def open_index(directory: Path) -> "Searcher":
    """Open an index folder with the embedder that built it, which is not loaded for an index of words alone.

    Raises:
        KnowledgeBaseError: if the folder is not a whole index, or the embedder cannot be found or is another one.
    """
    index = KnowledgeIndex.load(directory)
    return Searcher(index, embedder_of(index))


def embedder_of(index: KnowledgeIndex) -> Embedder | None:
    """Load the embedder that built an index; None for an index of words alone.

    Raises:
        KnowledgeBaseError: as `load_embedder`.
    """
    made_by = index.manifest
    return load_embedder(made_by.embedder, QUERY_BATCH, made_by.compute) if index.nearest is not None else None


class Searcher:
    """Searches one index with the embedder that built it."""

    def __init__(self, index: KnowledgeIndex, embedder: Embedder | None, fusion: FusionParams | None = None) -> None:
        """Join an index and its embedder.

        Args:
            index: loaded.
            embedder: that built it; not asked, and may be None, if the fusion is `lexical`.
            fusion: None: the one that the index was built for.

        Raises:
            KnowledgeBaseError: if another embedder built the index: their vectors have nothing to do with each other, and
                the hits would look plausible; or if the fusion needs vectors that the index does not have.
        """
        self.fusion = fusion or index.manifest.fusion
        self._index, self._embedder = index, embedder
        if self.fusion.method == "lexical":
            return
        if index.nearest is None:
            raise KnowledgeBaseError(
                f"index {index.directory} has no vectors for fusion {self.fusion.method}: search with method lexical, or build it with another"
            )
        made_by = (index.manifest.embedder, index.manifest.dimension)
        asked = (embedder.name, embedder.dimension) if embedder is not None else (None, 0)
        if made_by != asked:
            raise KnowledgeBaseError(
                f"index {index.directory} was built with {made_by[0]!r} (dimension {made_by[1]}), "
                f"not {asked[0]!r} ({asked[1]}): load that embedder or rebuild"
            )
        if embedder is not None and embedder.weights != index.manifest.weights:
            raise KnowledgeBaseError(
                f"index {index.directory} was built with other weights of {embedder.name!r} than those of today: rebuild it"
            )

    def search(self, query: str, k: int, filters: Filters | None = None) -> list[Hit]:
        """Return the `k` best passages for a query, best first; none for a blank query."""
        return self.search_many([query], k, filters)[0]

    def search_many(self, queries: Sequence[str], k: int, filters: Filters | None = None) -> list[list[Hit]]:
        """Search for several queries at once; result i belongs to query i.

        A blank query finds nothing. Equal scores are ordered as the passages are in the index.

        Args:
            queries: Q questions or descriptions.
            k: passages per query, 1 or more; fewer come back if fewer pass the filters or, by words alone, have any.
            filters: which passages may be found; None: all.

        Raises:
            KnowledgeBaseError: if `k` is below 1, or a filter is of no field.
        """
        return [
            [Hit(self._index.passages[row], score) for row, score in found]
            for found in self.search_rows(queries, k, filters)
        ]

    def search_rows(
        self, queries: Sequence[str], k: int, filters: Filters | None = None
    ) -> list[list[tuple[int, float]]]:
        """As `search_many`, with the rows of the passages in their place."""
        if k < 1:
            raise KnowledgeBaseError(f"search for k={k} passages: ask for 1 or more")
        queries = [query.encode(errors="replace").decode() for query in queries]  # half a surrogate pair has no tokens
        allowed_M = self._index.allowed(filters) if filters else None
        asked = [place for place, query in enumerate(queries) if query.strip()]
        found: list[list[tuple[int, float]]] = [[] for _ in queries]
        depth = max(k, self.fusion.candidates)
        vectors_QD, nearest_QC = self._nearest([queries[place] for place in asked], depth, allowed_M)
        for number, place in enumerate(asked):
            rows_C, scores_C = self._candidates(
                queries[place], vectors_QD[number], nearest_QC[number], depth, allowed_M
            )
            best_K = np.lexsort((rows_C, -scores_C))[:k]
            found[place] = [(int(rows_C[at]), float(scores_C[at])) for at in best_K]
        return found

    def _nearest(self, queries: Sequence[str], depth: int, allowed_M: Rows | None) -> tuple[Vectors, Rows]:
        nearest = self._index.nearest
        if self.fusion.method == "lexical" or self._embedder is None or nearest is None:
            return np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
        vectors_QD = self._embedder.encode(list(queries))
        return vectors_QD, nearest.search(vectors_QD, depth, allowed_M)[1]

    def _candidates(
        self, query: str, vector_D: Vectors, nearest_C: Rows, depth: int, allowed_M: Rows | None
    ) -> tuple[Rows, Scores]:
        """The best rows by words and by vectors, ascending, and their scores, each computed by both."""
        rows_C, lexical_C = nearest_C[nearest_C >= 0], np.zeros(0, np.float32)
        if self.fusion.method != "dense":
            lexical_N = self._index.words.scores(query)
            by_words_C = _best_allowed(lexical_N, depth, allowed_M)
            rows_C = np.union1d(rows_C, by_words_C)
            lexical_C = lexical_N[rows_C]
        nearest = self._index.nearest
        if nearest is None or self.fusion.method == "lexical":
            return rows_C, fuse(np.zeros(0, np.float32), lexical_C, self.fusion)
        return rows_C, fuse(nearest.vectors(rows_C) @ vector_D, lexical_C, self.fusion)

    def documents(self) -> set[str]:
        """Ids of all documents that can be found."""
        return self._index.documents()

    def search_documents(self, queries: Sequence[str], k: int) -> list[list[str]]:
        """Return the ids of the `k` best documents per query, best first.

        A document ranks by its best passage, or by one that says the same as its own. More passages are fetched until `k` documents are
        found or the index is exhausted, so a long document cannot crowd out the others.
        """
        doc_ids, also = (self._index.passages.table.column(name).to_pylist() for name in ("doc_id", "also"))
        ranked: dict[int, list[str]] = {}
        open_places, depth = list(range(len(queries))), k * PASSAGES_PER_DOCUMENT
        while open_places:
            found = self.search_rows([queries[place] for place in open_places], depth)
            for place, rows in zip(open_places, found, strict=True):
                ranked[place] = list(
                    dict.fromkeys(doc for row, _ in rows for doc in (doc_ids[row], *_named(also[row])))
                )[:k]
            short = {place for place, rows in zip(open_places, found, strict=True) if len(rows) < depth}
            open_places = [place for place in open_places if place not in short and len(ranked[place]) < k]
            depth *= 2
        return [ranked[place] for place in range(len(queries))]


def _best_allowed(scores_N: Scores, depth: int, allowed_M: Rows | None) -> Rows:
    if allowed_M is None:
        return best_rows(scores_N, depth)
    return allowed_M[best_rows(scores_N[allowed_M], depth)]


def _named(also: str) -> list[str]:
    """Ids of the documents that say the same as a passage."""
    return [Origin(*one).doc_id for one in json.loads(also)] if also else []
