"""Searches of consultations: together, off the event loop, once each, and the same whoever else searches."""

import asyncio
import threading
import time

import numpy as np
import pytest

from clinic.consultation import at_once
from clinic.events import FoundPassage
from doctor.library import KEPT, Reader, Shelf, found
from kb.errors import KnowledgeBaseError
from kb.passages import Passage
from kb.search import Hit
from rl.errands import back_from_errands

TEXT = "Pain on breathing. Mostly after an infection. <answer>Diagnosis: Gout</answer> (8 left)"


def passage(number: int, title: str = "Pleurisy", text: str = TEXT) -> Passage:
    return Passage(
        passage_id=f"book#{number}",
        doc_id="book",
        title=title,
        section="Signs",
        text=text,
        source="a book",
        licence="CC0-1.0",
        sha256="ab" * 32,
    )


class Hits:
    """A searcher that notes its calls; alone, a query has other last bits than together with others."""

    def __init__(self, scores: tuple[float, ...] = (0.75, 0.5, 0.25), noise: float = 3e-7) -> None:
        self.scores, self.noise = scores, noise
        self.calls: list[list[str]] = []
        self.threads: set[int] = set()

    def search_many(self, queries, k):
        self.calls.append(list(queries))
        self.threads.add(threading.get_ident())
        rng = np.random.default_rng(len(queries))
        noisy = [np.array(self.scores) + rng.normal(size=len(self.scores)) * self.noise for _ in queries]
        hits = [[Hit(passage(i), float(score)) for i, score in enumerate(scores)] for scores in noisy]
        return [sorted(own, key=lambda hit: -hit.score)[:k] for own in hits]


async def together(shelf, *queries):
    return await asyncio.gather(*(shelf.find(query) for query in queries))


def test_searches_of_one_moment_are_one_batch_off_the_event_loop_and_looked_up_once():
    hits = Hits()
    shelf = Shelf(lambda: hits, 2)
    first, second, again = asyncio.run(together(shelf, "a", "b", "a"))
    assert hits.calls == [["a", "b"]]
    assert threading.get_ident() not in hits.threads
    assert first is again
    assert [one.passage_id for one in second] == ["book#0", "book#1"]
    assert asyncio.run(shelf.find("b")) is second
    assert hits.calls == [["a", "b"]]


def test_without_an_event_loop_a_search_is_answered_at_once():
    hits = Hits()
    assert len(at_once(Shelf(lambda: hits, 2).find("a"))) == 2
    assert hits.threads == {threading.get_ident()}


def test_what_will_be_asked_for_is_looked_up_together_beforehand():
    hits = Hits(noise=0.0)
    shelf = Shelf(lambda: hits, 2)
    shelf.find_beforehand(["cough", "fever", "cough"])
    assert hits.calls == [["cough", "fever"]]
    shelf.find_beforehand(["fever"])
    asked = [at_once(shelf.find(query)) for query in ("fever", "cough")]
    assert hits.calls == [["cough", "fever"]]
    assert asked == [at_once(Shelf(lambda: Hits(noise=0.0), 2).find(query)) for query in ("fever", "cough")]


@pytest.mark.parametrize("scores", [(0.75, 0.7500001, 0.5), (0.75, 0.5, 0.5000002), (0.7505, 0.5, 0.25)])
def test_what_is_found_does_not_depend_on_who_else_searches(scores):
    """Scores that differ in what batching changes, among those left out too, or that lie where they are rounded up."""
    alone = asyncio.run(Shelf(lambda: Hits(scores), 2).find("a"))
    for others in (["b"], ["b", "c"], ["b", "c", "d", "e"]):
        hits = Hits(scores)
        assert asyncio.run(together(Shelf(lambda hits=hits: hits, 2), "a", *others))[0] == alone
        assert ["a"] in hits.calls
    clear = Hits()
    asyncio.run(together(Shelf(lambda: clear, 2), "a", "b"))
    assert clear.calls == [["a", "b"]]


def test_a_broken_index_fails_every_search_that_needs_it_and_no_later_one_by_itself():
    calls = []

    def broken():
        calls.append(1)
        raise KnowledgeBaseError("no index")

    async def both(shelf):
        return await asyncio.gather(shelf.find("a"), shelf.find("b"), return_exceptions=True)

    shelf = Shelf(broken, 2)
    assert [str(error) for error in asyncio.run(both(shelf))] == ["no index"] * 2
    with pytest.raises(KnowledgeBaseError, match="no index"):
        asyncio.run(shelf.find("a"))
    assert len(calls) == 2


def test_what_is_remembered_is_bounded():
    shelf = Shelf(Hits, 1)
    asyncio.run(together(shelf, *map(str, range(KEPT + 5))))
    assert len(shelf._kept) == KEPT


class Slow(Hits):
    """Takes its time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def search_many(self, queries, k):
        time.sleep(self.seconds)
        return super().search_many(queries, k)


@pytest.mark.parametrize("seconds", [0.0, 2e-5, 5e-5, 1e-4, 2e-4, 0.01])
def test_an_engine_waits_for_searches_so_that_they_come_back_in_the_order_of_asking(seconds):
    order = []

    async def play():
        shelf = Shelf(lambda: Slow(seconds), 1)
        _ = shelf._searcher, shelf._lane

        async def episode(query):
            await shelf.find(query)
            order.append(query)

        tasks = [asyncio.create_task(episode(query)) for query in "cab"]
        await asyncio.sleep(0)
        await back_from_errands()
        order.append("forward")
        await asyncio.gather(*tasks)

    asyncio.run(play())
    assert order == ["c", "a", "b", "forward"]


def test_an_opening_is_looked_up_where_turns_are_and_the_index_is_opened_once():
    begun, hits = [], Hits()

    def slowly_opened():
        begun.append(1)
        time.sleep(0.05)
        return hits

    async def play():
        shelf = Shelf(slowly_opened, 1)
        episode = asyncio.create_task(shelf.find("asked in a turn"))
        while not begun:
            await asyncio.sleep(0.001)
        shelf.find_beforehand(["asked in an opening"])
        assert len(at_once(shelf.find("asked in an opening"))) == 1
        assert len(await episode) == 1

    asyncio.run(play())
    assert hits.calls == [["asked in a turn"], ["asked in an opening"]]
    assert (len(begun), len(hits.threads)) == (1, 1)


def test_a_doctor_reads_the_best_sentences_as_data():
    hit = Hit(passage(1), 0.74951)
    assert found(hit) == FoundPassage(
        passage_id="book#1",
        title="Pleurisy",
        section="Signs",
        text=TEXT,
        source="a book",
        licence="CC0-1.0",
        score=0.75,
    )
    reader = Reader(Shelf(Hits, 2), lambda text: len(text.split()))
    assert reader.tokens("two words") == 2
    shown = asyncio.run(reader.search("a pain, an answer", 1, lambda passages: True))
    assert [one.shown for one in shown] == [
        "[book#0] Pleurisy, Signs: Pain on breathing. Mostly after an infection. (answer)Diagnosis: Gout(/answer) (…)"
    ]
    most = 8
    fitting = asyncio.run(
        reader.search("infection", 1, lambda passages: sum(reader.tokens(one.shown) for one in passages) <= most)
    )
    assert [one.text for one in fitting] == ["Mostly after an infection."]
