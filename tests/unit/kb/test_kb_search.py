import numpy as np
import pytest

import kb.search
from kb.errors import KnowledgeBaseError
from kb.index import KnowledgeIndex, build_index
from kb.search import Searcher

LONG = " ".join(f"Gout flare number {word} hurts the toe." for word in "abcdefghijklmnop")
TEXTS = [LONG, "Angina is chest pain on effort.", "Asthma wheezes at night.", "Gout is crystals."]


@pytest.fixture
def index(tmp_path, embedder, make_passages, params):
    passages = make_passages(TEXTS)
    vectors = embedder.encode([passage.embedded_text for passage in passages])
    build_index(passages, vectors, tmp_path / "index", embedder, params, sources={})
    return KnowledgeIndex.load(tmp_path / "index")


@pytest.fixture
def searcher(index, embedder):
    return Searcher(index, embedder, fusion(index, "dense"))


def fusion(index, method, weight=0.3):
    return index.manifest.fusion.model_copy(update={"method": method, "lexical_weight": weight})


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


def test_bytes_of_a_command_line_that_are_no_text_are_no_word(index, embedder):
    found = [hit.passage.doc_id for hit in Searcher(index, embedder).search("caf\udce9 chest pain", 1)]
    assert found == ["d1"]


def test_more_than_there_is(searcher):
    n_passages = len(searcher.search("gout", 10_000))
    assert n_passages == len({hit.passage.passage_id for hit in searcher.search("gout", 10_000)})
    with pytest.raises(KnowledgeBaseError, match="1 or more"):
        searcher.search("gout", 0)


def test_equal_scores_keep_the_order_of_the_index(tmp_path, embedder, make_passages, params):
    passages = make_passages(["Same.", "Same.", "Same."])
    vectors = np.tile(embedder.encode(["Same."]), (3, 1))
    build_index(passages, vectors, tmp_path / "ties", embedder, params, sources={})
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
    for other in (make_embedder("other"), make_embedder("fake", dimension=32), None):
        with pytest.raises(KnowledgeBaseError, match="was built with 'fake'"):
            Searcher(index, other)
    with pytest.raises(KnowledgeBaseError, match="other weights of 'fake'"):
        Searcher(index, make_embedder("fake", seed=9))


def test_words_need_no_embedder(index, embedder):
    words = Searcher(index, None, fusion(index, "lexical"))
    embedder.seen.clear()
    assert [hit.passage.doc_id for hit in words.search("wheezes", 3)] == ["d2"]
    assert words.search("unheard", 3) == []
    assert embedder.seen == []


@pytest.mark.parametrize("method", ["weighted", "rrf"])
def test_with_all_weight_on_one_side_the_ranking_is_its_own(index, embedder, method):
    query = "gout crystals and flare number c"

    def ranking(name, weight):
        return [
            hit.passage.passage_id for hit in Searcher(index, embedder, fusion(index, name, weight)).search(query, 3)
        ]

    assert ranking(method, 0.0) == ranking("dense", 0.3)
    assert ranking(method, 1.0) == ranking("lexical", 0.3)


def test_the_index_says_how_it_is_searched(index, embedder):
    assert Searcher(index, embedder).fusion == index.manifest.fusion
    best = Searcher(index, embedder).search("gout crystals", 1)[0]
    assert best.passage.doc_id == "d3"
    assert best.score == pytest.approx(1)


@pytest.mark.parametrize("method", ["weighted", "rrf", "dense", "lexical"])
def test_filters_leave_as_many_hits_as_are_asked_for(index, embedder, method):
    query = "gout flare hurts, angina on effort, asthma at night"
    searcher = Searcher(index, embedder, fusion(index, method))
    hits = searcher.search(query, 3, {"licence": "CC BY 4.0"})
    assert {hit.passage.doc_id for hit in hits} == {"d1", "d2", "d3"}
    assert searcher.search(query, 3, {"source": "nobody"}) == []


def test_a_filtered_search_is_exact(index, embedder):
    """The best among the allowed, as if there were no others."""
    query, allowed = "gout flare number k", {"licence": "CC0 1.0"}
    searcher = Searcher(index, embedder, fusion(index, "dense"))
    everything = [hit for hit in searcher.search(query, 1000) if hit.passage.licence == "CC0 1.0"]
    assert searcher.search(query, 2, allowed) == everything[:2]
