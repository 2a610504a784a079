import logging

import numpy as np
import pytest

from kb.incremental import embed_passages
from kb.index import KnowledgeIndex, build_index

OLD = ["Gout hurts.", "Angina is chest pain.", "Asthma wheezes."]
NEW = ["Gout hurts a lot.", "Angina is chest pain.", "Asthma wheezes.", "Flu is a fever."]


@pytest.fixture
def previous(tmp_path, embedder, make_passages):
    passages = make_passages(OLD)
    embedded = embed_passages(passages, embedder, None)
    assert (embedded.embedded, embedded.reused) == (3, 0)
    build_index(passages, embedded.vectors, tmp_path / "index", "fake", sources={})
    embedder.seen.clear()
    return tmp_path / "index"


def test_only_what_changed_is_embedded_again(previous, embedder, make_embedder, make_passages):
    passages = make_passages(NEW)
    result = embed_passages(passages, embedder, previous)
    assert (result.embedded, result.reused) == (2, 2)
    check, *fresh = embedder.seen
    assert check == passages[1].embedded_text
    assert fresh == [passages[0].embedded_text, passages[3].embedded_text]
    whole = make_embedder().encode([passage.embedded_text for passage in passages])
    np.testing.assert_array_equal(result.vectors, whole)


def test_rebuilding_in_place(previous, embedder, make_passages):
    passages = make_passages(NEW)
    result = embed_passages(passages, embedder, previous)
    build_index(passages, result.vectors, previous, "fake", sources={})
    assert KnowledgeIndex.load(previous).passages == tuple(passages)
    again = embed_passages(passages, embedder, previous)
    assert (again.embedded, again.reused) == (0, 4)


def test_another_title_is_another_text_but_another_licence_is_not(previous, embedder, make_passages):
    first, second, third = make_passages(OLD)
    moved = make_passages([OLD[1], OLD[0], OLD[2]])
    assert embed_passages(moved, embedder, previous).reused == 1
    assert (first.licence, second.licence, third.licence) == ("CC0 1.0", "CC BY 4.0", "CC BY 4.0")


def test_another_embedder_reuses_nothing(previous, make_embedder, make_passages):
    passages = make_passages(OLD)
    for other in (make_embedder("other"), make_embedder("fake", dimension=32)):
        result = embed_passages(passages, other, previous)
        assert (result.embedded, result.reused) == (3, 0)
        assert result.vectors.shape == (3, other.dimension)


def test_new_weights_under_the_old_name_are_noticed(previous, make_embedder, make_passages, caplog):
    changed = make_embedder("fake", seed=9)
    with caplog.at_level(logging.WARNING):
        result = embed_passages(make_passages(OLD), changed, previous)
    assert (result.embedded, result.reused) == (3, 0)
    assert "no longer makes the vectors" in caplog.text


def test_a_corrupt_or_absent_previous_index_costs_time_only(previous, embedder, make_passages, caplog):
    passages = make_passages(OLD)
    (previous / "index.faiss").write_bytes(b"junk")
    with caplog.at_level(logging.WARNING):
        assert embed_passages(passages, embedder, previous).embedded == 3
    assert "index.faiss is corrupt" in caplog.text
    assert embed_passages(passages, embedder, previous / "nowhere").embedded == 3
