import gzip
import json
import random
from math import log2

import ir_measures
import pytest

from kb.errors import KnowledgeBaseError
from kb.quality import found_from, load_queries, quality_by_query, retrieval_quality, tell_unknown

QRELS = {"q1": {"a": 2, "b": 1}, "q2": {"c": 2, "d": 2, "e": 1}}
RANKED = {"q1": ["b", "a", "x"], "q2": ["c", "x", "e"]}


def test_known_numbers_strict():
    """Q1: exact at rank 2 of 1 exact. Q2: one of two exact at rank 1."""
    quality = retrieval_quality(RANKED, QRELS, relevance=2, k=10)
    ndcg_1 = (1 + 2 / log2(3)) / (2 + 1 / log2(3))
    ndcg_2 = (2 + 1 / log2(4)) / (2 + 2 / log2(3) + 1 / log2(4))
    assert quality == pytest.approx(
        {
            "hit@1": (0 + 1) / 2,
            "recall@1": (0 + 1 / 2) / 2,
            "recall@10": (1 + 1 / 2) / 2,
            "ndcg@10": (ndcg_1 + ndcg_2) / 2,
            "mrr@10": (1 / 2 + 1) / 2,
            "n_queries": 2,
        }
    )
    assert ndcg_1 == pytest.approx(0.8597, abs=1e-4)
    assert ndcg_2 == pytest.approx(0.6646, abs=1e-4)


def test_known_numbers_lenient_and_cut_off():
    quality = retrieval_quality(RANKED, QRELS, relevance=1, k=2)
    assert quality["recall@1"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert quality["recall@2"] == pytest.approx((1 + 1 / 3) / 2)
    assert quality["mrr@2"] == 1
    ndcg_1 = (1 + 2 / log2(3)) / (2 + 1 / log2(3))
    assert quality["ndcg@2"] == pytest.approx((ndcg_1 + 2 / (2 + 2 / log2(3))) / 2)
    assert retrieval_quality({"q1": ["x", "a"]}, QRELS, 2, 1)["mrr@1"] == 0


def test_bounds():
    perfect = {"q1": ["a", "b"], "q2": ["d", "c", "e"]}
    assert retrieval_quality(perfect, QRELS, 2, 10)["ndcg@10"] == 1
    nothing = retrieval_quality({"q1": [], "q2": ["x"]}, QRELS, 2, 10)
    assert set(nothing.values()) == {0, 2}


def test_unjudged_grades_do_not_count_against_or_for():
    assert retrieval_quality({"q": ["bad", "a"]}, {"q": {"a": 1, "bad": -1}}, 1, 10)["ndcg@10"] == pytest.approx(
        1 / log2(3)
    )


def test_a_query_with_nothing_relevant_is_left_out_and_logged(caplog):
    qrels = {**QRELS, "q3": {"a": 1}}
    quality = retrieval_quality({**RANKED, "q3": ["a"]}, qrels, 2, 10)
    assert quality == retrieval_quality(RANKED, QRELS, 2, 10)
    assert "1 queries have nothing relevant" in caplog.text


@pytest.mark.parametrize(
    ("ranked", "relevance", "words"),
    [
        ({"q9": ["a"]}, 2, "'q9' is not in the qrels"),
        ({"q1": ["a", "a"]}, 2, "repeats a document"),
        ({"q1": ["a"]}, 3, "none of 1 queries"),
        ({}, 2, "none of 0 queries"),
        ({"q1": ["a"]}, 0, "must be 1 or more"),
    ],
)
def test_what_cannot_be_averaged_is_an_error(ranked, relevance, words):
    with pytest.raises(KnowledgeBaseError, match=words):
        retrieval_quality(ranked, QRELS, relevance, 10)


@pytest.mark.parametrize(("grades", "lowest"), [((0, 2, 1), 2), ((0, 1), 1), ((5,), 2)])
def test_two_counts_as_found_or_one_where_there_is_no_more(grades, lowest):
    assert found_from({"q": {str(n): grade for n, grade in enumerate(grades)}}) == lowest


def test_relevant_documents_that_are_not_there_are_told(caplog):
    tell_unknown({"q": {"a": 2, "b": 1, "c": 2, "d": 2}}, 2, {"a", "x"})
    assert "2 of 3 relevant documents are not in the index, such as 'c'" in caplog.text
    caplog.clear()
    tell_unknown({"q": {"a": 2, "b": 1}}, 2, {"a"})
    assert not caplog.text


def files(tmp_path, queries, qrels):
    queries_path, qrels_path = tmp_path / "queries.jsonl.gz", tmp_path / "qrels.tsv"
    lines = [q if isinstance(q, str) else json.dumps(q) for q in queries]
    queries_path.write_bytes(gzip.compress("\n".join(lines).encode()))
    qrels_path.write_text("".join("\t".join(row) + "\n" for row in qrels))
    return queries_path, qrels_path


HEADER = ("query_id", "doc_id", "relevance")
Q1 = {"query_id": "q1", "text": "What is gout?", "qtype": ["information"]}


@pytest.mark.parametrize("header", [[], [HEADER]])
def test_queries_load_with_or_without_header(tmp_path, header):
    paths = files(tmp_path, [Q1, ""], [*header, ("q1", "a", "2"), ("q1", "b", "1")])
    assert load_queries(*paths) == ({"q1": "What is gout?"}, {"q1": {"a": 2, "b": 1}})


@pytest.mark.parametrize("header", [[], [HEADER]])
def test_a_byte_order_mark_is_no_part_of_an_id(tmp_path, header):
    queries, qrels = files(tmp_path, [Q1], [*header, ("q1", "a", "2")])
    qrels.write_bytes(b"\xef\xbb\xbf" + qrels.read_bytes())
    assert load_queries(queries, qrels)[1] == {"q1": {"a": 2}}


@pytest.mark.parametrize(
    ("queries", "qrels", "words"),
    [
        ([Q1, "{"], [("q1", "a", "2")], r"queries\.jsonl\.gz:2 is not an object"),
        ([{"query_id": "q1"}], [("q1", "a", "2")], "text"),
        ([Q1, Q1], [("q1", "a", "2")], "distinct"),
        ([Q1], [("q1", "a", "high")], r"qrels\.tsv:1 is not query_id"),
        ([Q1], [("q1", "a")], r"qrels\.tsv:1 is not query_id"),
        ([Q1], [("q1", "a", "2"), ("q1", "a", "1")], "judges 'a' twice"),
        ([Q1], [("q1", "a", "2"), ("q2", "a", "2")], r"queries\.jsonl\.gz lacks 1 queries.*'q2'"),
        ([Q1], [], r"qrels\.tsv lacks 1 queries"),
        ([Q1], [("q1", "a", "0")], r"qrels\.tsv has no document of relevance 1 or more: nothing could be measured"),
    ],
)
def test_malformed_or_half_judged_queries_are_refused(tmp_path, queries, qrels, words):
    with pytest.raises(KnowledgeBaseError, match=words):
        load_queries(*files(tmp_path, queries, qrels))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(KnowledgeBaseError, match=r"queries\.jsonl is missing"):
        load_queries(tmp_path / "queries.jsonl", tmp_path / "qrels.tsv")


def test_trec_eval_measures_the_same():
    """The oracle is trec_eval itself, through ir-measures."""
    draw = random.Random(0)
    documents = [f"d{number}" for number in range(60)]
    qrels = {
        f"q{number}": {doc: draw.choice([0, 0, 1, 2]) for doc in draw.sample(documents, 15)} for number in range(40)
    }
    ranked = {query: draw.sample(documents, draw.randint(0, 30)) for query in qrels}
    run = {query: {doc: 100.0 - rank for rank, doc in enumerate(docs)} for query, docs in ranked.items()}
    names = {
        "hit@1": "Success(rel=2)@1",
        "recall@1": "R(rel=2)@1",
        "recall@10": "R(rel=2)@10",
        "ndcg@10": "nDCG@10",
        "mrr@10": "RR(rel=2)@10",
    }
    measures = {ours: ir_measures.parse_measure(theirs) for ours, theirs in names.items()}
    judged = {query for query, grades in qrels.items() if 2 in grades.values()}
    ours = quality_by_query(ranked, qrels, relevance=2, k=10)
    theirs = {
        (one.query_id, one.measure): one.value for one in ir_measures.iter_calc(list(measures.values()), qrels, run)
    }
    assert set(ours) == judged
    for query in judged:
        for name, measure in measures.items():
            assert ours[query][name] == pytest.approx(theirs.get((query, measure), 0), abs=1e-6), (query, name)
