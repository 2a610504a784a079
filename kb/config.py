"""Settings of the knowledge base, parsed once at the edge.

There are no defaults: every number lives in `params.yaml`, where DVC can see it.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from kb.errors import KnowledgeBaseError

DEFAULT_EMBEDDER = "all-MiniLM-L6-v2"
MIN_PASSAGE_TOKENS = 16
MAX_PASSAGE_TOKENS = 256  # what the default embedder reads; it ignores the rest of a longer text


Compute = Literal["float32", "bfloat16"]
Method = Literal["weighted", "rrf", "dense", "lexical"]
Columns = str | tuple[str, ...] | None
JOINTS = {"title": ": ", "text": "\n\n"}  # between the values of several columns; "; " in every other field


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FieldMap(_Section):
    """Which column, or which several, a field of the documents comes from."""

    doc_id: Columns = Field(default=None, description="id, one of its kind in the corpus")
    title: Columns = Field(default=None, description="title; several columns are joined by ': '")
    text: Columns = Field(default=None, description="the text; several columns become paragraphs")
    source: Columns = Field(default=None, description="who published it")
    licence: Columns = Field(default=None, description="its licence")
    url: Columns = Field(default=None, description="its address")
    language: Columns = Field(default=None, description="its language, such as en")
    date: Columns = Field(default=None, description="when it was published or last revised")

    def columns(self) -> dict[str, tuple[str, ...]]:
        """Field -> its columns, of the fields that are mapped."""
        given = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: (it,) if isinstance(it, str) else tuple(it) for name, it in given.items() if it}


class DocumentSource(_Section):
    """A file or folder of documents. A path alone is written as text, without the braces."""

    path: str = Field(description="file or folder, relative to the project")
    fields: FieldMap | None = Field(default=None, description="columns of JSONL that are not named as fields are")
    licence: str | None = Field(default=None, description="of documents that do not state one")
    language: str | None = Field(default=None, description="of documents that do not state one")
    source: str | None = Field(default=None, description="who published those that do not say it")

    @model_validator(mode="before")
    @classmethod
    def _a_path_alone(cls, given: object) -> object:
        return {"path": given} if isinstance(given, str) else given

    @model_serializer(mode="wrap")
    def _as_written(self, dumped: SerializerFunctionWrapHandler) -> Any:
        written = {name: value for name, value in dumped(self).items() if value is not None}
        return self.path if written.keys() == {"path"} else written

    @field_validator("path")
    @classmethod
    def _path_is_named(cls, path: str) -> str:
        if not path.strip():
            raise ValueError("path is blank: name a file or folder")
        return path


class FusionParams(_Section):
    """How the scores of words (BM25) and of vectors become one; recorded in the index, used by whoever searches it."""

    method: Method = Field(
        description="weighted: both scores brought to 0 to 1 and added; rrf: weighted reciprocal ranks; dense: vectors alone; "
        "lexical: words alone, and no vectors are made"
    )
    lexical_weight: float = Field(
        ge=0, le=1, description="of the words in `weighted` and `rrf`; the vectors have the rest"
    )
    candidates: int = Field(ge=1, description="best passages of each that are fused, at least as many as are asked for")


class Bm25Params(_Section):
    """Numbers of BM25 (doi:10.1561/1500000019)."""

    k1: float = Field(ge=0, description="how much a word counts that stands there again; 0: nothing")
    b: float = Field(ge=0, le=1, description="how much long passages are discounted; 0: not at all")
    stemmer: str | None = Field(
        description="Snowball algorithm that brings forms of a word together: english, german, spanish ...; null: none"
    )
    title_weight: int = Field(ge=1, description="how often the words of a title count")
    document_weight: float = Field(
        ge=0, description="of the BM25 of the whole document, added to that of the passage; 0: passages alone"
    )


class VectorIndexParams(_Section):
    """Which FAISS index holds the vectors."""

    kind: Literal["auto", "flat", "hnsw", "ivf_pq"] = Field(
        description="auto: by the number of passages; flat: all compared; hnsw: a graph of neighbours; ivf_pq: compressed, in cells"
    )
    hnsw_from: int = Field(ge=1, description="passages from which on auto is hnsw; flat below")
    ivf_pq_from: int = Field(ge=1, description="passages from which on auto is ivf_pq")
    probes: int = Field(ge=1, description="cells that a query looks into, with ivf_pq")
    rerank: int = Field(ge=1, description="best passages of ivf_pq that are compared again, with their whole vectors")


class KnowledgeBaseParams(_Section):
    """Section `knowledge_base`."""

    sources: list[DocumentSource] = Field(
        min_length=1,
        description="files or folders (Markdown, text, HTML, PDF, MedQuAD XML, JSONL), in the order their documents are kept; a path, or {path, fields, licence, language, source}",
    )
    licences: tuple[str, ...] | None = Field(
        min_length=1, description="documents under any other licence are rejected; null: none is"
    )
    near_duplicate: float = Field(
        gt=0,
        le=1,
        description="similarity of two passages (Jaccard, 3 words) from which they become one with both sources; 1: equal texts alone",
    )
    embedder: str = Field(description="all-MiniLM-L6-v2 (bundled, offline), or a sentence-transformers id or path")
    max_tokens: int = Field(description="longest passage as embedded, in the embedder's tokens, 16 to 256")
    overlap_tokens: int = Field(description="how much of a passage its successor may repeat, in tokens")
    batch_size: int = Field(description="passages per forward pass; changes speed, not results")
    compute: Compute = Field(
        description="number format of the embedder; bfloat16 where the processor has it: half the time, cosine to float32 above .9999"
    )
    max_unknown_share: float = Field(
        ge=0, le=1, description="of the texts' tokens that the embedder does not know; with more the build stops"
    )
    fusion: FusionParams = Field(description="words and vectors in one ranking")
    bm25: Bm25Params = Field(description="search by words")
    index: VectorIndexParams = Field(description="search by vectors")
    queries: str | None = Field(
        description="JSONL file of evaluation queries (query_id, text): retrieval quality becomes a metric; null: no evaluation"
    )
    qrels: str | None = Field(description="TSV file of their relevance; given exactly when `queries` is")

    @field_validator("embedder")
    @classmethod
    def _embedder_is_named(cls, embedder: str) -> str:
        if not embedder.strip():
            raise ValueError("embedder is blank: use 'all-MiniLM-L6-v2' or a model id or path")
        return embedder

    @field_validator("max_tokens")
    @classmethod
    def _passage_length_is_sane(cls, max_tokens: int) -> int:
        if not MIN_PASSAGE_TOKENS <= max_tokens <= MAX_PASSAGE_TOKENS:
            raise ValueError(f"max_tokens is {max_tokens}: choose {MIN_PASSAGE_TOKENS} to {MAX_PASSAGE_TOKENS} tokens")
        return max_tokens

    @field_validator("batch_size")
    @classmethod
    def _batch_is_positive(cls, batch_size: int) -> int:
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}: choose 1 or more passages")
        return batch_size

    @model_validator(mode="after")
    def _fields_agree(self) -> "KnowledgeBaseParams":
        if not 0 <= self.overlap_tokens < self.max_tokens:
            raise ValueError(
                f"overlap_tokens is {self.overlap_tokens}: "
                f"choose 0 or more, and less than max_tokens ({self.max_tokens})"
            )
        if (self.queries is None) != (self.qrels is None):
            raise ValueError(f"queries is {self.queries} and qrels is {self.qrels}: give both files or neither")
        return self


def read_params(path: Path) -> KnowledgeBaseParams:
    """Read section `knowledge_base` of a parameter file; its other sections are not looked at.

    Raises:
        KnowledgeBaseError: if the file, the section or a value of it is missing or wrong.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise ValueError("it is a folder, a pipe, a socket or a device; name a regular file")
        content = YAML(typ="safe", pure=True).load(path)
    except FileNotFoundError:
        raise KnowledgeBaseError(f"{path} does not exist: name a file with a section knowledge_base") from None
    except (YAMLError, ValueError, OSError, RecursionError) as error:
        raise KnowledgeBaseError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or "knowledge_base" not in content:
        raise KnowledgeBaseError(f"{path} has no section knowledge_base: add it")
    try:
        return KnowledgeBaseParams.model_validate(content["knowledge_base"])
    except ValidationError as error:
        mistakes = error.errors(include_url=False)  # a misspelt key is missing as well
        first = min(mistakes, key=lambda mistake: mistake["type"] != "extra_forbidden")
        key = ".".join(("knowledge_base", *(str(part) for part in first["loc"])))
        told = {"extra_forbidden": "unknown key; correct or remove it", "missing": "missing; add it"}
        message = told.get(first["type"]) or first["msg"].removeprefix("Value error, ")
        raise KnowledgeBaseError(f"{path}: {key}: {message}") from error
