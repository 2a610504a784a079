"""A library without a model, for attackers and for honest doctors beside them: what anybody knows of a set of cases, found
by the words that it shares with a query, and a passage that somebody planted.

It gives the same on any machine, and finds what stands in it as well as can be.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from clinic.attacks.base import Trade, Words
from clinic.generative import GenerativeClinic
from clinic.matching import content_words
from kb.passages import Passage
from kb.search import Hit


class LiteralSearcher:
    """Ranks passages by the words that they share with a query, rare ones above all."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        """Args: the passages, in the order of equals."""
        self._passages = passages
        self._words = [content_words(f"{one.title} {one.text}") for one in passages]
        count = Counter(word for words in self._words for word in words)
        self._weight = {word: math.log1p(len(passages) / n) for word, n in count.items()}

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """The `k` best passages for each query; none that shares no word with it."""
        return [self._search(content_words(query), k) for query in queries]

    def _search(self, asked: frozenset[str], k: int) -> list[Hit]:
        hits = [
            Hit(passage, self._sum(asked & words) / math.sqrt(self._sum(words)))
            for passage, words in zip(self._passages, self._words, strict=True)
            if asked & words
        ]
        return sorted(hits, key=lambda hit: -hit.score)[:k]

    def _sum(self, words: frozenset[str]) -> float:
        return math.fsum(self._weight[word] for word in words)


def literal_searcher(trade: Trade, clinic: GenerativeClinic | None, words: Words) -> LiteralSearcher:
    """What is known of a clinic's conditions, each with its findings, the likeliest first; of records the names alone.
    Beside it the planted passage, which wants to hear the commonest name.
    """
    known = (
        [(condition.name, _findings(clinic, condition.findings)) for condition in clinic.conditions]
        if clinic is not None
        else [(name, name) for name in trade.names]
    )
    planted = _passage(words.planted_id, words.planted_title, words.planted.format(*[trade.names[0]] * 3))
    return LiteralSearcher([*(_passage(name, name, text) for name, text in known), planted])


def _findings(clinic: GenerativeClinic, probability: Mapping[str, float]) -> str:
    likeliest = sorted(probability, key=lambda name: -probability[name])
    findings = [clinic.findings[clinic.finding_index[name]] for name in likeliest]
    return "\n\n".join(f"{one.name}: {one.patient.train[0]}{clinic.words.stop}" for one in findings)


def _passage(doc_id: str, title: str, text: str) -> Passage:
    return Passage(
        passage_id=f"{doc_id}#0",
        doc_id=doc_id,
        title=title,
        section="",
        text=text,
        source="literal library",
        licence="CC0-1.0",
        sha256="",
    )
