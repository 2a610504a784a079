"""What an index folder says about itself: who made it from what, and the hash of every file.

There is no time stamp in it: the same texts, settings and embedder give the same manifest.
"""

import json
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from kb.config import Bm25Params, Compute, FusionParams, VectorIndexParams
from kb.errors import KnowledgeBaseError
from kb.files import sha256_file

MANIFEST_FILE = "manifest.json"
SCHEMA_VERSION = 2
REBUILD = "rebuild it with `dvc repro knowledge_base` or `python -m kb build`"


class IndexKind(StrEnum):
    """How vectors are stored: all of them, a neighbour graph over them, or compressed in cells."""

    FLAT = "flat"
    HNSW = "hnsw"
    IVF_PQ = "ivf_pq"


class Manifest(BaseModel):
    """`manifest.json`. Made by `kb.index.build_index`, read by `KnowledgeIndex.load`.

    Attributes:
        schema_version: of this file's layout.
        embedder: name of the embedder; queries need the same one, but for `lexical`.
        weights: hash of the embedder's weights and tokenizer.
        compute: number format in which the passages were embedded.
        fusion: how a search brings words and vectors together, if it is not told otherwise.
        bm25: numbers of the search by words.
        index: which vector index was asked for, and how wide it searches.
        index_kind: the one that there is; None without vectors.
        dimension: D of the vectors; 0 without.
        recall_at_10: share of the 10 nearest that the vector index finds; None without vectors.
        n_documents: documents with at least one passage.
        n_passages: rows of the index.
        files: file name to SHA-256, for every file but this one.
        sources: source file to SHA-256, as given by the builder.
        licences: licence to number of documents under it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int
    embedder: str
    weights: str
    compute: Compute
    fusion: FusionParams
    bm25: Bm25Params
    index: VectorIndexParams
    index_kind: IndexKind | None
    dimension: int
    recall_at_10: float | None
    n_documents: int
    n_passages: int
    files: dict[str, str]
    sources: dict[str, str]
    licences: dict[str, int]


def write_manifest(manifest: Manifest, directory: Path) -> None:
    """Write `manifest.json` into the folder."""
    text = manifest.model_dump_json(indent=2) + "\n"
    (directory / MANIFEST_FILE).write_text(text, encoding="utf-8")


def read_manifest(directory: Path) -> Manifest:
    """Read and check the manifest, then every file against its hash.

    Raises:
        KnowledgeBaseError: if the folder, the manifest or a file is missing or not as recorded.
    """
    path = directory / MANIFEST_FILE
    if not directory.is_dir():
        raise KnowledgeBaseError(f"knowledge base {directory} does not exist: {REBUILD}")
    if not path.is_file():
        raise KnowledgeBaseError(f"{path} is missing, so this is no knowledge base: {REBUILD}")
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise KnowledgeBaseError(f"{path} is not a manifest ({where}: {first['msg']}): {REBUILD}") from error
    if manifest.schema_version != SCHEMA_VERSION:
        raise KnowledgeBaseError(
            f"{path} has schema version {manifest.schema_version}, this code reads {SCHEMA_VERSION}: {REBUILD}"
        )
    for name, expected in manifest.files.items():
        _verify(directory / name, expected)
    return manifest


def listed_files(directory: Path) -> frozenset[str]:
    """The files of an index, the manifest too, by what its manifest says; of any schema version. None where it says nothing."""
    try:
        stated = json.loads((directory / MANIFEST_FILE).read_bytes())
        return frozenset({MANIFEST_FILE, *stated["files"]}) if "schema_version" in stated else frozenset()
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()


def _verify(path: Path, expected: str) -> None:
    if not path.is_file():
        raise KnowledgeBaseError(f"{path} is missing, but its manifest lists it: {REBUILD}")
    found = sha256_file(path)
    if found != expected:
        raise KnowledgeBaseError(
            f"{path} is corrupt (sha256 {found[:12]}..., its manifest says {expected[:12]}...): {REBUILD}"
        )
