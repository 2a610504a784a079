"""Settings of the knowledge base, parsed once at the edge.

There are no defaults: every number lives in `params.yaml`, where DVC can see it.
"""

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

MIN_PASSAGE_TOKENS = 16
MAX_PASSAGE_TOKENS = 256  # what the default embedder reads; it ignores the rest of a longer text


class KnowledgeBaseParams(BaseModel):
    """Section `knowledge_base`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sources: list[str] = Field(
        description="files or folders of documents, in the order their documents are kept: Markdown, text, JSONL with text/title/source/licence"
    )
    embedder: str = Field(description="all-MiniLM-L6-v2 (bundled, offline), or a sentence-transformers id or path")
    max_tokens: int = Field(description="longest passage as embedded, in the embedder's tokens, 16 to 256")
    overlap_tokens: int = Field(description="how much of a passage its successor may repeat, in tokens")
    batch_size: int = Field(description="passages per forward pass; changes speed, not results")
    queries: str | None = Field(
        description="JSONL file of evaluation queries (query_id, text): retrieval quality becomes a metric; null: no evaluation"
    )
    qrels: str | None = Field(description="TSV file of their relevance; given exactly when `queries` is")

    @field_validator("sources")
    @classmethod
    def _sources_are_named(cls, sources: list[str]) -> list[str]:
        if not sources or any(not source.strip() for source in sources):
            raise ValueError(f"sources is {sources}: name at least one file or folder, none blank")
        return sources

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
