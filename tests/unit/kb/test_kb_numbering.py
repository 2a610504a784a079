import random

import numpy as np
import pytest

from kb import numbering
from kb.numbering import numbered


@pytest.mark.parametrize("at_once", [1, 3, 4096])
def test_words_are_numbered_as_they_come_in_parts_of_any_size(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(numbering, "AT_ONCE", at_once)
    draw = random.Random(0)
    texts = [
        draw.choice(["", " ", "  "]) + "".join(draw.choice("ab痛é") + draw.choice(["", " ", "\n\t"]) for _ in range(n))
        for n in [0, *range(40), 0]
    ]
    number_of: dict[str, int] = {}
    expected = [[number_of.setdefault(word, len(number_of)) for word in text.split()] for text in texts]

    asked: dict[str, int] = {}
    found_W, counts_T = numbered(texts, lambda words: [asked.setdefault(word, len(asked)) for word in words])

    assert counts_T.tolist() == [len(words) for words in expected]
    assert found_W.tolist() == [number for words in expected for number in words]
    assert (found_W.dtype, counts_T.dtype, list(asked)) == (np.int32, np.int32, list(number_of))


def test_no_text_has_no_words() -> None:
    found_W, counts_T = numbered([], lambda words: [])
    assert (len(found_W), len(counts_T)) == (0, 0)
