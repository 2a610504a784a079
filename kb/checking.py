"""How well an index answers judged queries, by every way of searching it. What `python -m kb check` prints."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal, get_args

import numpy as np
from scipy.stats import bootstrap

from kb.config import Compute, FusionParams, Method
from kb.embed import Embedder, Vectors
from kb.index import KnowledgeIndex
from kb.quality import Qrels, quality_by_query, tell_unknown
from kb.search import Searcher

Half = Literal["tune", "report", "all"]
DEPTH = 10
RESAMPLES = 9999
SHOWN = ("ndcg@10", "hit@1", "recall@10", "mrr@10")


def in_half(query_id: str, half: Half) -> bool:
    """Whether a query belongs to a half: numbers are chosen on `tune` and told of `report`."""
    return half == "all" or (int(hashlib.sha256(query_id.encode()).hexdigest(), 16) % 2 == 1) == (half == "report")


def compared(
    index: KnowledgeIndex,
    embedder: Embedder | None,
    queries: Mapping[str, str],
    qrels: Qrels,
    relevance: int,
    weight: float,
) -> str:
    """Measure every method on every query, and how far the fused ones are from vectors alone.

    Args:
        index: with vectors, or without; then words alone are measured.
        embedder: the index's; None for one without vectors.
        queries: query id to text.
        qrels: grades of the judged documents.
        relevance: lowest grade that counts as relevant.
        weight: of the words, in the methods that fuse.

    Returns:
        A table: a row per method; below it the differences to `dense`, each with a 95% interval of a paired bootstrap.

    Raises:
        KnowledgeBaseError: as `quality_by_query`.
    """
    remembering = None if embedder is None else _Remembering(embedder)
    tell_unknown({query: qrels[query] for query in queries if query in qrels}, relevance, index.documents())
    methods: Sequence[Method] = get_args(Method) if index.nearest is not None else ("lexical",)
    measured: dict[Method, dict[str, dict[str, float]]] = {}
    for method in methods:
        fusion = FusionParams(method=method, lexical_weight=weight, candidates=index.manifest.fusion.candidates)
        ranked = Searcher(index, remembering, fusion).search_documents(list(queries.values()), DEPTH)
        measured[method] = quality_by_query(dict(zip(queries, ranked, strict=True)), qrels, relevance, DEPTH)
    count = len(measured[methods[0]])
    lines = [f"{count} queries, {index.manifest.n_passages} passages, weight of words {weight}"]
    lines.append(f"{'':22}" + "".join(f"{name:>12}" for name in SHOWN))
    for method in methods:
        means = "".join(f"{fmean(one[name] for one in measured[method].values()):12.4f}" for name in SHOWN)
        lines.append(f"{method:22}{means}")
    for method in methods:
        if method != "dense" and "dense" in measured:
            lines += _differences(method, measured[method], measured["dense"])
    return "\n".join(lines) + "\n"


def _differences(
    method: Method, ours: Mapping[str, Mapping[str, float]], dense: Mapping[str, Mapping[str, float]]
) -> list[str]:
    lines = []
    for name in ("ndcg@10", "hit@1"):
        mean, low, high = paired_difference([one[name] - dense[query][name] for query, one in ours.items()])
        lines.append(f"{method} - dense, {name}: {mean:+.4f} [{low:+.4f}, {high:+.4f}]")
    return lines


def paired_difference(differences: Sequence[float]) -> tuple[float, float, float]:
    """Mean of differences per query, and its 95% interval: percentiles of the means of resampled queries."""
    values = np.asarray(differences)
    if len(values) < 2 or not np.ptp(values):
        return float(values.mean()), float(values.mean()), float(values.mean())
    interval = bootstrap(
        (values,), np.mean, n_resamples=RESAMPLES, batch=100, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    return float(values.mean()), float(interval.low), float(interval.high)


@dataclass
class _Remembering:
    """An embedder that reads every query once."""

    embedder: Embedder
    known: dict[str, Vectors] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.embedder.name

    @property
    def weights(self) -> str:
        return self.embedder.weights

    @property
    def compute(self) -> Compute:
        return self.embedder.compute

    @property
    def dimension(self) -> int:
        return self.embedder.dimension

    @property
    def max_tokens(self) -> int:
        return self.embedder.max_tokens

    def encode(self, texts: list[str]) -> Vectors:
        new = list(dict.fromkeys(text for text in texts if text not in self.known))
        self.known.update(zip(new, self.embedder.encode(new), strict=True))
        return np.array([self.known[text] for text in texts], np.float32).reshape(len(texts), self.dimension)

    def count_tokens(self, texts: list[str]) -> list[int]:
        return self.embedder.count_tokens(texts)

    def unknown_share(self, texts: list[str]) -> float:
        return self.embedder.unknown_share(texts)
