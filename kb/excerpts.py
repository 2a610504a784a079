"""What of the passages found is shown: the sentences that speak most of the query, as many as fit.

Words are compared by their beginnings, so that an inflection is the same word; a run of Chinese characters has no words,
its pairs of characters stand for them. A word weighs the more, the fewer of the sentences have it.
"""

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from kb.sentences import split_sentences

START = 5  # letters that two words must share
_BULLET = re.compile(r"\A[-*+•]\s*")
_RUN = re.compile(r"[\u3400-\u9fff]+|[^\W_\u3400-\u9fff]+")

Fits = Callable[[Sequence[str]], bool]
"""Whether these texts, of the first passages in their order, may be shown; "" is a passage without a sentence."""


def excerpts(texts: Sequence[str], query: str, fits: Fits) -> list[str]:
    """Choose what is shown of each passage.

    As many passages as fit without a sentence are shown, at least one. Then, as long as there is room, whole sentences:
    of each passage the one that shares most with the query, and of all those that share most; of a passage in which no
    word of the query stands, its first. Where no sentence fits whole, the best one is cut after a word.

    Args:
        texts: of the passages found, best first.
        query: what was looked for.
        fits: whether a choice has room.

    Returns:
        For each passage that is shown its sentences in their order, "" where there was no room for one.
    """
    shown = max((n for n in range(1, len(texts) + 1) if fits([""] * n)), default=min(len(texts), 1))
    sentences = [_sentences(text) for text in texts[:shown]]
    chosen: list[set[int]] = [set() for _ in sentences]

    def written() -> list[str]:
        return [_joined([own[j] for j in sorted(places)]) for own, places in zip(sentences, chosen, strict=True)]

    order = _order(sentences, query)
    for i, j in order:
        chosen[i].add(j)
        if not fits(written()):
            chosen[i].remove(j)
    if order and not any(chosen):
        i, j = order[0]
        sentences[i][j], chosen[i] = (
            _cut(sentences[i][j], lambda part: fits([part if k == i else "" for k in range(shown)])),
            {j},
        )
    return written()


def _sentences(text: str) -> list[str]:
    found = (" ".join(text[one.start : one.end].split()) for one in split_sentences(text, 0, len(text)))
    return [plain for sentence in found if (plain := _BULLET.sub("", sentence))]


def _order(sentences: Sequence[Sequence[str]], query: str) -> list[tuple[int, int]]:
    """Passage and place of the sentences that share something with the query: the best of each passage, the others, the
    largest share first, equal ones as they stand; then the first sentence of every other passage.
    """
    asked = _terms(query)
    found = [(i, j, asked & _terms(text)) for i, own in enumerate(sentences) for j, text in enumerate(own)]
    count = Counter(term for _, _, terms in found for term in terms)
    weight = {term: math.log1p(len(found) / n) for term, n in count.items()}
    shares = {(i, j): math.fsum(weight[term] for term in terms) for i, j, terms in found if terms}
    others = sorted(shares, key=lambda place: (-shares[place], place))
    best = {i: (i, j) for i, j in reversed(others)}
    silent = [(i, 0) for i, own in enumerate(sentences) if own and i not in best]
    return list(dict.fromkeys([*(best[i] for i in sorted(best)), *others, *silent]))


def _terms(text: str) -> frozenset[str]:
    terms: set[str] = set()
    for run in _RUN.findall(text.lower()):
        chinese = "\u3400" <= run[0] <= "\u9fff"
        terms |= {a + b for a, b in pairwise(run)} if chinese and len(run) > 1 else {run[:START]}
    return frozenset(terms)


def _joined(sentences: Sequence[str]) -> str:
    """Sentences one after the other, with a space where the first does not end in a mark of full width."""
    text = ""
    for sentence in sentences:
        text += ("" if not text or text[-1] in "。！？；" else " ") + sentence
    return text


def _cut(sentence: str, fits: Callable[[str], bool]) -> str:
    """As many of its words, in Chinese characters, as fit; "" if none does."""
    ends = [0] + [found.end() for found in re.finditer(r"[\u3400-\u9fff]|[^\s\u3400-\u9fff]+", sentence)]
    parts = [sentence[:end] + "…" if end else "" for end in ends]
    return parts[bisect_left(range(1, len(parts)), True, key=lambda words: not fits(parts[words]))]
