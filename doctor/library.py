"""The knowledge base in consultations: searches of one moment are looked up together, off the event loop, once each.

What a search finds depends on its words alone. Embedded together with others, a query has other last bits than alone;
where these could change an order or a rounded score it is looked up once more, alone.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Protocol

from clinic.events import FoundPassage
from clinic.library import Fits, harmless, harmless_id
from kb.excerpts import excerpts
from kb.search import Hit
from rl.engines.worker_thread import Lane
from rl.environment import Count
from rl.errands import errand

KEPT = 4096  # queries whose passages are remembered
DIGITS = 3  # of a score as it is recorded
DOUBT = 1e-5  # difference of two scores, or of a score and where it is rounded up, that a batch could turn

Found = Sequence[FoundPassage]


class Searches(Protocol):
    """What is asked of whoever searches: `kb.search.Searcher` is one."""

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """The `k` best passages for each query, best first."""
        ...


class Shelf:
    """Looks queries up; belongs to the process that plays."""

    def __init__(self, opened: Callable[[], Searches], results: int) -> None:
        """Args: opens the index, at the first search; passages of a search."""
        self._opened, self._results = opened, results
        self._kept: OrderedDict[str, Found] = OrderedDict()
        self._next: list[str] = []
        self._batch: asyncio.Task[Mapping[str, Found]] | None = None

    async def find(self, query: str) -> Found:
        """The best passages with their whole texts, best first; at once where no event loop runs."""
        if query in self._kept:
            self._kept.move_to_end(query)
            return self._kept[query]
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self._keep(self._look_up([query]))[query]
        if self._batch is None or self._batch.get_loop() is not loop:
            self._next, self._batch = [], loop.create_task(self._together())
        self._next.append(query)
        return (await asyncio.shield(self._batch))[query]

    def find_beforehand(self, queries: Sequence[str]) -> None:
        """Look up what will be asked for, all together, which takes a fraction of the time; no more than `KEPT`. Within an
        event loop, too, which waits: index and embedder are opened and asked by one thread.
        """
        if new := list(dict.fromkeys(query for query in queries[:KEPT] if query not in self._kept)):
            self._keep(self._lane.submit(self._look_up, new).result())

    async def _together(self) -> Mapping[str, Found]:
        """Look up what was asked for until this began."""
        queries, self._batch = list(dict.fromkeys(self._next)), None
        return self._keep(await errand(self._lane, self._look_up, queries))

    def _look_up(self, queries: Sequence[str]) -> dict[str, Found]:
        wanted = self._results + 1  # one more: which of two is left out may be in doubt too
        hits = self._searcher.search_many(queries, wanted)
        if len(queries) > 1:
            hits = [
                self._searcher.search_many([query], wanted)[0] if _in_doubt([hit.score for hit in own]) else own
                for query, own in zip(queries, hits, strict=True)
            ]
        return {
            query: tuple(found(hit) for hit in own[: self._results]) for query, own in zip(queries, hits, strict=True)
        }

    def _keep(self, found: dict[str, Found]) -> dict[str, Found]:
        self._kept.update(found)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return found

    @cached_property
    def _searcher(self) -> Searches:
        return self._opened()

    @cached_property
    def _lane(self) -> Lane:
        return Lane()


def _in_doubt(scores: Sequence[float]) -> bool:
    """Whether the last bits of scores decide their order, or a digit of one as it is recorded."""
    unit = 10.0**-DIGITS
    edges = (abs(score / unit % 1 - 0.5) * unit for score in scores)
    return any(a - b < DOUBT for a, b in pairwise(scores)) or any(edge < DOUBT for edge in edges)


def found(hit: Hit) -> FoundPassage:
    """A passage with its whole text as it is; the rest as a consultation may hear it."""
    passage = hit.passage
    return FoundPassage(
        passage_id=harmless_id(passage.passage_id),
        title=harmless(passage.title),
        section=harmless(passage.section),
        text=passage.text,
        source=passage.source,
        licence=passage.licence,
        score=round(hit.score, DIGITS),
    )


@dataclass(frozen=True)
class Reader:
    """The knowledge base, as one doctor reads it: the `Library` of its consultations."""

    shelf: Shelf
    count: Count

    def tokens(self, text: str) -> int:
        """How many tokens a text has for the doctor."""
        return self.count(text)

    async def search(self, query: str, results: int, fits: Fits) -> Found:
        """The passages nearest to a query, with the sentences that speak most of it, as many as fit."""
        passages = (await self.shelf.find(query))[:results]

        def shown(texts: Sequence[str]) -> Found:
            return [replace(one, text=harmless(text)) for one, text in zip(passages, texts, strict=False)]

        texts = [passage.text for passage in passages]
        return shown(excerpts(texts, query, lambda chosen: fits(shown(chosen))))
