"""Questions -> the passages nearest in meaning.

Shape suffixes: Q queries, K hits, D dimension.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kb.embed import Embedder
from kb.errors import KnowledgeBaseError
from kb.index import KnowledgeIndex
from kb.passages import Passage

PASSAGES_PER_DOCUMENT = 4
"""How many passages are fetched at first for each document wanted."""


@dataclass(frozen=True)
class Hit:
    """A passage found, with its cosine to the query. Made by `Searcher`."""

    passage: Passage
    score: float


class Searcher:
    """Searches one index with the embedder that built it."""

    def __init__(self, index: KnowledgeIndex, embedder: Embedder) -> None:
        """Join an index and its embedder.

        Raises:
            KnowledgeBaseError: if another embedder built the index: their vectors have nothing to
                do with each other, and the hits would look plausible.
        """
        made_by = (index.manifest.embedder, index.manifest.dimension)
        if made_by != (embedder.name, embedder.dimension):
            raise KnowledgeBaseError(
                f"index {index.directory} was built with {made_by[0]!r} (dimension {made_by[1]}), "
                f"not {embedder.name!r} ({embedder.dimension}): load that embedder or rebuild"
            )
        self._index = index
        self._embedder = embedder

    def search(self, query: str, k: int) -> list[Hit]:
        """Return the `k` best passages for a query, best first; none for a blank query."""
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """Search for several queries at once; result i belongs to query i.

        A blank query finds nothing. Equal scores are ordered as the passages are in the index.

        Args:
            queries: Q questions or descriptions.
            k: passages per query, 1 or more; fewer come back only if the index holds fewer.

        Raises:
            KnowledgeBaseError: if `k` is below 1.
        """
        hits: list[list[Hit]] = [[] for _ in queries]
        asked = [place for place, query in enumerate(queries) if query.strip()]
        vectors_QD = self._embedder.encode([queries[place] for place in asked])
        scores_QK, rows_QK = self._index.search(vectors_QD, k)
        for place, scores_K, rows_K in zip(asked, scores_QK, rows_QK, strict=True):
            found = [(float(-score), int(row)) for score, row in zip(scores_K, rows_K, strict=True) if row >= 0]
            hits[place] = [Hit(self._index.passages[row], -score) for score, row in sorted(found)]
        return hits

    def search_documents(self, queries: Sequence[str], k: int) -> list[list[str]]:
        """Return the ids of the `k` best documents per query, best first.

        A document ranks by its best passage. More passages are fetched until `k` documents are
        found or the index is exhausted, so a long document cannot crowd out the others.
        """
        ranked: dict[int, list[str]] = {}
        open_places, depth = list(range(len(queries))), k * PASSAGES_PER_DOCUMENT
        n_passages = self._index.manifest.n_passages
        while open_places:
            for place, hits in zip(
                open_places,
                self.search_many([queries[place] for place in open_places], depth),
                strict=True,
            ):
                ranked[place] = rank_documents(hits)[:k]
            exhausted = depth >= n_passages
            open_places = [
                place for place in open_places if not exhausted and queries[place].strip() and len(ranked[place]) < k
            ]
            depth *= 2
        return [ranked[place] for place in range(len(queries))]


def rank_documents(hits: Sequence[Hit]) -> list[str]:
    """List the documents of some hits, each once, by its best passage.

    Args:
        hits: best first, as a search returns them.
    """
    return list(dict.fromkeys(hit.passage.doc_id for hit in hits))
