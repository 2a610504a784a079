import numpy as np
import pytest

from kb.config import FusionParams
from kb.fusion import fuse

DENSE = np.array([0.9, 0.5, 0.1], np.float32)
LEXICAL = np.array([0.0, 8.0, 2.0], np.float32)


def params(method, weight=0.3):
    return FusionParams(method=method, lexical_weight=weight, candidates=10)


def test_known_numbers():
    np.testing.assert_allclose(fuse(DENSE, LEXICAL, params("weighted")), [0.7, 0.35 + 0.3, 0.3 * 0.25], rtol=1e-5)
    by_rank = [0.7 / 61 + 0.3 / 63, 0.7 / 62 + 0.3 / 61, 0.7 / 63 + 0.3 / 62]
    np.testing.assert_allclose(fuse(DENSE, LEXICAL, params("rrf")), by_rank, rtol=1e-5)
    np.testing.assert_array_equal(fuse(DENSE, LEXICAL, params("dense")), DENSE)
    np.testing.assert_array_equal(fuse(DENSE, LEXICAL, params("lexical")), LEXICAL)


@pytest.mark.parametrize("method", ["weighted", "rrf"])
def test_scale_and_shift_of_a_score_do_not_matter(method):
    once = fuse(DENSE, LEXICAL, params(method))
    np.testing.assert_allclose(fuse(DENSE * 3 - 1, LEXICAL * 7, params(method)), once, rtol=1e-5)


def test_where_one_side_sees_no_difference_the_other_decides():
    np.testing.assert_allclose(fuse(DENSE, LEXICAL * 0, params("weighted")), [0.7, 0.35, 0], atol=1e-6)
    assert fuse(DENSE[:0], LEXICAL[:0], params("weighted")).shape == (0,)


def test_passages_without_a_word_of_the_query_are_ranked_by_vectors_alone():
    dense = np.linspace(0, 1, 90, dtype=np.float32)
    assert np.all(np.diff(fuse(dense, dense * 0, params("rrf"))) > 0)
    assert fuse(DENSE[:0], LEXICAL[:0], params("rrf")).shape == (0,)
