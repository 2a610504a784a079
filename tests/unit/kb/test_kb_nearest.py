import faiss
import numpy as np
import pytest

from kb.config import VectorIndexParams
from kb.errors import KnowledgeBaseError
from kb.manifest import IndexKind
from kb.nearest import VectorIndex, choose_kind

N, D = 2000, 16


def params(kind, **others):
    return VectorIndexParams(
        **{"kind": kind, "hnsw_from": 50_000, "ivf_pq_from": 1_000_001, "probes": 64, "rerank": 100} | others
    )


@pytest.fixture(scope="module")
def vectors():
    vectors = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def folders(vectors, tmp_path_factory):
    """An index of every kind; how wide it searches is said when it is loaded."""
    made = {}
    for kind in IndexKind:
        made[kind] = tmp_path_factory.mktemp(kind)
        VectorIndex.build(vectors, params(kind)).save(made[kind])
    return made


def opened(folders, kind, **others):
    return VectorIndex.load(folders[kind], IndexKind(kind), params(kind, **others))


def test_the_kind_follows_the_size_unless_it_is_named():
    kinds = {1: "flat", 49_999: "flat", 50_000: "hnsw", 1_000_000: "hnsw", 1_000_001: "ivf_pq"}
    assert {n: choose_kind(n, params("auto")).value for n in kinds} == kinds
    assert choose_kind(10, params("auto", hnsw_from=10)) is IndexKind.HNSW
    assert choose_kind(10**7, params("flat")) is IndexKind.FLAT


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("flat", {"index.faiss"}),
        ("hnsw", {"index.faiss"}),
        ("ivf_pq", {"index.faiss", "vectors.npy"}),
    ],
)
def test_every_kind_finds_what_is_near_and_keeps_its_vectors(folders, vectors, kind, files):
    index = opened(folders, kind)
    assert {path.name for path in folders[kind].iterdir()} == files
    assert (len(index), index.dimension, index.kind) == (N, D, kind)
    np.testing.assert_array_equal(index.vectors(), vectors)
    np.testing.assert_array_equal(index.vectors(np.array([5, 1900])), vectors[[5, 1900]])
    exact = np.argsort(-(vectors[:100] @ vectors.T), axis=1)[:, :10]
    scores, rows = index.search(vectors[:100], 10)
    assert np.mean([len(set(a) & set(b)) / 10 for a, b in zip(exact, rows, strict=True)]) >= 0.95
    np.testing.assert_allclose(scores, np.take_along_axis(vectors[:100] @ vectors.T, rows, 1), atol=1e-5)
    assert index.recall(None) >= 0.95


def test_ranking_again_with_whole_vectors_is_what_makes_cells_good(folders, vectors):
    """As many are fetched either way, so that without the second look ten of ten come back as the compression has them."""
    again, once = (opened(folders, "ivf_pq", rerank=fetched, probes=200).recall(vectors[:300]) for fetched in (200, 10))
    assert again > 0.95 > once + 0.05


def test_recall_is_that_of_the_queries_given(folders, vectors):
    index = opened(folders, "ivf_pq", probes=1)
    exact = np.argsort(-(vectors[7:8] @ vectors.T), axis=1)[0, :10]
    found = index.search(vectors[7:8], 10)[1][0]
    assert index.recall(vectors[7:8]) == len(set(exact) & set(found)) / 10
    assert index.recall(None) < 0.9


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf_pq"])
def test_of_what_is_allowed_the_nearest_are_found(folders, vectors, monkeypatch, kind):
    monkeypatch.setattr("kb.nearest._BLOCK", 300)
    index = opened(folders, kind)
    far = np.argsort(vectors @ vectors[0])[:700]  # a region that a walk from the first vector does not come to
    for allowed in (np.arange(3, N, 5), np.sort(far)):
        scores, rows = index.search(vectors[:50], 200, allowed)
        exact = allowed[np.argsort(-(vectors[:50] @ vectors[allowed].T), axis=1, kind="stable")[:, :200]]
        np.testing.assert_allclose(scores, np.take_along_axis(vectors[:50] @ vectors.T, exact, 1), atol=1e-5)
        assert np.mean(rows == exact) > 0.99  # all but what the last bits order
    assert index.search(vectors[:2], 10, allowed[:3])[1].shape == (2, 3)
    assert index.search(vectors[:2], 10, allowed[:0])[1].shape == (2, 0)


def test_cells_need_many_vectors_of_a_fitting_length(vectors):
    with pytest.raises(KnowledgeBaseError, match="256 passages or more, not 100"):
        VectorIndex.build(vectors[:100], params("ivf_pq"))
    with pytest.raises(KnowledgeBaseError, match="divisible by 8, not 15"):
        VectorIndex.build(np.ascontiguousarray(vectors[:, :15]), params("ivf_pq"))


def test_a_graph_does_not_depend_on_the_number_of_threads(tmp_path, vectors):
    """Faiss before 1.15.1 linked in the order of the scheduler, and DVC saw a new index."""
    before, graphs = faiss.omp_get_max_threads(), set()
    for threads in (1, 2, 4):
        faiss.omp_set_num_threads(threads)
        VectorIndex.build(vectors[:1000], params("hnsw")).save(tmp_path)
        graphs.add((tmp_path / "index.faiss").read_bytes())
    faiss.omp_set_num_threads(before)
    assert len(graphs) == 1
