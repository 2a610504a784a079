"""An embedder that the cache knows by its files: it is loaded when it has to read a text, which takes seconds."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property

from kb.cache import Cache, maker_of
from kb.config import Compute
from kb.embed import Embedder, Vectors
from kb.files import sha256_texts


@dataclass(frozen=True)
class _Stated:
    """What an embedder says of itself."""

    weights: str
    dimension: int
    max_tokens: int


class LateEmbedder:
    """An `Embedder` that loads another one at the first text to read."""

    def __init__(
        self, name: str, compute: Compute, load: Callable[[], Embedder], fingerprint: str | None, cache: Cache
    ) -> None:
        """Keep how to load it.

        Args:
            name: of the embedder.
            compute: its number format.
            load: loads it.
            fingerprint: of its files, which say what it is; None: it is loaded to know.
            cache: where it is kept what it says of itself.
        """
        self.name, self.compute = name, compute
        self._load, self._fingerprint, self._cache = load, fingerprint, cache

    @property
    def weights(self) -> str:
        """Hash of everything that makes its vectors and token counts."""
        return self._stated.weights

    @property
    def dimension(self) -> int:
        """D, the length of a vector."""
        return self._stated.dimension

    @property
    def max_tokens(self) -> int:
        """Tokens read of a text."""
        return self._stated.max_tokens

    def encode(self, texts: list[str]) -> Vectors:
        """Return one unit vector per text."""
        return self._embedder.encode(texts)

    def count_tokens(self, texts: list[str]) -> list[int]:
        """Return tokens per text, special tokens included."""
        return self._embedder.count_tokens(texts)

    def unknown_share(self, texts: list[str]) -> float:
        """Return the share of the texts' tokens that it does not know."""
        maker, name = maker_of("unknown share", self.weights), sha256_texts(texts)
        known = self._cache.get(maker, [name])
        if name not in known:
            known = {name: json.dumps(self._embedder.unknown_share(texts)).encode()}
            self._cache.put(maker, known)
        return float(json.loads(known[name]))

    @cached_property
    def _embedder(self) -> Embedder:
        return self._load()

    @cached_property
    def _stated(self) -> _Stated:
        maker, name = maker_of("embedder", code=("kb.embed",)), self._fingerprint
        known = self._cache.get(maker, [name]) if name is not None else {}
        if name in known:
            return _Stated(**json.loads(known[name]))
        loaded = self._embedder
        stated = _Stated(loaded.weights, loaded.dimension, loaded.max_tokens)
        if name is not None:
            self._cache.put(maker, {name: json.dumps(asdict(stated)).encode()})
        return stated
