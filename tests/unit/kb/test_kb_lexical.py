import subprocess
import sys
from math import log

import numpy as np
import pytest

from kb.config import Bm25Params
from kb.lexical import LexicalIndex, best_rows, words

TEXTS = ["Gout hurts, gout flares.", "Angina is chest pain.", "", "\u80f8\u75db\u53d1\u70ed"]
PARAMS = Bm25Params(k1=1.5, b=0.75)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("COVID-19: Stra\u00dfe, \ufb01ne", ["covid", "19", "strasse", "fine"]),
        ("Crohn's \u03b22", ["crohn", "s", "\u03b22"]),
        ("\u80f8\u75db\u4e09\u5929\u3002\u75db", ["\u80f8\u75db", "\u75db\u4e09", "\u4e09\u5929", "\u75db"]),
        ("\u53d1\u70ed39\u5ea6 fever", ["\u53d1\u70ed", "39", "\u5ea6", "fever"]),
        ("\u0939\u093f\u0928\u094d\u0926\u0940", ["\u0939\u093f\u0928\u094d\u0926\u0940"]),
        ("\uff21\uff22\uff23", ["abc"]),
        ("... \n", []),
    ],
)
def test_words_of_many_writings(text, found):
    assert words(text) == found


def test_scores_are_those_of_the_formula(tmp_path):
    LexicalIndex.build(TEXTS, PARAMS).save(tmp_path)
    index = LexicalIndex.load(tmp_path)
    lengths = [len(words(text)) for text in TEXTS]
    idf = log(1 + (4 - 1 + 0.5) / (1 + 0.5))
    expected = idf * 2 / (2 + 1.5 * (1 - 0.75 + 0.75 * lengths[0] / np.mean(lengths)))
    np.testing.assert_allclose(index.scores("gout"), [expected, 0, 0, 0], rtol=1e-5)
    assert np.argmax(index.scores("\u80f8\u75db\u4e09\u5929")) == 3
    assert not index.scores("unheard").any()
    assert not index.scores("").any()
    assert len(index) == 4


def test_texts_without_words_are_indexed_too():
    assert not LexicalIndex.build(["...", ""], PARAMS).scores("a").any()


def test_the_files_do_not_depend_on_the_order_of_hashes(tmp_path):
    code = (
        "import sys; from pathlib import Path; from kb.lexical import LexicalIndex; from kb.config import Bm25Params\n"
        f"LexicalIndex.build({TEXTS!r}, Bm25Params(k1=1.5, b=.75)).save(Path(sys.argv[1]))"
    )
    for seed in "12":
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / seed)], check=True, env={"PYTHONHASHSEED": seed, "PATH": ""}
        )
    for file in (tmp_path / "1" / "bm25").iterdir():
        assert file.read_bytes() == (tmp_path / "2" / "bm25" / file.name).read_bytes()


def test_the_best_come_first_and_equal_ones_in_order():
    scores = np.array([0, 2, 1, 2, 0, 3, 1], np.float32)
    assert best_rows(scores, 3).tolist() == [5, 1, 3]
    assert best_rows(scores, 2).tolist() == [5, 1]
    assert best_rows(scores, 100).tolist() == [5, 1, 3, 2, 6]
    assert best_rows(scores[:1], 5).tolist() == []
