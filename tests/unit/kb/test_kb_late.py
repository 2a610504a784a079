"""An embedder is loaded when it has to read, not to say what it is."""

import numpy as np
import pytest

from kb.cache import Cache
from kb.config import DEFAULT_EMBEDDER
from kb.embed import fingerprint
from kb.late import LateEmbedder


@pytest.fixture
def late(tmp_path, make_embedder):
    """Makes late embedders with one cache; their number of loads is what `loads` holds."""

    def make(files="abc", seed=0):
        loads = []

        def load():
            loads.append(seed)
            return make_embedder("name", seed=seed)

        return LateEmbedder("name", "float32", load, files, Cache(tmp_path / "kb.sqlite")), loads

    return make


def test_what_it_is_is_known_by_its_files(late, make_embedder):
    first, loads = late()
    assert (first.weights, first.dimension, first.max_tokens) == ("name 0", 64, 256)
    assert loads == [0]
    again, loads = late()
    assert (again.weights, again.dimension, again.max_tokens) == ("name 0", 64, 256)
    assert loads == []
    np.testing.assert_array_equal(again.encode(["gout"]), make_embedder().encode(["gout"]))
    assert again.count_tokens(["two words"]) == [4]
    assert loads == [0]
    other, loads = late("other files", seed=1)
    assert (other.weights, loads) == ("name 1", [1])


def test_without_files_it_is_loaded_to_know(late):
    for _ in range(2):
        embedder, loads = late(None)
        assert (embedder.weights, loads) == ("name 0", [0])


def test_the_share_of_unknown_tokens_is_kept(late):
    texts = ["gout", "痛风", "flu"]
    for expected in ([0], []):
        embedder, loads = late()
        assert embedder.unknown_share(texts) == pytest.approx(1 / 3)
        assert loads == expected
    assert embedder.unknown_share(texts[:1]) == 0


def test_files_are_told_apart_by_every_byte_and_name(tmp_path):
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    found = set()
    for name, content in (("config.json", "{}"), ("config.json", "{ }"), ("1_Pooling/config.json", "{}")):
        (folder / name).write_text(content)
        found.add(fingerprint(str(folder)))
    assert len(found) == 3
    assert fingerprint("some/id-of-a-hub") is None
    assert fingerprint(DEFAULT_EMBEDDER) == fingerprint(DEFAULT_EMBEDDER) is not None
