"""Words of many texts -> numbers, by pyarrow: a text at a time in Python takes three times as long.

Shape suffixes: T texts, W words of all texts.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Numbers = NDArray[np.int32]

AT_ONCE = 4096  # texts


def numbered(texts: Iterable[str], numbers_of: Callable[[list[str]], Iterable[int]]) -> tuple[Numbers, Numbers]:
    """Number the words of texts.

    Args:
        texts: T of them, their words parted by white space of ASCII.
        numbers_of: numbers of different words, in the order in which they first come; a word may be asked for again.

    Returns:
        The numbers of all words in their order, shape (W,), and how many each text has, shape (T,).
    """
    found_W, counts_T = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    for part in _parts(texts):
        words = pc.ascii_split_whitespace(pa.array(part, pa.large_string()))
        coded = words.flatten().dictionary_encode()
        different = coded.dictionary.to_pylist()
        number = np.full(len(different), -1, np.int32)  # of the nothing before the first word and after the last
        number[[place for place, word in enumerate(different) if word]] = list(
            numbers_of(list(filter(None, different)))
        )
        numbers = number[coded.indices.to_numpy()]
        text_of = np.repeat(np.arange(len(part)), words.value_lengths().to_numpy())
        is_word = numbers >= 0
        found_W.append(numbers[is_word])
        counts_T.append(np.bincount(text_of[is_word], minlength=len(part)).astype(np.int32))
    return np.concatenate(found_W), np.concatenate(counts_T)


def _parts(texts: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(texts)
    while part := list(islice(rest, AT_ONCE)):
        yield part
