"""The library: documents -> passages -> words and vectors -> index -> search.

It turns medical texts into an index that answers "which passages speak of this?", keeps source
and licence with every passage, and measures how well it retrieves. `kb.build` makes an index and
`kb.open` searches one; `python -m kb` does both. Read it in this order: `documents` (files to
`Document`), `passages` (`Document` to `Passage`), `embed` (text to vectors), `cache` and
`incremental` (only what is new is computed), `lexical` (BM25), `nearest` (FAISS), `index` (the folder
on disk), `fusion` and `search`, `building` (all of it in one call), and `quality` (recall, nDCG, MRR).

It leaves out everything that uses what it finds: doctors, consultations, rewards, training. It
also leaves out pipelines: nothing here knows of Prefect, MLflow or DVC. Three libraries have one
door each: sentence-transformers in `embed`, bm25s in `lexical`, faiss in `nearest`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a client that only reads parameters pays for none of it
    from kb.building import Built
    from kb.config import DocumentSource, KnowledgeBaseParams
    from kb.search import Searcher


def build(
    sources: "Sequence[Path | str | DocumentSource]",
    out: Path | str,
    params: "KnowledgeBaseParams | Path | str",
    *,
    cache: Path | str | None = None,
    progress: "Callable[[int, int], None] | None" = None,
) -> "Built":
    """Build an index folder from files or folders of documents.

    Args:
        sources: files or folders, in place of those that the parameters name.
        out: the index folder; an index that is there is replaced when the new one is complete.
        params: everything else, or a YAML file whose section `knowledge_base` has it, such as `params.yaml`.
        cache: file in which vectors and passages are kept for the next build; None: they are not.
        progress: called with (passages embedded, passages to embed).

    Raises:
        kb.errors.KnowledgeBaseError: if a source, a setting or the embedder cannot be used.
    """
    from kb.building import build_knowledge_base
    from kb.config import KnowledgeBaseParams, read_params

    given = params if isinstance(params, KnowledgeBaseParams) else read_params(Path(params))
    named = [str(source) if isinstance(source, Path) else source for source in sources]
    chosen = KnowledgeBaseParams.model_validate(given.model_dump() | {"sources": named})
    return build_knowledge_base(chosen, Path.cwd(), Path(out), cache=Path(cache) if cache else None, progress=progress)


def open(folder: Path | str) -> "Searcher":
    """Open an index folder for searching: `kb.open(folder).search("chest pain", k=5, filters={"licence": "CC0-1.0"})`.

    Raises:
        kb.errors.KnowledgeBaseError: if the folder is not a whole index, or its embedder cannot be loaded.
    """
    from kb.search import open_index

    return open_index(Path(folder))
