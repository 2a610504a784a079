import json

import faiss
import numpy as np
import pytest

import kb.index
from kb.errors import KnowledgeBaseError
from kb.index import KnowledgeIndex, build_index, choose_kind
from kb.manifest import IndexKind
from kb.passages import Passage

SOURCES = {"a.md": "0" * 64}


@pytest.fixture
def built(tmp_path, embedder, make_passages):
    passages = make_passages(["Gout hurts. " * 20, "Angina is chest pain.", "Asthma wheezes."])
    vectors = embedder.encode([passage.embedded_text for passage in passages])
    directory = tmp_path / "index"
    build_index(passages, vectors, directory, "fake", sources=SOURCES)
    return directory, passages, vectors


def test_round_trip(built):
    directory, passages, vectors = built
    index = KnowledgeIndex.load(directory)
    assert index.passages == tuple(passages)
    np.testing.assert_array_equal(index.vectors(), vectors)
    scores, rows = index.search(vectors, 1)
    np.testing.assert_allclose(scores[:, 0], 1, atol=1e-6)
    assert [passages[row].sha256 for row in rows[:, 0]] == [p.sha256 for p in passages]


def test_manifest_says_what_is_inside(built):
    directory, passages, _ = built
    manifest = json.loads((directory / "manifest.json").read_text())
    files = manifest.pop("files")
    assert sorted(files) == ["index.faiss", "passages.parquet"]
    assert manifest == {
        "schema_version": 1,
        "embedder": "fake",
        "dimension": 64,
        "index_kind": "flat",
        "n_documents": 3,
        "n_passages": len(passages),
        "sources": SOURCES,
        "licences": {"CC BY 4.0": 2, "CC0 1.0": 1},
    }


def test_the_same_input_gives_the_same_bytes(built, tmp_path):
    directory, passages, vectors = built
    build_index(passages, vectors, tmp_path / "again", "fake", sources=SOURCES)
    for file in directory.iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


@pytest.mark.parametrize("name", ["index.faiss", "passages.parquet"])
def test_a_flipped_byte_is_found_and_named(built, name):
    directory = built[0]
    content = bytearray((directory / name).read_bytes())
    content[len(content) // 2] ^= 1
    (directory / name).write_bytes(content)
    with pytest.raises(KnowledgeBaseError, match=f"{name} is corrupt.*dvc repro knowledge_base"):
        KnowledgeIndex.load(directory)


@pytest.mark.parametrize("name", ["index.faiss", "passages.parquet", "manifest.json"])
def test_a_missing_file_is_named(built, name):
    (built[0] / name).unlink()
    with pytest.raises(KnowledgeBaseError, match=f"{name} is missing.*dvc repro knowledge_base"):
        KnowledgeIndex.load(built[0])


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(KnowledgeBaseError, match=r"nowhere does not exist: .*dvc repro"):
        KnowledgeIndex.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema_version": 99}, "schema version 99"),
        ({"n_passages": "many"}, "not a manifest .n_passages"),
        ({"surprise": 1}, "not a manifest .surprise"),
        ({"n_passages": 77}, "inconsistent .*77"),
        ({"dimension": 5}, "inconsistent"),
        ({"files": {}}, "lists no index.faiss"),
    ],
)
def test_a_wrong_manifest_is_refused_in_one_line(built, change, words):
    path = built[0] / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(KnowledgeBaseError, match=words) as caught:
        KnowledgeIndex.load(built[0])
    assert "\n" not in str(caught.value)


def test_a_failed_build_leaves_the_old_index_and_no_litter(built, tmp_path, monkeypatch):
    directory, passages, vectors = built

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(faiss, "write_index", fail)
    with pytest.raises(OSError, match="disk full"):
        build_index(passages[:1], vectors[:1], directory, "fake", sources={})
    assert KnowledgeIndex.load(directory).manifest.n_passages == len(passages)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_a_build_replaces_an_index_but_nothing_else(built, tmp_path):
    directory, passages, vectors = built
    build_index(passages[:1], vectors[:1], directory, "fake", sources={})
    assert KnowledgeIndex.load(directory).manifest.n_passages == 1
    precious = tmp_path / "thesis"
    precious.mkdir()
    (precious / "chapter.txt").write_text("words")
    for place in (precious, precious / "chapter.txt"):
        with pytest.raises(KnowledgeBaseError, match=r"another folder|folder of its own"):
            build_index(passages, vectors, place, "fake", sources={})
    assert (precious / "chapter.txt").read_text() == "words"


def test_what_does_not_fit_together_is_refused(built, tmp_path):
    _, passages, vectors = built
    for some, their, words in (
        ([], vectors[:0], "no passages"),
        (passages[:1], vectors, "one float32 vector per passage"),
        (passages, vectors.astype(np.float64), "one float32 vector per passage"),
        (passages, vectors * 2, "unit length"),
        (passages, vectors * np.float32("nan"), "unit length"),
        (passages[:1] * 2, vectors[:2], "occurs twice"),
    ):
        with pytest.raises(KnowledgeBaseError, match=words):
            build_index(some, their, tmp_path / "x", "fake", sources={})


def test_search_refuses_wrong_questions(built):
    index = KnowledgeIndex.load(built[0])
    with pytest.raises(KnowledgeBaseError, match="1 or more"):
        index.search(built[2], 0)
    with pytest.raises(KnowledgeBaseError, match="dimension 64"):
        index.search(built[2][:, :5], 1)


def test_the_kind_follows_the_size():
    kinds = {1: "flat", 49_999: "flat", 50_000: "hnsw", 1_000_000: "hnsw", 1_000_001: "ivf_pq"}
    assert {n: choose_kind(n).value for n in kinds} == kinds


@pytest.mark.parametrize(
    ("kind", "files", "least_recall"),
    [
        (IndexKind.HNSW, {"index.faiss", "passages.parquet"}, 0.99),
        (IndexKind.IVF_PQ, {"index.faiss", "passages.parquet", "vectors.npy"}, 0.5),
    ],
)
def test_approximate_kinds_find_themselves_and_keep_their_vectors(tmp_path, monkeypatch, kind, files, least_recall):
    monkeypatch.setattr(kb.index, "choose_kind", lambda _: kind)
    monkeypatch.setattr(kb.index, "IVF_CELLS_PER_ROOT", 1)
    vectors = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    passages = [
        Passage(passage_id=f"d#{i}", doc_id="d", title="", section="", text="x", source="s", licence="l", sha256="h")
        for i in range(2000)
    ]
    manifest = build_index(passages, vectors, tmp_path / "index", "fake", sources={})
    assert (manifest.index_kind, set(manifest.files)) == (kind, files)
    index = KnowledgeIndex.load(tmp_path / "index")
    np.testing.assert_array_equal(index.vectors(), vectors)
    _, rows = index.search(vectors[:200], 10)
    assert np.mean([row in found for row, found in enumerate(rows)]) >= least_recall


def test_a_graph_does_not_depend_on_the_number_of_threads(tmp_path, monkeypatch):
    """Faiss before 1.15.1 linked in the order of the scheduler, and DVC saw a new index."""
    monkeypatch.setattr(kb.index, "choose_kind", lambda _: IndexKind.HNSW)
    vectors = np.random.default_rng(0).normal(size=(1000, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    passages = [
        Passage(passage_id=f"d#{i}", doc_id="d", title="", section="", text="x", source="s", licence="l", sha256="h")
        for i in range(1000)
    ]
    before, manifests = faiss.omp_get_max_threads(), []
    for threads in (1, 2, 4):
        faiss.omp_set_num_threads(threads)
        manifests.append(build_index(passages, vectors, tmp_path / "index", "fake", sources={}))
    faiss.omp_set_num_threads(before)
    assert manifests[0] == manifests[1] == manifests[2]
