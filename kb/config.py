"""Settings of the knowledge base, parsed once at the edge.

There are no defaults: every number lives in `params.yaml`, where DVC can see it.
"""

from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

MIN_PASSAGE_TOKENS = 16
MAX_PASSAGE_TOKENS = 256  # what the default embedder reads; it ignores the rest of a longer text


Columns = str | tuple[str, ...] | None
JOINTS = {"title": ": ", "text": "\n\n"}  # between the values of several columns; "; " in every other field


class FieldMap(BaseModel):
    """Which column, or which several, a field of the documents comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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


class DocumentSource(BaseModel):
    """A file or folder of documents. A path alone is written as text, without the braces."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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


class KnowledgeBaseParams(BaseModel):
    """Section `knowledge_base`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
