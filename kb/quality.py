"""How well retrieval works: recall, nDCG and MRR against judged queries.

Relevance is graded (0 not, 1 related, 2 exact). Recall and MRR need a yes or no, so the caller
says from which grade on a document counts; nDCG uses the grades as they are.
"""

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from math import log2
from pathlib import Path
from statistics import fmean

from kb.errors import KnowledgeBaseError
from kb.files import numbered_lines

logger = logging.getLogger(__name__)

Qrels = dict[str, dict[str, int]]
"""query id -> document id -> relevance grade."""

STRICT = 2  # the grade that counts as found where there is one
QRELS_HEADER = ["query_id", "doc_id", "relevance"]


def retrieval_quality(
    ranked_ids: Mapping[str, Sequence[str]], qrels: Qrels, relevance: int, k: int
) -> dict[str, float]:
    """Average retrieval quality over queries: the means of `quality_by_query`, which says what is measured.

    A query without any document of at least grade `relevance` has no recall and is left out of every average (and
    logged).

    Returns:
        The mean of every measure, 0 to 1, and `n_queries`, the number of queries averaged.

    Raises:
        KnowledgeBaseError: as `quality_by_query`.
    """
    measured = quality_by_query(ranked_ids, qrels, relevance, k)
    if len(measured) < len(ranked_ids):
        logger.warning("%d queries have nothing relevant", len(ranked_ids) - len(measured))
    names = next(iter(measured.values()))
    return {name: fmean(one[name] for one in measured.values()) for name in names} | {"n_queries": len(measured)}


def quality_by_query(
    ranked_ids: Mapping[str, Sequence[str]], qrels: Qrels, relevance: int, k: int
) -> dict[str, dict[str, float]]:
    """Measure how well each query was answered.

    A query that found nothing belongs in `ranked_ids` with an empty list: it scores 0. With cut-off k:

    - hit@1 = whether the first document is relevant.
    - recall@k = relevant documents among the first k / all relevant documents in the qrels.
      The denominator is not capped at k: with two relevant documents, recall@1 is at most 0.5.
    - ndcg@k = DCG@k / ideal DCG@k, where DCG@k = sum over ranks r = 1..k of
      grade(r) / log2(r + 1) (linear gain; unjudged is 0), and the ideal ranks all judged
      documents of the query by grade.
    - mrr@k = 1 / rank of the first relevant document, 0 if there is none among the first k.

    Args:
        ranked_ids: query id to document ids, best first, no id twice.
        qrels: grades of the judged documents.
        relevance: lowest grade that counts as relevant; 2 is strict in MedQuAD.
        k: cut-off; recall@1 is reported besides.

    Returns:
        Query id to `hit@1`, `recall@1`, `recall@<k>`, `ndcg@<k>`, `mrr@<k>`; without the queries that have nothing
        relevant.

    Raises:
        KnowledgeBaseError: if a query is unknown to the qrels, a ranking repeats a document, or no query has anything
            relevant.

    Source:
        Jarvelin and Kekalainen, doi:10.1145/582415.582418, with the linear gain of trec_eval.
    """
    if relevance < 1 or k < 1:
        raise KnowledgeBaseError(f"relevance is {relevance} and k is {k}: both must be 1 or more")
    measured: dict[str, dict[str, float]] = {}
    for query_id, ranking in ranked_ids.items():
        grades = _grades(query_id, ranking, qrels)
        relevant = {doc_id for doc_id, grade in grades.items() if grade >= relevance}
        if relevant:
            measured[query_id] = {
                "hit@1": float(not relevant.isdisjoint(ranking[:1])),
                "recall@1": _recall(ranking, relevant, 1),
                f"recall@{k}": _recall(ranking, relevant, k),
                f"ndcg@{k}": _ndcg(ranking, grades, k),
                f"mrr@{k}": _reciprocal_rank(ranking, relevant, k),
            }
    if not measured:
        raise KnowledgeBaseError(
            f"none of {len(ranked_ids)} queries has a document of relevance {relevance} or more: "
            "lower the relevance or check that queries and qrels belong together"
        )
    return measured


def found_from(qrels: Qrels) -> int:
    """The lowest grade that counts as found, if nobody says: 2, or 1 where no document has more."""
    return min(max(grade for grades in qrels.values() for grade in grades.values()), STRICT)


def tell_unknown(qrels: Qrels, relevance: int, known: Collection[str]) -> None:
    """Warn of relevant documents that are not there to be found."""
    wanted = {doc for grades in qrels.values() for doc, grade in grades.items() if grade >= relevance}
    if unknown := sorted(wanted - set(known)):
        logger.warning(
            "%d of %d relevant documents are not in the index, such as %r: they count as not found; check that queries "
            "and sources belong together",
            *(len(unknown), len(wanted), unknown[0]),
        )


def load_queries(queries_path: Path, qrels_path: Path) -> tuple[dict[str, str], Qrels]:
    """Load judged queries.

    Args:
        queries_path: JSONL (`.gz` allowed), one object per line with `query_id` and `text`.
        qrels_path: TSV (`.gz` allowed): query_id, doc_id, relevance (integer); a header is fine.

    Returns:
        Query id to text, in file order, and the qrels.

    Raises:
        KnowledgeBaseError: if a line is malformed, an id repeats, no document is relevant, or a query is in one file
            only: a measure over half the queries would look like one over all.
    """
    queries = _read_queries(queries_path)
    qrels = _read_qrels(qrels_path)
    for ids, others, place in ((qrels, queries, queries_path), (queries, qrels, qrels_path)):
        strangers = [query_id for query_id in ids if query_id not in others]
        if strangers:
            raise KnowledgeBaseError(
                f"{place} lacks {len(strangers)} queries of its partner, such as "
                f"{strangers[0]!r}: use a queries file and a qrels file that belong together"
            )
    if not any(grade >= 1 for grades in qrels.values() for grade in grades.values()):
        raise KnowledgeBaseError(f"{qrels_path} has no document of relevance 1 or more: nothing could be measured")
    return queries, qrels


def _grades(query_id: str, ranking: Sequence[str], qrels: Qrels) -> dict[str, int]:
    if query_id not in qrels:
        raise KnowledgeBaseError(f"query {query_id!r} is not in the qrels: judge it or drop it")
    if len(set(ranking)) < len(ranking):
        raise KnowledgeBaseError(f"the ranking of query {query_id!r} repeats a document: rank each document once")
    return qrels[query_id]


def _recall(ranking: Sequence[str], relevant: set[str], k: int) -> float:
    return len(relevant.intersection(ranking[:k])) / len(relevant)


def _ndcg(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    found = [grades.get(doc_id, 0) for doc_id in ranking]
    return _dcg(found, k) / _dcg(sorted(grades.values(), reverse=True), k)


def _dcg(gains: Sequence[int], k: int) -> float:
    return sum(max(gain, 0) / log2(rank + 1) for rank, gain in enumerate(gains[:k], start=1))


def _reciprocal_rank(ranking: Sequence[str], relevant: set[str], k: int) -> float:
    ranks = (rank for rank, doc_id in enumerate(ranking[:k], start=1) if doc_id in relevant)
    return 1 / next(ranks, float("inf"))


def _read_queries(path: Path) -> dict[str, str]:
    queries: dict[str, str] = {}
    for number, raw in numbered_lines(path):
        if not raw.strip():
            continue
        try:
            record = json.loads(raw)
            query_id, text = record["query_id"], record["text"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise KnowledgeBaseError(
                f"{path}:{number} is not an object with query_id and text ({error!r}): correct it"
            ) from error
        if not isinstance(query_id, str) or not isinstance(text, str) or query_id in queries:
            raise KnowledgeBaseError(
                f"{path}:{number} has query_id {query_id!r}: ids must be distinct text, and the "
                "query's text must be text"
            )
        queries[query_id] = text
    return queries


def _read_qrels(path: Path) -> Qrels:
    qrels: Qrels = {}
    for number, raw in numbered_lines(path):
        columns = raw.decode("utf-8-sig", errors="replace").split("\t")
        if not raw.strip() or (number == 1 and columns == QRELS_HEADER):
            continue
        try:
            query_id, doc_id, grade = columns
            judged = qrels.setdefault(query_id, {})
            repeated = doc_id in judged
            judged[doc_id] = int(grade)
        except ValueError as error:
            raise KnowledgeBaseError(
                f"{path}:{number} is not query_id, doc_id and a whole number, separated by tabs: correct it"
            ) from error
        if repeated:
            raise KnowledgeBaseError(f"{path}:{number} judges {doc_id!r} twice: keep one line")
    return qrels
