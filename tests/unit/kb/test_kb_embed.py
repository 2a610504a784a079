"""The default embedder itself: bundled, offline, a few seconds on one core."""

import hashlib
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kb.config import DEFAULT_EMBEDDER
from kb.documents import Document, load_documents
from kb.embed import _hash_model, load_embedder, verify_weights
from kb.errors import KnowledgeBaseError
from kb.splitting import split_passages

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def default():
    """Loaded with the network out of reach."""
    with pytest.MonkeyPatch.context() as patch:

        def refuse(*_):
            raise AssertionError("the default embedder touched the network")

        patch.setattr(socket.socket, "connect", refuse)
        return load_embedder(DEFAULT_EMBEDDER, batch_size=8, device="cpu")


def test_vectors_are_unit_float32_and_mean_something(default):
    assert (default.name, default.dimension, default.max_tokens) == (DEFAULT_EMBEDDER, 384, 256)
    vectors = default.encode(["heart attack", "myocardial infarction", "ingrown toenail"])
    assert (vectors.shape, vectors.dtype) == ((3, 384), np.float32)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2


def test_nothing_in_nothing_out(default):
    assert default.encode([]).shape == (0, 384)
    assert default.count_tokens([]) == []


def test_a_vector_does_not_depend_on_its_batch(default):
    """Not in one bit: an index made in two goes is the one made at once. The lengths are those at which a text has
    nothing to pad, or something.
    """
    texts = [" ".join(["gout"] * count) for count in (1, 6, 6, 7, 14, 30, 254, 300)] + ["chest pain", "", "gout " * 20]
    together = default.encode(texts)
    for row, text in enumerate(texts):
        np.testing.assert_array_equal(default.encode([text])[0], together[row])
    np.testing.assert_array_equal(default.encode(texts[::-1]), together[::-1])


def test_counts_include_special_tokens_and_go_past_the_limit(default):
    assert default.count_tokens(["", "gout", "liver " * 300]) == [2, 4, 302]


def test_what_counts_as_fitting_is_all_read(default):
    """The 254th word still changes the vector, the 255th no longer does: 256 with both ends."""
    for words, is_read in ((253, True), (254, False)):
        liver, heart = ("liver " * words + last for last in ("liver", "heart"))
        assert (default.count_tokens([heart])[0] <= default.max_tokens) == is_read
        one, other = default.encode([liver, heart])
        assert bool(np.abs(one - other).max() > 1e-4) == is_read


def test_real_passages_fit(default):
    text = "Pseudohypoparathyroidism, a.k.a. 胸痛三天 e\u0301 \ufdfa [SEP] 3.5mg/dL of Ca2+! " * 30
    documents = [Document(doc_id="d", title="A long title " * 20, text=text + "x" * 3000, source="s", licence="l")]
    passages = split_passages(documents, default.count_tokens, 64, 16)
    assert len(passages) > 20
    assert max(default.count_tokens([passage.embedded_text for passage in passages])) <= 64


def test_bfloat16_is_close_and_has_the_same_weights(default):
    """The compute format is no part of the weights: an index may be searched in the other one."""
    fast = load_embedder(DEFAULT_EMBEDDER, 8, "bfloat16", device="cpu")
    texts = ["heart attack", "a rather longer text about the treatment of gout " * 5]
    vectors = fast.encode(texts)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert (np.sum(vectors * default.encode(texts), axis=1) >= 0.9999).all()
    assert not np.array_equal(vectors, default.encode(texts))
    assert (fast.compute, fast.weights) == ("bfloat16", default.weights)


def test_other_weights_have_another_hash(default):
    weights = next(default._model.parameters()).data
    before = weights[0, 0].clone()
    weights[0, 0] += 1
    changed = _hash_model(default._model)
    weights[0, 0] = before
    assert changed != default.weights == _hash_model(default._model)


def test_unknown_tokens_are_counted(default):
    assert default.unknown_share(["chest pain", "aortic stenosis"]) == 0
    assert default.unknown_share(["\u80f8\u75db\u4e09\u5929"]) > 0.3


def test_changed_weights_are_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(KnowledgeBaseError, match="found no file: reinstall"):
        verify_weights(path, "0" * 64)
    path.write_bytes(b"other weights")
    with pytest.raises(KnowledgeBaseError, match=r"expected sha256 000000000000.*reinstall"):
        verify_weights(path, "0" * 64)


@pytest.mark.parametrize("name", ["no-such-model", "/no-such-model", "./no-such-model", "tests/no-such-model"])
def test_an_unknown_path_names_itself_and_the_fix(name, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(ROOT)
    with pytest.raises(KnowledgeBaseError, match=r"no-such-model.*cannot be loaded") as caught:
        load_embedder(name, batch_size=8)
    assert "\n" not in str(caught.value)
    assert ("no such folder" in str(caught.value)) == ("/" in name)


def test_importing_the_package_is_light():
    """Only loading a model may pull in torch; a search client should not pay for it."""
    code = (
        "import sys, kb.config, kb.search, kb.building, kb.quality\n"
        "heavy = {'torch', 'sentence_transformers', 'transformers', 'prefect', 'mlflow', 'dvc'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_passages_of_the_bundled_articles_stay_as_they_are(default):
    """What the shipped doctor searches: another hash here is another index, and other figures."""
    root = Path(__file__).resolve().parents[3]
    for folder, expected in (
        ("data/starter/articles", "daf7be58bb8a8833"),
        ("data/starter/zh/articles", "a5e175d6829ce4d0"),
    ):
        documents, _ = load_documents([folder], root, None)
        passages = split_passages(documents, default.count_tokens, 256, 32)
        listed = "\n".join(f"{passage.passage_id} {passage.sha256}" for passage in passages)
        assert hashlib.sha256(listed.encode()).hexdigest()[:16] == expected
