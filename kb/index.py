"""Passages and their vectors <-> the index folder.

A folder holds `passages.arrow`, the words in `bm25/`, the vectors in `index.faiss` (row i is passage i in all three),
`rejected.jsonl` (what could not be used), `manifest.json` with the hash of every file, and where the vectors are only kept
in compressed form `vectors.npy`. It appears whole or not at all. Shape suffixes: N passages, Q queries, D dimension.
"""

import glob
import json
import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from filelock import FileLock, Timeout

from kb.config import KnowledgeBaseParams
from kb.embed import Embedder, Vectors
from kb.errors import KnowledgeBaseError
from kb.files import sha256_file
from kb.lexical import LexicalIndex
from kb.manifest import (
    MANIFEST_FILE,
    REBUILD,
    SCHEMA_VERSION,
    IndexKind,
    Manifest,
    listed_files,
    read_manifest,
    write_manifest,
)
from kb.nearest import INDEX_FILE, RECALL_WANTED, Rows, VectorIndex
from kb.passages import Origin, Passage
from kb.records import Rejected, write_rejected

logger = logging.getLogger(__name__)

UNIT_TOLERANCE = 1e-3
PASSAGES_FILE = "passages.arrow"
REJECTED_FILE = "rejected.jsonl"
PARTIAL = ".partial"  # end of the name of a folder that an index is made in
LOCK = "lock"  # in it, held as long as it is made
FILTERS = ("source", "licence", "language")


def build_index(  # noqa: PLR0913  what stands in an index folder
    passages: Sequence[Passage],
    vectors_ND: Vectors | None,
    directory: Path,
    embedder: Embedder,
    params: KnowledgeBaseParams,
    *,
    sources: Mapping[str, str],
    rejected: Sequence[Rejected] = (),
    queries_QD: Vectors | None = None,
) -> Manifest:
    """Build the index folder, replacing an older index there only when the new one is complete.

    Args:
        passages: N passages with distinct ids.
        vectors_ND: float32, shape (N, D), unit length, row i for passage i; None: found by words alone.
        directory: where the folder goes; must be absent, empty, or an index and nothing else.
        embedder: that made the vectors.
        params: how words and vectors are indexed and searched.
        sources: source file to SHA-256, for the manifest.
        rejected: what could not be used; it is told in `rejected.jsonl`.
        queries_QD: vectors of real queries, on which recall is measured; None: on passages.

    Returns:
        The manifest written.

    Raises:
        KnowledgeBaseError: if passages and vectors do not fit together, or `directory` holds something that is not an
            index, which is never deleted.
    """
    _check_input(passages, vectors_ND)
    with _replacing(directory) as partial:
        LexicalIndex.build(passages, params.bm25).save(partial)
        nearest = VectorIndex.build(vectors_ND, params.index) if vectors_ND is not None else None
        if nearest is not None:
            nearest.save(partial)
        _write_passages(passages, partial / PASSAGES_FILE)
        write_rejected(rejected, partial / REJECTED_FILE)
        written = sorted(path for path in partial.rglob("*") if path.is_file())
        manifest = Manifest(
            schema_version=SCHEMA_VERSION,
            embedder=embedder.name,
            weights=embedder.weights,
            compute=embedder.compute,
            fusion=params.fusion,
            bm25=params.bm25,
            index=params.index,
            index_kind=None if nearest is None else nearest.kind,
            dimension=0 if nearest is None else nearest.dimension,
            recall_at_10=None if nearest is None else nearest.recall(queries_QD),
            n_documents=len({passage.doc_id for passage in passages}),
            n_passages=len(passages),
            files={path.relative_to(partial).as_posix(): sha256_file(path) for path in written},
            sources=dict(sources),
            licences=_licences(passages),
        )
        write_manifest(manifest, partial)
    _tell(manifest, directory)
    return manifest


def _tell(manifest: Manifest, directory: Path) -> None:
    """What was built, and whether too little is found in it."""
    recall = manifest.recall_at_10
    if recall is not None and recall < RECALL_WANTED:
        wider = "raise index.probes and index.rerank, or " if manifest.index_kind is IndexKind.IVF_PQ else ""
        logger.warning(
            "the %s index in %s finds %.3f of the 10 nearest passages, less than %.2f: %schoose another index.kind",
            *(manifest.index_kind, directory, recall, RECALL_WANTED, wider),
        )
    kind = manifest.index_kind or "word"
    logger.info("built %s index of %d passages in %s", kind, manifest.n_passages, directory)


class PassageTable(Sequence[Passage]):
    """Passages by row, memory-mapped: one is read when it is asked for."""

    def __init__(self, table: pa.Table) -> None:
        """Wrap a table that has the fields of a `Passage` as columns."""
        self.table = table

    def __len__(self) -> int:
        """Return N."""
        return int(self.table.num_rows)

    def __getitem__(self, row: Any) -> Any:
        """Return the passage of a row; a slice gives a tuple of them."""
        if isinstance(row, slice):
            return tuple(self[number] for number in range(*row.indices(len(self))))
        place = row if row >= 0 else row + len(self)
        if not 0 <= place < len(self):
            raise IndexError(row)
        return Passage(**self.table.slice(place, 1).to_pylist()[0])


@dataclass(frozen=True)
class KnowledgeIndex:
    """A loaded index folder. Made by `load`, read by `kb.search`."""

    directory: Path
    manifest: Manifest
    passages: PassageTable
    words: LexicalIndex
    nearest: VectorIndex | None

    @classmethod
    def load(cls, directory: Path) -> "KnowledgeIndex":
        """Load an index folder after verifying the hash of every file.

        Raises:
            KnowledgeBaseError: if anything is missing, corrupt or inconsistent.
        """
        manifest = read_manifest(directory)
        kind = manifest.index_kind
        for name in (PASSAGES_FILE, *([INDEX_FILE] if kind is not None else [])):
            if name not in manifest.files:
                raise KnowledgeBaseError(f"{directory / MANIFEST_FILE} lists no {name}: {REBUILD}")
        with pa.memory_map(str(directory / PASSAGES_FILE)) as file:
            passages = PassageTable(pa.ipc.open_file(file).read_all())
        words = LexicalIndex.load(directory, manifest.bm25)
        nearest = None if kind is None else VectorIndex.load(directory, kind, manifest.index)
        sizes = {"manifest": manifest.n_passages, "passages": len(passages), "words": len(words)}
        if nearest is not None:
            sizes["vectors"] = len(nearest)
        dimension = 0 if nearest is None else nearest.dimension
        if len(set(sizes.values())) > 1 or dimension != manifest.dimension:
            raise KnowledgeBaseError(
                f"{directory} is inconsistent (passages: {sizes}, dimension {dimension} and {manifest.dimension}): {REBUILD}"
            )
        return cls(directory, manifest, passages, words, nearest)

    def documents(self) -> set[str]:
        """Ids of all documents, of those too that only say what another one says."""
        ids, also = (self.passages.table.column(name).unique().to_pylist() for name in ("doc_id", "also"))
        return {*ids, *(Origin(*one).doc_id for told in also if told for one in json.loads(told))}

    def allowed(self, filters: Mapping[str, str | Collection[str]]) -> Rows:
        """Rows of the passages whose source, licence and language are among those named, ascending.

        Raises:
            KnowledgeBaseError: if a filter is of another field.
        """
        allowed_N = np.ones(len(self.passages), bool)
        for name, wanted in filters.items():
            if name not in FILTERS:
                raise KnowledgeBaseError(f"a filter on {name!r}: passages are filtered by {', '.join(FILTERS)}")
            values = pa.array([wanted] if isinstance(wanted, str) else sorted(wanted), pa.string())
            found = pc.is_in(self.passages.table.column(name), value_set=values)
            allowed_N &= found.combine_chunks().to_numpy(zero_copy_only=False)
        return np.flatnonzero(allowed_N).astype(np.int64)


def _write_passages(passages: Sequence[Passage], path: Path) -> None:
    table = pa.Table.from_pylist([vars(passage) for passage in passages])
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _check_input(passages: Sequence[Passage], vectors_ND: Vectors | None) -> None:
    if not passages:
        raise KnowledgeBaseError("no passages to index: check that the sources hold text")
    repeated = [name for name, n in Counter(p.passage_id for p in passages).items() if n > 1]
    if repeated:
        raise KnowledgeBaseError(f"passage id {repeated[0]!r} occurs twice: make ids distinct")
    if vectors_ND is None:
        return
    if vectors_ND.ndim != 2 or vectors_ND.dtype != np.float32 or len(vectors_ND) != len(passages):
        raise KnowledgeBaseError(
            f"{len(passages)} passages with vectors of shape {vectors_ND.shape} and type "
            f"{vectors_ND.dtype}: give one float32 vector per passage"
        )
    worst = float(np.abs(np.linalg.norm(vectors_ND, axis=1) - 1).max())
    if not worst <= UNIT_TOLERANCE:  # catches NaN too
        raise KnowledgeBaseError(f"vectors are not of unit length (off by {worst:.3g}): normalise them before indexing")


def _licences(passages: Sequence[Passage]) -> dict[str, int]:
    by_document = {passage.doc_id: passage.licence for passage in passages}
    return dict(sorted(Counter(by_document.values()).items()))


def check_replaceable(directory: Path) -> None:
    """Refuse to put an index where something else is; hidden files do not count.

    Raises:
        KnowledgeBaseError: if it is a file, or a folder that holds more than an index.
    """
    if directory.exists() and not directory.is_dir():
        raise KnowledgeBaseError(f"{directory} is a file: give the index a folder of its own")
    own = listed_files(directory)
    for path in directory.rglob("*"):
        inside = path.relative_to(directory)
        hidden = any(part.startswith(".") for part in inside.parts)
        if not hidden and not path.is_dir() and inside.as_posix() not in own:
            raise KnowledgeBaseError(
                f"{directory} holds {inside}, which is no part of an index: move it away or give another folder"
            )


@contextmanager
def _replacing(directory: Path) -> Iterator[Path]:
    """Yield a sibling folder that takes the place of `directory` if the block succeeds."""
    _take_up(directory)
    check_replaceable(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", suffix=PARTIAL, dir=directory.parent))
    with FileLock(work / LOCK):
        try:
            partial = work / "new"
            partial.mkdir()
            yield partial
            _swap(partial, directory, work / "old")
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _take_up(directory: Path) -> None:
    """Clear away what killed builds left beside a folder; an index that one of them had moved aside comes back."""
    for work in directory.parent.glob(f".{glob.escape(directory.name)}-{'?' * 8}{PARTIAL}"):  # as mkdtemp names them
        with (
            suppress(Timeout, OSError),
            FileLock(work / LOCK, timeout=0),
        ):  # a build's at work there, or somebody else's
            if not directory.exists() and (work / "old").exists():
                (work / "old").replace(directory)
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
