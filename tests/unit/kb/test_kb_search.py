import numpy as np
import pytest

import kb.search
from kb.errors import KnowledgeBaseError
from kb.index import KnowledgeIndex, build_index
from kb.search import Searcher

LONG = " ".join(f"Gout flare number {word} hurts the toe." for word in "abcdefghijklmnop")
TEXTS = [LONG, "Angina is chest pain on effort.", "Asthma wheezes at night.", "Gout is crystals."]


@pytest.fixture
def index(tmp_path, embedder, make_passages):
    passages = make_passages(TEXTS)
    vectors = embedder.encode([passage.embedded_text for passage in passages])
    build_index(passages, vectors, tmp_path / "index", "fake", sources={})
    return KnowledgeIndex.load(tmp_path / "index")


@pytest.fixture
def searcher(index, embedder):
    return Searcher(index, embedder)


def test_the_best_passage_comes_first_with_its_cosine(searcher, embedder):
    hits = searcher.search("chest pain on effort", 3)
    assert hits[0].passage.doc_id == "d1"
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    query, found = embedder.encode(["chest pain on effort", hits[0].passage.embedded_text])
    assert scores[0] == pytest.approx(float(query @ found), abs=1e-6)


def test_asking_together_or_alone_is_the_same(searcher):
    queries = ["asthma at night", "", "gout crystals"]
    together = searcher.search_many(queries, 2)
    assert together == [searcher.search(query, 2) for query in queries]
    assert together[1] == []


def test_more_than_there_is(searcher):
    n_passages = len(searcher.search("gout", 10_000))
    assert n_passages == len({hit.passage.passage_id for hit in searcher.search("gout", 10_000)})
    with pytest.raises(KnowledgeBaseError, match="1 or more"):
        searcher.search("gout", 0)


def test_equal_scores_keep_the_order_of_the_index(tmp_path, embedder, make_passages):
    passages = make_passages(["Same.", "Same.", "Same."])
    vectors = np.tile(embedder.encode(["Same."]), (3, 1))
    build_index(passages, vectors, tmp_path / "ties", "fake", sources={})
    hits = Searcher(KnowledgeIndex.load(tmp_path / "ties"), embedder).search("same", 3)
    assert [hit.passage.doc_id for hit in hits] == ["d0", "d1", "d2"]


def test_a_long_document_does_not_crowd_out_the_others(searcher):
    passages = [hit.passage.doc_id for hit in searcher.search("gout flare hurts the toe", 4)]
    assert set(passages) == {"d0"}
    (ranked, nothing) = searcher.search_documents(["gout flare hurts the toe", " "], 4)
    assert ranked[:2] == ["d0", "d3"]
    assert sorted(ranked) == ["d0", "d1", "d2", "d3"]
    assert nothing == []
    assert searcher.search_documents(["gout flare"], 1) == [["d0"]]


def test_more_passages_are_fetched_until_there_are_enough_documents(searcher, monkeypatch):
    monkeypatch.setattr(kb.search, "PASSAGES_PER_DOCUMENT", 1)
    assert searcher.search_documents(["gout flare hurts the toe"], 2) == [["d0", "d3"]]


def test_another_embedder_is_refused(index, make_embedder):
    for other in (make_embedder("other"), make_embedder("fake", dimension=32)):
        with pytest.raises(KnowledgeBaseError, match="was built with 'fake'"):
            Searcher(index, other)
