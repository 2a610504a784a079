"""Vectors and passages <-> the index folder. The only door to faiss.

A folder holds `index.faiss`, `passages.parquet` (row i of one is row i of the other),
`manifest.json`, and, where the index keeps vectors only in compressed form, `vectors.npy`.
It appears whole or not at all. Similarity is the inner product of unit vectors, so the cosine.
Shape suffixes: N passages, Q queries, K hits, D dimension.
"""

import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from math import isqrt
from pathlib import Path

import faiss
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kb.embed import Vectors
from kb.errors import KnowledgeBaseError
from kb.files import sha256_file
from kb.manifest import (
    MANIFEST_FILE,
    REBUILD,
    SCHEMA_VERSION,
    IndexKind,
    Manifest,
    read_manifest,
    write_manifest,
)
from kb.passages import Passage

logger = logging.getLogger(__name__)

HNSW_FROM = 50_000  # passages from which on a neighbour graph is worth its build time
IVF_PQ_ABOVE = 1_000_000  # passages above which full vectors no longer fit comfortably in memory
HNSW_NEIGHBOURS = 32
HNSW_BUILD_WIDTH = 200  # candidates kept while linking (efConstruction)
HNSW_SEARCH_WIDTH = 128  # candidates kept while searching (efSearch); recall of the top 100
IVF_CELLS_PER_ROOT = 4  # cells = this * sqrt(passages), the usual choice of the faiss guidelines
IVF_PROBES = 64  # cells looked into per query
PQ_DIMENSIONS_PER_BYTE = 8  # compression: 8 float32 become 1 byte
UNIT_TOLERANCE = 1e-3

INDEX_FILE = "index.faiss"
PASSAGES_FILE = "passages.parquet"
VECTORS_FILE = "vectors.npy"
_COLUMNS = [field.name for field in fields(Passage)]


def choose_kind(n_passages: int) -> IndexKind:
    """Flat below 50,000 passages, HNSW up to a million, IVF-PQ above."""
    if n_passages < HNSW_FROM:
        return IndexKind.FLAT
    return IndexKind.HNSW if n_passages <= IVF_PQ_ABOVE else IndexKind.IVF_PQ


def build_index(
    passages: Sequence[Passage],
    vectors_ND: Vectors,
    directory: Path,
    embedder_name: str,
    *,
    sources: Mapping[str, str],
) -> Manifest:
    """Build the index folder, replacing an older index there only when the new one is complete.

    Args:
        passages: N passages with distinct ids.
        vectors_ND: float32, shape (N, D), unit length; row i belongs to passage i.
        directory: where the folder goes; must be absent, empty, or an index.
        embedder_name: the embedder that made the vectors.
        sources: source file to SHA-256, for the manifest (see `kb.documents.hash_sources`).

    Returns:
        The manifest written.

    Raises:
        KnowledgeBaseError: if passages and vectors do not fit together, or `directory` holds
            something that is not an index, which is never deleted.
    """
    _check_input(passages, vectors_ND)
    kind = choose_kind(len(passages))
    with _replacing(directory) as partial:
        index = _make_index(vectors_ND, kind)
        faiss.write_index(index, str(partial / INDEX_FILE))
        frame = pd.DataFrame([asdict(passage) for passage in passages], columns=_COLUMNS)
        frame.to_parquet(partial / PASSAGES_FILE, engine="pyarrow", index=False)
        if kind is IndexKind.IVF_PQ:
            np.save(partial / VECTORS_FILE, vectors_ND)
        manifest = Manifest(
            schema_version=SCHEMA_VERSION,
            embedder=embedder_name,
            dimension=vectors_ND.shape[1],
            index_kind=kind,
            n_documents=len({passage.doc_id for passage in passages}),
            n_passages=len(passages),
            files={path.name: sha256_file(path) for path in sorted(partial.iterdir())},
            sources=dict(sources),
            licences=_licences(passages),
        )
        write_manifest(manifest, partial)
    logger.info("built %s index of %d passages in %s", kind, len(passages), directory)
    return manifest


@dataclass(frozen=True)
class KnowledgeIndex:
    """A loaded index folder. Made by `load`, read by `kb.search` and `kb.incremental`."""

    directory: Path
    manifest: Manifest
    passages: tuple[Passage, ...]
    _index: faiss.Index

    @classmethod
    def load(cls, directory: Path) -> "KnowledgeIndex":
        """Load an index folder after verifying the hash of every file.

        Raises:
            KnowledgeBaseError: if anything is missing, corrupt or inconsistent.
        """
        manifest = read_manifest(directory)
        for name in (INDEX_FILE, PASSAGES_FILE):
            if name not in manifest.files:
                raise KnowledgeBaseError(f"{directory / MANIFEST_FILE} lists no {name}: {REBUILD}")
        frame = pd.read_parquet(directory / PASSAGES_FILE, engine="pyarrow", columns=_COLUMNS)
        rows = frame.itertuples(index=False, name=None)
        passages = tuple(Passage(**dict(zip(_COLUMNS, row, strict=True))) for row in rows)
        index = faiss.read_index(str(directory / INDEX_FILE))
        sizes = {"manifest": manifest.n_passages, "parquet": len(passages), "faiss": index.ntotal}
        if len(set(sizes.values())) > 1 or index.d != manifest.dimension:
            raise KnowledgeBaseError(
                f"{directory} is inconsistent (passages: {sizes}, dimension {index.d} and "
                f"{manifest.dimension}): {REBUILD}"
            )
        return cls(directory, manifest, passages, index)

    def search(self, vectors_QD: Vectors, k: int) -> tuple[Vectors, NDArray[np.int64]]:
        """Find the passages nearest to each query vector.

        Args:
            vectors_QD: float32, shape (Q, D), unit length.
            k: hits per query, 1 or more.

        Returns:
            Scores (cosine, best first) and passage rows, both of shape (Q, K) with K the smaller
            of `k` and N. An approximate index may find fewer: the places left have row -1.

        Raises:
            KnowledgeBaseError: if `k` or the shape of the vectors is wrong.
        """
        if k < 1:
            raise KnowledgeBaseError(f"search for k={k} passages: ask for 1 or more")
        if vectors_QD.ndim != 2 or vectors_QD.shape[1] != self.manifest.dimension:
            raise KnowledgeBaseError(
                f"query vectors of shape {vectors_QD.shape} for an index of dimension "
                f"{self.manifest.dimension}: embed with {self.manifest.embedder!r}"
            )
        queries_QD = np.ascontiguousarray(vectors_QD, dtype=np.float32)
        scores_QK, rows_QK = self._index.search(queries_QD, min(k, len(self.passages)))
        return np.asarray(scores_QK, np.float32), np.asarray(rows_QK, np.int64)

    def vectors(self) -> Vectors:
        """Return the vectors as they were given to `build_index`: float32, shape (N, D)."""
        if self.manifest.index_kind is IndexKind.IVF_PQ:
            return np.asarray(np.load(self.directory / VECTORS_FILE), np.float32)
        return np.asarray(self._index.reconstruct_n(0, len(self.passages)), np.float32)


def _check_input(passages: Sequence[Passage], vectors_ND: Vectors) -> None:
    if not passages:
        raise KnowledgeBaseError("no passages to index: check that the sources hold text")
    if vectors_ND.ndim != 2 or vectors_ND.dtype != np.float32 or len(vectors_ND) != len(passages):
        raise KnowledgeBaseError(
            f"{len(passages)} passages with vectors of shape {vectors_ND.shape} and type "
            f"{vectors_ND.dtype}: give one float32 vector per passage"
        )
    worst = float(np.abs(np.linalg.norm(vectors_ND, axis=1) - 1).max())
    if not worst <= UNIT_TOLERANCE:  # catches NaN too
        raise KnowledgeBaseError(f"vectors are not of unit length (off by {worst:.3g}): normalise them before indexing")
    repeated = [name for name, n in Counter(p.passage_id for p in passages).items() if n > 1]
    if repeated:
        raise KnowledgeBaseError(f"passage id {repeated[0]!r} occurs twice: make ids distinct")


def _make_index(vectors_ND: Vectors, kind: IndexKind) -> faiss.Index:
    """Train and fill an index. From faiss 1.15.1 on the bytes do not depend on the threads."""
    n_passages, dimension = vectors_ND.shape
    index = _empty_index(n_passages, dimension, kind)
    if not index.is_trained:
        index.train(vectors_ND)
    index.add(vectors_ND)
    return index


def _empty_index(n_passages: int, dimension: int, kind: IndexKind) -> faiss.Index:
    match kind:
        case IndexKind.FLAT:
            return faiss.IndexFlatIP(dimension)
        case IndexKind.HNSW:
            graph = faiss.IndexHNSWFlat(dimension, HNSW_NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
            graph.hnsw.efConstruction = HNSW_BUILD_WIDTH
            graph.hnsw.efSearch = HNSW_SEARCH_WIDTH
            return graph
        case IndexKind.IVF_PQ:
            if dimension % PQ_DIMENSIONS_PER_BYTE:
                raise KnowledgeBaseError(
                    f"an IVF-PQ index needs a dimension divisible by {PQ_DIMENSIONS_PER_BYTE}, "
                    f"not {dimension}: use another embedder"
                )
            recipe = f"IVF{IVF_CELLS_PER_ROOT * isqrt(n_passages)},PQ{dimension // PQ_DIMENSIONS_PER_BYTE}"
            cells = faiss.index_factory(dimension, recipe, faiss.METRIC_INNER_PRODUCT)
            faiss.extract_index_ivf(cells).nprobe = IVF_PROBES
            return cells


def _licences(passages: Sequence[Passage]) -> dict[str, int]:
    by_document = {passage.doc_id: passage.licence for passage in passages}
    return dict(sorted(Counter(by_document.values()).items()))


@contextmanager
def _replacing(directory: Path) -> Iterator[Path]:
    """Yield a sibling folder that takes the place of `directory` if the block succeeds."""
    if directory.exists() and not directory.is_dir():
        raise KnowledgeBaseError(f"{directory} is a file: give the index a folder of its own")
    if directory.is_dir() and any(directory.iterdir()) and not (directory / MANIFEST_FILE).exists():
        raise KnowledgeBaseError(f"{directory} holds something that is not an index: empty it or give another folder")
    directory.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        partial = work / "new"
        partial.mkdir()
        yield partial
        _swap(partial, directory, work / "old")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _swap(new: Path, directory: Path, old: Path) -> None:
    if not directory.exists():
        new.replace(directory)
        return
    directory.replace(old)
    try:
        new.replace(directory)
    except OSError:
        old.replace(directory)
        raise
