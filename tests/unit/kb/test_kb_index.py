import json
import subprocess
import sys
import textwrap
from pathlib import Path

import faiss
import numpy as np
import pytest

from kb import index as index_module
from kb.errors import KnowledgeBaseError
from kb.index import KnowledgeIndex, build_index

ROOT = Path(__file__).parents[3]
SOURCES = {"a.md": "0" * 64}


@pytest.fixture
def built(tmp_path, embedder, make_passages, params):
    passages = make_passages(["Gout hurts. " * 20, "Angina is chest pain.", "Asthma wheezes."])
    vectors = embedder.encode([passage.embedded_text for passage in passages])
    directory = tmp_path / "index"
    build_index(passages, vectors, directory, embedder, params, sources=SOURCES)
    return directory, passages, vectors


def test_round_trip(built):
    directory, passages, vectors = built
    index = KnowledgeIndex.load(directory)
    assert tuple(index.passages) == tuple(passages)
    np.testing.assert_array_equal(index.nearest.vectors(), vectors)
    scores, rows = index.nearest.search(vectors, 1)
    np.testing.assert_allclose(scores[:, 0], 1, atol=1e-6)
    assert [passages[row].sha256 for row in rows[:, 0]] == [p.sha256 for p in passages]
    assert (index.words.scores("angina") > 0).sum() == 1
    assert (index.passages[-1], index.passages[1:3]) == (passages[-1], tuple(passages[1:3]))
    with pytest.raises(IndexError):
        index.passages[len(passages)]


def test_manifest_says_what_is_inside(built, params):
    directory, passages, _ = built
    manifest = json.loads((directory / "manifest.json").read_text())
    files = manifest.pop("files")
    assert {
        "index.faiss",
        "passages.arrow",
        "bm25/passages/vocab.index.json",
        "bm25/document_of.npy",
    } <= set(files)
    assert set(files) == {p.relative_to(directory).as_posix() for p in directory.rglob("*") if p.is_file()} - {
        "manifest.json"
    }
    assert manifest == {
        "schema_version": 2,
        "embedder": "fake",
        "weights": "fake 0",
        "compute": "float32",
        "fusion": params.fusion.model_dump(),
        "bm25": params.bm25.model_dump(),
        "index": params.index.model_dump(),
        "dimension": 64,
        "index_kind": "flat",
        "recall_at_10": 1.0,
        "n_documents": 3,
        "n_passages": len(passages),
        "sources": SOURCES,
        "licences": {"CC BY 4.0": 2, "CC0 1.0": 1},
    }


def test_the_same_input_gives_the_same_bytes(built, tmp_path, embedder, params):
    directory, passages, vectors = built
    build_index(passages, vectors, tmp_path / "again", embedder, params, sources=SOURCES)
    for file in filter(Path.is_file, directory.rglob("*")):
        assert file.read_bytes() == (tmp_path / "again" / file.relative_to(directory)).read_bytes()


def test_without_vectors_it_is_found_by_words(tmp_path, embedder, make_passages, params):
    passages = make_passages(["Gout hurts.", "Angina is chest pain."])
    manifest = build_index(passages, None, tmp_path / "index", embedder, params, sources={})
    assert (manifest.index_kind, manifest.dimension, manifest.recall_at_10) == (None, 0, None)
    index = KnowledgeIndex.load(tmp_path / "index")
    assert index.nearest is None
    assert np.argmax(index.words.scores("chest")) == 1


@pytest.mark.parametrize("name", ["index.faiss", "passages.arrow", "bm25/passages/data.csc.index.npy"])
def test_a_flipped_byte_is_found_and_named(built, name):
    directory = built[0]
    content = bytearray((directory / name).read_bytes())
    content[len(content) // 2] ^= 1
    (directory / name).write_bytes(content)
    with pytest.raises(KnowledgeBaseError, match=f"{name} is corrupt.*dvc repro knowledge_base"):
        KnowledgeIndex.load(directory)


@pytest.mark.parametrize("name", ["index.faiss", "passages.arrow", "bm25/passages/vocab.index.json", "manifest.json"])
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
        ({"files": {}}, "lists no passages.arrow"),
        ({"index_kind": None}, "inconsistent"),
    ],
)
def test_a_wrong_manifest_is_refused_in_one_line(built, change, words):
    path = built[0] / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(KnowledgeBaseError, match=words) as caught:
        KnowledgeIndex.load(built[0])
    assert "\n" not in str(caught.value)


def test_a_failed_build_leaves_the_old_index_and_no_litter(built, tmp_path, monkeypatch, embedder, params):
    directory, passages, vectors = built

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(faiss, "write_index", fail)
    with pytest.raises(OSError, match="disk full"):
        build_index(passages[:1], vectors[:1], directory, embedder, params, sources={})
    assert KnowledgeIndex.load(directory).manifest.n_passages == len(passages)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_a_build_replaces_an_index_but_nothing_else(built, tmp_path, embedder, params):
    directory, passages, vectors = built
    build_index(passages[:1], vectors[:1], directory, embedder, params, sources={})
    assert KnowledgeIndex.load(directory).manifest.n_passages == 1
    precious = tmp_path / "thesis"
    precious.mkdir()
    (precious / "chapter.txt").write_text("words")
    for place in (precious, precious / "chapter.txt"):
        with pytest.raises(KnowledgeBaseError, match=r"another folder|folder of its own"):
            build_index(passages, vectors, place, embedder, params, sources={})
    (precious / "manifest.json").write_text('{"name": "a web page"}')  # many folders have one
    (directory / "queries.jsonl").write_text("{}")
    (directory / ".DS_Store").touch()
    for place, stranger in ((precious, r"(chapter\.txt|manifest\.json)"), (directory, r"queries\.jsonl")):
        with pytest.raises(KnowledgeBaseError, match=f"holds {stranger}, which is no part of an index: move it away"):
            build_index(passages, vectors, place, embedder, params, sources={})
    assert (precious / "chapter.txt").read_text() == "words"
    (directory / "queries.jsonl").unlink()
    build_index(passages, vectors, directory, embedder, params, sources={})


def test_what_a_killed_build_left_is_taken_up_by_the_next(built, tmp_path, embedder, params):
    directory, passages, vectors = built
    killed = """
        import os, sys
        from pathlib import Path
        from kb import index
        index.Path.replace = lambda one, other, before=Path.replace: (before(one, other), {then})
        with index._replacing(Path(sys.argv[1])) as partial:
            (partial / "half").write_text("half")
            {at_work}
    """
    dead = {"then": "None", "at_work": "os.kill(os.getpid(), 9)"}
    between = {"then": "os.kill(os.getpid(), 9)", "at_work": "pass"}
    for left in (dead, between):
        code = textwrap.dedent(killed.format(**left))
        assert subprocess.run([sys.executable, "-c", code, str(directory)], check=False, cwd=ROOT).returncode == -9
        assert len(list(tmp_path.iterdir())) == (2 if left is dead else 1)
        if left is dead:
            build_index(passages, vectors, directory, embedder, params, sources={})
            assert [path.name for path in tmp_path.iterdir()] == ["index"]
    with pytest.raises(KnowledgeBaseError, match="no passages"):
        build_index([], vectors[:0], directory, embedder, params, sources={})
    with pytest.raises(RuntimeError), index_module._replacing(directory):
        raise RuntimeError
    assert KnowledgeIndex.load(directory).manifest.n_passages == len(passages)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_a_build_leaves_one_beside_it_alone(built):
    directory = built[0]
    with index_module._replacing(directory) as one:
        (one / "mine").touch()
        with index_module._replacing(directory) as other:
            assert other != one
        assert (one / "mine").exists()


def test_what_does_not_fit_together_is_refused(built, tmp_path, embedder, params):
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
            build_index(some, their, tmp_path / "x", embedder, params, sources={})


def test_filters_are_of_known_fields(built):
    index = KnowledgeIndex.load(built[0])
    free = [row for row, passage in enumerate(index.passages) if passage.licence == "CC0 1.0"]
    assert index.allowed({"licence": "CC0 1.0"}).tolist() == free
    assert index.allowed({"licence": ["CC0 1.0", "CC BY 4.0"], "source": "book"}).tolist() == list(range(len(built[1])))
    assert index.allowed({"licence": "none such"}).tolist() == []
    with pytest.raises(KnowledgeBaseError, match="'colour': passages are filtered by source, licence, language"):
        index.allowed({"colour": "red"})


def test_a_poor_approximate_index_says_so(tmp_path, make_passages, make_embedder, params, caplog, monkeypatch):
    embedder = make_embedder(dimension=16)
    passages = make_passages([f"word{number}" for number in range(600)])
    vectors = np.random.default_rng(0).normal(size=(600, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    poor = params.model_copy(update={"index": params.index.model_copy(update={"kind": "ivf_pq", "probes": 1})})
    manifest = build_index(passages, vectors, tmp_path / "index", embedder, poor, sources={})
    assert manifest.recall_at_10 < 0.95
    assert f"finds {manifest.recall_at_10:.3f} of the 10 nearest" in caplog.text
    assert "raise index.probes and index.rerank, or choose another index.kind" in caplog.text
    caplog.clear()
    monkeypatch.setattr("kb.index.RECALL_WANTED", 1.1)
    graph = params.model_copy(update={"index": params.index.model_copy(update={"kind": "hnsw"})})
    build_index(passages, vectors, tmp_path / "graph", embedder, graph, sources={})
    assert "less than 1.10: choose another index.kind" in caplog.text  # a graph has no probes
