"""Vectors -> the nearest ones: exactly, by a graph of neighbours, or compressed in cells. The only door to faiss.

Similarity is the inner product of unit vectors, so the cosine. Shape suffixes: N passages, Q queries, K hits,
M some of the passages, D dimension.
"""

from math import isqrt
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from kb.config import VectorIndexParams
from kb.embed import Vectors
from kb.errors import KnowledgeBaseError
from kb.manifest import IndexKind

HNSW_NEIGHBOURS = 32
HNSW_BUILD_WIDTH = 200  # candidates kept while linking (efConstruction)
HNSW_SEARCH_WIDTH = 128  # candidates kept while searching (efSearch)
IVF_CELLS_PER_ROOT = 4  # cells = this * sqrt(passages), the usual choice of the faiss guidelines
IVF_TRAINING_PER_CELL = 64  # vectors from which a cell's centre is learned
PQ_DIMENSIONS_PER_BYTE = 8  # compression: 8 float32 become 1 byte

RECALL_QUERIES = 300
RECALL_DEPTH = 10
RECALL_WANTED = 0.95

INDEX_FILE = "index.faiss"
VECTORS_FILE = "vectors.npy"
_BLOCK = 16_384  # rows compared at once where all are

Rows = NDArray[np.int64]


def choose_kind(n_passages: int, params: VectorIndexParams) -> IndexKind:
    """As `params.kind` says, which with `auto` is a matter of size."""
    if params.kind != "auto":
        return IndexKind(params.kind)
    if n_passages >= params.ivf_pq_from:
        return IndexKind.IVF_PQ
    return IndexKind.HNSW if n_passages >= params.hnsw_from else IndexKind.FLAT


class VectorIndex:
    """Vectors that can be searched, by row. Made by `build` or `load`."""

    def __init__(self, index: faiss.Index, kind: IndexKind, rerank: int, vectors_ND: Vectors | None) -> None:
        """Join a faiss index and, where it keeps them only in compressed form, its vectors."""
        self.kind = kind
        self._index, self._rerank, self._vectors_ND = index, rerank, vectors_ND

    @classmethod
    def build(cls, vectors_ND: Vectors, params: VectorIndexParams) -> "VectorIndex":
        """Train and fill an index. From faiss 1.15.1 on its bytes do not depend on the threads.

        Args:
            vectors_ND: float32, shape (N, D), unit length.
            params: which kind, and how wide it searches.

        Raises:
            KnowledgeBaseError: if the kind cannot hold vectors of this dimension, or so few.
        """
        kind = choose_kind(len(vectors_ND), params)
        index = _empty_index(len(vectors_ND), vectors_ND.shape[1], kind, params)
        if not index.is_trained:
            index.train(vectors_ND)
        index.add(vectors_ND)
        return cls(index, kind, params.rerank, vectors_ND if kind is IndexKind.IVF_PQ else None)

    def save(self, directory: Path) -> None:
        """Write the index, and the vectors beside it where it does not keep them."""
        faiss.write_index(self._index, str(directory / INDEX_FILE))
        if self._vectors_ND is not None:
            np.save(directory / VECTORS_FILE, self._vectors_ND)

    @classmethod
    def load(cls, directory: Path, kind: IndexKind, params: VectorIndexParams) -> "VectorIndex":
        """Open what `save` wrote; vectors beside the index stay on disk until they are compared."""
        index = faiss.read_index(str(directory / INDEX_FILE))
        if kind is IndexKind.IVF_PQ:
            faiss.extract_index_ivf(index).nprobe = params.probes
        beside = np.load(directory / VECTORS_FILE, mmap_mode="r") if kind is IndexKind.IVF_PQ else None
        return cls(index, kind, params.rerank, beside)

    def __len__(self) -> int:
        """Return N."""
        return int(self._index.ntotal)

    @property
    def dimension(self) -> int:
        """D."""
        return int(self._index.d)

    def vectors(self, rows_M: Rows | None = None) -> Vectors:
        """Return the vectors of some rows, or of all, as they were given to `build`: shape (M, D) or (N, D)."""
        if self._vectors_ND is not None:
            return np.asarray(self._vectors_ND if rows_M is None else self._vectors_ND[rows_M], np.float32)
        if rows_M is None:
            return np.asarray(self._index.reconstruct_n(0, len(self)), np.float32)
        return np.asarray(self._index.reconstruct_batch(rows_M), np.float32)

    def search(self, vectors_QD: Vectors, k: int, allowed_M: Rows | None = None) -> tuple[Vectors, Rows]:
        """Find the nearest rows.

        Args:
            vectors_QD: float32, shape (Q, D), unit length.
            k: hits per query, 1 or more.
            allowed_M: rows that may be found, ascending, of which all are compared; None: all rows may be.

        Returns:
            Cosines, best first, and rows, both (Q, K) with K the smaller of `k` and how many are allowed; an
            approximate index may find fewer of all rows, and the places left have row -1.
        """
        k = min(k, len(self) if allowed_M is None else len(allowed_M))
        if k == 0 or not len(vectors_QD):
            return np.zeros((len(vectors_QD), k), np.float32), np.zeros((len(vectors_QD), k), np.int64)
        if allowed_M is not None:  # a graph or cells would be left before enough of them are met
            return self._compared(vectors_QD, k, allowed_M)
        fetched = max(k, self._rerank) if self._vectors_ND is not None else k
        found = self._index.search(np.ascontiguousarray(vectors_QD), fetched)
        scores_QK, rows_QK = np.asarray(found[0], np.float32), np.asarray(found[1], np.int64)
        if self._vectors_ND is not None:
            scores_QK, rows_QK = self._ranked_again(vectors_QD, rows_QK)
        return scores_QK[:, :k], rows_QK[:, :k]

    def _ranked_again(self, vectors_QD: Vectors, rows_QK: Rows) -> tuple[Vectors, Rows]:
        """Order the rows that compressed vectors found by their whole ones."""
        scores_QK = np.full(rows_QK.shape, -np.inf, np.float32)
        for vector_D, rows_K, scores_K in zip(vectors_QD, rows_QK, scores_QK, strict=True):
            found = rows_K >= 0
            scores_K[found] = self.vectors(rows_K[found]) @ vector_D
        order_QK = np.argsort(-scores_QK, axis=1, kind="stable")
        return np.take_along_axis(scores_QK, order_QK, 1), np.take_along_axis(rows_QK, order_QK, 1)

    def _compared(self, vectors_QD: Vectors, k: int, among_M: Rows) -> tuple[Vectors, Rows]:
        """Cosines and rows of the `k` nearest of some rows, all compared, a block at a time."""
        best_QK = np.full((len(vectors_QD), 0), -np.inf, np.float32)
        rows_QK = np.zeros((len(vectors_QD), 0), np.int64)
        for first in range(0, len(among_M), _BLOCK):
            block_M = among_M[first : first + _BLOCK]
            scores_QK, places_QK = _nearest(vectors_QD, self.vectors(block_M), k)
            best_QK = np.concatenate([best_QK, scores_QK], axis=1)
            rows_QK = np.concatenate([rows_QK, block_M[places_QK]], axis=1)
            order_QK = np.argsort(-best_QK, axis=1, kind="stable")[:, :k]
            best_QK = np.take_along_axis(best_QK, order_QK, 1)
            rows_QK = np.take_along_axis(rows_QK, order_QK, 1)
        return best_QK, rows_QK

    def recall(self, queries_QD: Vectors | None) -> float:
        """Share of the 10 truly nearest that a search finds, over up to 300 queries.

        Args:
            queries_QD: vectors of real queries; None: 300 passages ask for their neighbours, and themselves do not count.
        """
        if self.kind is IndexKind.FLAT:
            return 1.0
        asked_Q = np.linspace(0, len(self) - 1, min(RECALL_QUERIES, len(self))).astype(np.int64)
        vectors_QD = self.vectors(asked_Q) if queries_QD is None else queries_QD[:RECALL_QUERIES]
        more = int(queries_QD is None)
        depth = min(RECALL_DEPTH + more, len(self))
        _, exact_QK = self._compared(vectors_QD, depth, np.arange(len(self), dtype=np.int64))
        _, found_QK = self.search(vectors_QD, depth)
        shares = []
        for number, (exact_K, found_K) in enumerate(zip(exact_QK, found_QK, strict=True)):
            wanted = set(exact_K.tolist()) - ({int(asked_Q[number])} if more else set())
            shares.append(len(wanted & set(found_K.tolist())) / max(1, len(wanted)))
        return float(np.mean(shares))


def _nearest(vectors_QD: Vectors, among_MD: Vectors, k: int) -> tuple[Vectors, Rows]:
    """Cosines and rows of the k nearest, all compared; equal ones in the order of the rows."""
    scores_QM = vectors_QD @ among_MD.T
    order_QK = np.argsort(-scores_QM, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores_QM, order_QK, 1), order_QK.astype(np.int64)


def _empty_index(n_passages: int, dimension: int, kind: IndexKind, params: VectorIndexParams) -> faiss.Index:
    match kind:
        case IndexKind.FLAT:
            return faiss.IndexFlatIP(dimension)
        case IndexKind.HNSW:
            graph = faiss.IndexHNSWFlat(dimension, HNSW_NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
            graph.hnsw.efConstruction = HNSW_BUILD_WIDTH
            graph.hnsw.efSearch = HNSW_SEARCH_WIDTH
            return graph
        case IndexKind.IVF_PQ:
            return _empty_cells(n_passages, dimension, params)


def _empty_cells(n_passages: int, dimension: int, params: VectorIndexParams) -> faiss.Index:
    if dimension % PQ_DIMENSIONS_PER_BYTE:
        raise KnowledgeBaseError(
            f"an IVF-PQ index needs a dimension divisible by {PQ_DIMENSIONS_PER_BYTE}, not {dimension}: "
            "use another embedder, or index.kind hnsw"
        )
    if n_passages < (least := 2**8):  # as many as a byte of the compression has values
        raise KnowledgeBaseError(
            f"an IVF-PQ index needs {least} passages or more, not {n_passages}: use index.kind flat"
        )
    recipe = f"IVF{IVF_CELLS_PER_ROOT * isqrt(n_passages)},PQ{dimension // PQ_DIMENSIONS_PER_BYTE}"
    cells = faiss.index_factory(dimension, recipe, faiss.METRIC_INNER_PRODUCT)
    ivf = faiss.extract_index_ivf(cells)
    ivf.nprobe = params.probes
    ivf.cp.max_points_per_centroid = IVF_TRAINING_PER_CELL
    return cells
