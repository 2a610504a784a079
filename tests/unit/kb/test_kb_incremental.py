from dataclasses import replace

import numpy as np
import pytest

from kb.cache import Cache
from kb.documents import Document
from kb.incremental import embed_passages, split_documents
from kb.index import build_index

OLD = ["Gout hurts.", "Angina is chest pain.", "Asthma wheezes."]
NEW = ["Gout hurts a lot.", "Angina is chest pain.", "Asthma wheezes.", "Flu is a fever."]


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "kb.sqlite")


def documents(texts, licence="CC0 1.0"):
    return [Document(doc_id=f"d{i}", title="", text=text, source="s", licence=licence) for i, text in enumerate(texts)]


def test_only_what_changed_is_embedded_again(cache, embedder, make_embedder, make_passages):
    assert embed_passages(make_passages(OLD), embedder, cache).embedded == 3
    embedder.seen.clear()
    passages = make_passages(NEW)
    result = embed_passages(passages, embedder, cache)
    assert result.embedded == 2
    assert sorted(embedder.seen) == sorted([passages[0].embedded_text, passages[3].embedded_text])
    whole = make_embedder().encode([passage.embedded_text for passage in passages])
    np.testing.assert_array_equal(result.vectors, whole)
    assert embed_passages(passages, embedder, cache).embedded == 0


def test_vectors_come_back_bit_for_bit(cache, embedder, make_passages):
    passages = make_passages(OLD)
    first = embed_passages(passages, embedder, cache).vectors
    assert embed_passages(passages, embedder, cache).vectors.tobytes() == first.tobytes()


def test_equal_texts_are_embedded_once(embedder, make_passages):
    same = [replace(passage, sha256="h", title="") for passage in make_passages(["Same.", "Same."])]
    result = embed_passages(same, embedder, None)
    assert (result.embedded, len(embedder.seen)) == (1, 1)
    np.testing.assert_array_equal(result.vectors[0], result.vectors[1])


@pytest.mark.parametrize("other", [{"seed": 9}, {"name": "other"}, {"compute": "bfloat16"}])
def test_another_embedder_is_another_maker(cache, make_embedder, make_passages, other):
    passages = make_passages(OLD)
    embed_passages(passages, make_embedder(), cache)
    changed = make_embedder(**{name: value for name, value in other.items() if name != "compute"})
    changed.compute = other.get("compute", "float32")
    assert embed_passages(passages, changed, cache).embedded == 3
    assert embed_passages(passages, make_embedder(), cache).embedded == 0


def test_progress_is_told_part_by_part(cache, embedder, make_passages):
    told = []
    embed_passages(make_passages(NEW), embedder, cache, lambda *args: told.append(args), kept_every=3)
    assert told == [(3, 4), (4, 4)]


def test_only_changed_documents_are_split_again(cache, embedder):
    first = split_documents(documents(OLD), embedder, 32, 4, cache, list)
    assert first == split_documents(documents(OLD), embedder, 32, 4, None, list)

    def counted(texts, **kwargs):
        asked = []
        embedder.count_tokens = lambda some: asked.extend(some) or [len(text.split()) + 2 for text in some]
        return split_documents(documents(texts, **kwargs), embedder, 32, 4, cache, list), "\n".join(asked)

    passages, asked = counted(OLD)
    assert (passages, asked) == (first, "")
    passages, asked = counted(NEW)
    assert [passage.text for passage in passages] == NEW
    assert "Gout" in asked
    assert "Angina" not in asked
    passages, asked = counted(OLD, licence="other")
    assert {passage.licence for passage in passages} == {"other"}
    assert "Angina" in asked


def test_other_limits_are_other_passages(cache, embedder):
    text = ["One two three. Four five six. Seven eight nine. Ten eleven twelve. Thirteen fourteen fifteen."]
    assert len(split_documents(documents(text), embedder, 32, 4, cache, list)) == 1
    assert len(split_documents(documents(text), embedder, 16, 4, cache, list)) > 1


def test_an_index_does_not_depend_on_the_cache(tmp_path, cache, embedder, make_passages, params):
    embed_passages(make_passages(OLD), embedder, cache)
    passages = make_passages(NEW)
    manifests = [
        build_index(passages, vectors, tmp_path / name, embedder, params, sources={})
        for name, vectors in (
            ("cached", embed_passages(passages, embedder, cache).vectors),
            ("fresh", embed_passages(passages, embedder, None).vectors),
        )
    ]
    assert manifests[0] == manifests[1]
