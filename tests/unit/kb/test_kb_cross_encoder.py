"""Question and text read together: what is loaded, what is refused, and that nothing depends on what else is read."""

import numpy as np
import pytest

from kb.config import DEFAULT_EMBEDDER
from kb.cross_encoder import TOGETHER, CrossEncoder, load_cross_encoder
from kb.embed import load_embedder
from kb.errors import KnowledgeBaseError

QUESTION, TEXTS = "A cough ? Do you smoke?", ["Social History: Has never smoked", "History: Cough for a week"]
RANDOM = np.random.default_rng(0)


@pytest.fixture(scope="module")
def embedder():
    return load_embedder(DEFAULT_EMBEDDER, batch_size=8, device="cpu")


def weights(width=384, layer="encoder.layer.1.attention.self.query", scale=0.05):
    shapes = {
        f"{layer}.up": (width, 2),
        f"{layer}.down": (2, width),
        "head.0.weight": (64, 2 * width),
        "head.0.bias": (64,),
        "head.2.weight": (1, 64),
        "head.2.bias": (1,),
        "none": (),
    }
    return {name: np.asarray(RANDOM.normal(scale=scale, size=shape), np.float32) for name, shape in shapes.items()}


def test_logits_are_those_of_the_pair_whoever_is_read_beside_it(embedder):
    model = load_cross_encoder(embedder, weights())
    both = model.compare(QUESTION, TEXTS)
    assert both.dtype == np.float32
    assert both.shape == (2,)
    assert both.tolist() == model.compare(QUESTION, TEXTS).tolist()
    assert model.compare(QUESTION, TEXTS[1:]) == pytest.approx(both[1:], abs=1e-4)
    assert model.compare("Another?", TEXTS).tolist() != both.tolist()


def test_texts_of_many_lengths_keep_their_order(embedder):
    model = load_cross_encoder(embedder, weights())
    texts = ["Cough" + " and cold" * RANDOM.integers(30) for _ in range(2 * TOGETHER + 1)]
    one_by_one = [model.compare(QUESTION, [text])[0] for text in texts]
    assert len(set(one_by_one)) > TOGETHER / 2
    assert model.compare(QUESTION, texts) == pytest.approx(np.array(one_by_one), abs=1e-4)


def test_what_is_too_long_is_cut_on_either_side(embedder):
    model = load_cross_encoder(embedder, weights())
    long = "Do you have a cough and " * 100
    cut = model.compare(long, ["Cough for a week", "Fever " * 300])
    assert np.isfinite(cut).all()
    assert cut.tolist() == pytest.approx(model.compare(long + "?" * 50, ["Cough for a week", "Fever " * 400]), abs=1e-4)


def test_learned_weights_are_added_to_a_copy_of_the_transformer(embedder):
    before, given = embedder.encode(TEXTS), weights()
    plain, learned = CrossEncoder(embedder).eval(), load_cross_encoder(embedder, given)
    name = "encoder.layer.1.attention.self.query"
    added = learned.transformer.get_submodule(name).weight - plain.transformer.get_submodule(name).weight
    assert added.detach().numpy() == pytest.approx(given[f"{name}.up"] @ given[f"{name}.down"], abs=1e-5)
    assert learned.none.item() == pytest.approx(float(given["none"]))
    assert embedder.encode(TEXTS).tolist() == before.tolist()


@pytest.mark.parametrize(
    "other",
    [weights(layer="encoder.layer.40.attention.self.query"), weights(width=32), {"none": np.zeros((), np.float32)}],
)
def test_weights_of_another_transformer_are_refused(embedder, other):
    with pytest.raises(KnowledgeBaseError, match="those of another embedder"):
        load_cross_encoder(embedder, other)
