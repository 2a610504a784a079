"""How near a text is as an answer: the cosine and the learned map, which is good for its own embedder alone."""

import numpy as np
import pytest

from clinic.understanding.answering import FILE, Answering, answering, plain, save


def embed(texts):
    rows = np.array([[len(text), text.count("e"), 1] for text in texts], dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def other(texts):
    return embed(texts)[:, ::-1]


def wider(texts):
    return np.pad(embed(texts), ((0, 0), (0, 1)))


LEARNED = Answering(np.array([[1.0], [0.0], [0.0]], np.float32), np.array([[0.0], [2.0], [0.0]], np.float32))


def test_what_the_map_learned_is_added_to_the_cosine():
    question, texts = np.array([0.6, 0.8, 0.0], np.float32), np.array([[1, 0, 0], [0, 1, 0]], np.float32)
    assert plain(3).nearness(question, texts).tolist() == pytest.approx([0.6, 0.8])
    assert LEARNED.nearness(question, texts).tolist() == pytest.approx([0.6, 0.8 + 2 * 0.6])


def test_the_map_is_good_for_the_embedder_that_it_was_learned_with(tmp_path, monkeypatch):
    monkeypatch.setattr("clinic.understanding.answering.FILE", tmp_path / "answering.npz")
    save(LEARNED, embed, tmp_path / "answering.npz")
    found = answering(embed)
    assert np.array_equal(found.asks_DK, LEARNED.asks_DK)
    assert np.array_equal(found.tells_DK, LEARNED.tells_DK)
    for stranger, dimensions in ((other, 3), (wider, 4)):
        assert answering(stranger).asks_DK.shape == answering(stranger).tells_DK.shape == (dimensions, 0)


def test_the_same_map_is_the_same_file(tmp_path):
    for name in ("one.npz", "two.npz"):
        save(LEARNED, embed, tmp_path / name)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_the_bundled_map_is_small():
    assert FILE.stat().st_size < 100_000
