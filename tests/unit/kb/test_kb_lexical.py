import subprocess
import sys
from dataclasses import replace
from math import log

import numpy as np
import pytest

from kb.config import Bm25Params
from kb.errors import KnowledgeBaseError
from kb.lexical import LexicalIndex, best_rows, words
from kb.passages import Passage

TEXTS = ["Gout hurts, gout flares.", "Angina is chest pain.", "", "\u80f8\u75db\u53d1\u70ed"]
PARAMS = Bm25Params(k1=1.5, b=0.75, stemmer=None, title_weight=1, document_weight=0.0)


def passages(texts, title="", doc_id=None):
    return [
        Passage(
            passage_id=f"d{i}#0",
            doc_id=doc_id or f"d{i}",
            title=title,
            section="",
            text=text,
            source="s",
            licence="l",
            sha256="",
        )
        for i, text in enumerate(texts)
    ]


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
    LexicalIndex.build(passages(TEXTS), PARAMS).save(tmp_path)
    index = LexicalIndex.load(tmp_path, PARAMS)
    lengths = [len(words(text)) for text in TEXTS]
    idf = log(1 + (4 - 1 + 0.5) / (1 + 0.5))
    expected = idf * 2 / (2 + 1.5 * (1 - 0.75 + 0.75 * lengths[0] / np.mean(lengths)))
    np.testing.assert_allclose(index.scores("gout"), [expected, 0, 0, 0], rtol=1e-5)
    assert np.argmax(index.scores("\u80f8\u75db\u4e09\u5929")) == 3
    assert not index.scores("unheard").any()
    assert not index.scores("").any()
    assert len(index) == 4


def test_texts_without_words_are_indexed_too():
    assert not LexicalIndex.build(passages(["...", ""]), PARAMS).scores("a").any()


def test_the_files_do_not_depend_on_the_order_of_hashes(tmp_path):
    code = (
        "import sys; from pathlib import Path; from kb.lexical import LexicalIndex\n"
        "from kb.config import Bm25Params; from kb.passages import Passage\n"
        f"LexicalIndex.build({passages(TEXTS)!r}, Bm25Params(**{PARAMS.model_dump()!r})).save(Path(sys.argv[1]))"
    )
    for seed in "12":
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / seed)], check=True, env={"PYTHONHASHSEED": seed, "PATH": ""}
        )
    files = [file for file in (tmp_path / "1").rglob("*") if file.is_file()]
    assert len(files) == 6
    for file in files:
        assert file.read_bytes() == (tmp_path / "2" / file.relative_to(tmp_path / "1")).read_bytes()


def test_the_best_come_first_and_equal_ones_in_order():
    scores = np.array([0, 2, 1, 2, 0, 3, 1], np.float32)
    assert best_rows(scores, 3).tolist() == [5, 1, 3]
    assert best_rows(scores, 2).tolist() == [5, 1]
    assert best_rows(scores, 100).tolist() == [5, 1, 3, 2, 6]
    assert best_rows(scores[:1], 5).tolist() == []


def test_a_title_counts_as_often_as_it_is_told():
    other, titled = passages(["gout hurts gout"]), passages(["it hurts now"], title="gout")
    for weight, best in ((1, 0), (6, 1)):
        params = PARAMS.model_copy(update={"title_weight": weight})
        both = [*other, replace(titled[0], passage_id="t#0", doc_id="t")]
        scores = LexicalIndex.build(both, params).scores("gout")
        assert np.argmax(scores) == best


def test_a_passage_is_found_by_what_stands_elsewhere_in_its_document():
    pages = [*passages(["wheeze at night", "cough for weeks"], doc_id="asthma"), *passages(["cough with sputum"])]
    pages = [replace(page, passage_id=f"{row}") for row, page in enumerate(pages)]
    alone = LexicalIndex.build(pages, PARAMS).scores("wheeze")
    assert (alone[0] > 0, alone[1], alone[2]) == (True, 0, 0)
    joined = LexicalIndex.build(pages, PARAMS.model_copy(update={"document_weight": 1.0})).scores("wheeze")
    assert joined[0] > joined[1] > joined[2] == 0


def test_forms_of_a_word_find_each_other_if_a_stemmer_is_named():
    pages = passages(["vomiting at night", "胸痛"])
    assert not LexicalIndex.build(pages, PARAMS).scores("he vomited").any()
    english = LexicalIndex.build(pages, PARAMS.model_copy(update={"stemmer": "english"}))
    assert np.argmax(english.scores("he vomited")) == 0
    assert np.argmax(english.scores("胸痛")) == 1
    with pytest.raises(KnowledgeBaseError, match=r"bm25.stemmer is 'klingon': choose null or one of .*english"):
        LexicalIndex.build(pages, PARAMS.model_copy(update={"stemmer": "klingon"}))


def test_a_word_asked_twice_counts_once():
    index = LexicalIndex.build(passages(TEXTS), PARAMS)
    np.testing.assert_array_equal(index.scores("pain pain pain gout"), index.scores("pain gout"))
