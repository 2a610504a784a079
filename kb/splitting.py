"""Documents -> passages that fit the embedder, cut at sentence and paragraph ends.

A passage is a verbatim slice of its document. What gets embedded is more than that slice: title
and section come first, and the tokenizer adds special tokens; all of it counts. The tokenizer is
seen only as a function from texts to counts, so any embedder will do.

It is asked for many texts at once, since that costs a fraction of asking one by one: what cuts a section is a
generator that yields the texts it wants counted, and those of many documents are answered together. What comes of a
document depends on it and on the settings alone.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from kb.config import MIN_PASSAGE_TOKENS
from kb.documents import Document
from kb.errors import KnowledgeBaseError
from kb.files import sha256_text
from kb.passages import Passage, embedded_text
from kb.sentences import Section, Sentence, split_sections, split_sentences

logger = logging.getLogger(__name__)
T = TypeVar("T")

CountTokens = Callable[[list[str]], list[int]]
"""Texts to token counts, special tokens included, nothing truncated."""

Counting = Generator[list[str], list[int], T]
"""Work that yields texts, is sent their token counts, and ends with a result."""

MIN_FILL = 0.5
"""A passage ends at a paragraph if that leaves at least this share of its token budget used."""

HEADING_SHARE = 0.5
"""Title and section, or the header of a table, may take at most this share of a passage; beyond it they are cut."""

CHARACTERS_PER_TOKEN = 16
"""So many characters count as a token even if the tokenizer counts fewer: to the bundled one any word of over 100
letters is one unknown token, so that 600,000 letters without a space would be one passage. English has 4 to 6."""

DOCUMENTS_AT_ONCE = 256  # whose texts go to the tokenizer together: some 6,000 sentences


def split_passages(
    documents: Sequence[Document],
    count_tokens: CountTokens,
    max_tokens: int,
    overlap_tokens: int,
) -> list[Passage]:
    """Cut every document into passages of at most `max_tokens` tokens as embedded.

    Passages are packed with whole sentences, end at a paragraph where that wastes less than half
    of the room, and never cross a section. A sentence too long for a passage is cut in pieces,
    between words if there are any.

    Args:
        documents: in the order the passages will have.
        count_tokens: the embedder's, special tokens included.
        max_tokens: at least 16.
        overlap_tokens: a passage repeats the last whole sentences of the one before it, up to
            this many tokens; less than `max_tokens`.

    Returns:
        Passages, document by document; every document with text has at least one.

    Raises:
        KnowledgeBaseError: if the limits make no sense, or one character of a document already
            needs more tokens than a passage may have.
    """
    if max_tokens < MIN_PASSAGE_TOKENS or not 0 <= overlap_tokens < max_tokens:
        raise KnowledgeBaseError(
            f"passages of max_tokens={max_tokens} with overlap_tokens={overlap_tokens}: "
            f"max_tokens must be {MIN_PASSAGE_TOKENS} or more, the overlap smaller"
        )
    limits = _Limits(max_tokens, overlap_tokens, count_tokens([""])[0])
    passages: list[Passage] = []
    for first in range(0, len(documents), DOCUMENTS_AT_ONCE):
        some = documents[first : first + DOCUMENTS_AT_ONCE]
        sections = [(document, section) for document in some for section in split_sections(document.text)]
        cut = _answered([limits.cut(*section) for section in sections], count_tokens)
        parts: dict[str, list[_Part]] = {document.doc_id: [] for document in some}
        for (document, _), pieces in zip(sections, cut, strict=True):
            parts[document.doc_id] += pieces
        passages += [
            _passage(document, number, part) for document in some for number, part in enumerate(parts[document.doc_id])
        ]
    logger.info("split %d documents into %d passages", len(documents), len(passages))
    return passages


def _answered(works: Sequence[Counting[T]], count_tokens: CountTokens) -> list[T]:
    """Run all works side by side; what they ask for in one round is counted in one call."""
    results: dict[int, T] = {}
    asked: dict[int, list[str]] = {number: next(work) for number, work in enumerate(works)}
    while asked:
        wanted = list(dict.fromkeys(text for texts in asked.values() for text in texts))
        counts = dict(zip(wanted, count_tokens(wanted), strict=True))
        for number, texts in list(asked.items()):
            try:
                asked[number] = works[number].send([counts[text] for text in texts])
            except StopIteration as done:
                results[number] = done.value
                del asked[number]
    return [results[number] for number in range(len(works))]


@dataclass(frozen=True)
class _Part:
    """A passage to be: its title and section as they fit, and its text."""

    title: str
    section: str
    text: str


def _passage(document: Document, number: int, part: _Part) -> Passage:
    return Passage(
        passage_id=f"{document.doc_id}#{number}",
        doc_id=document.doc_id,
        title=part.title,
        section=part.section,
        text=part.text,
        source=document.source,
        licence=document.licence,
        sha256=sha256_text(embedded_text(part.title, part.section, part.text)),
        url=document.url,
        language=document.language,
        date=document.date,
    )


@dataclass(frozen=True)
class _Limits:
    """How long passages may be, and how a section is cut to it."""

    max_tokens: int
    overlap_tokens: int
    special_tokens: int

    def cut(self, document: Document, section: Section) -> Counting[list[_Part]]:
        """Pack against an estimate (counts add up), check the real count, tighten, repeat.

        Counts add up exactly for the default embedder, so the second round is for tokenizers
        that merge across a white space.
        """
        sentences = split_sentences(document.text, section.start, section.end)
        texts = [document.text[sentence.start : sentence.end] for sentence in sentences]
        whole = embedded_text(document.title, section.title, "")
        counts = yield [whole, *texts]
        costs = self._costs(texts, counts[1:])
        title, under, heading_tokens = document.title, section.title, counts[0]
        if not self._may_head(whole, heading_tokens):
            title, under = yield from self._fit_heading(title, under)
            (heading_tokens,) = yield [embedded_text(title, under, "")]
        budget = self.max_tokens - heading_tokens
        while budget > 0:
            table = _Table(document.text, sentences, costs, budget)
            pieces, fitting = yield from self._fit_sentences(table, sentences, costs, budget)
            opens = [piece.opens_paragraph for piece in pieces]
            leads = [table.lead(piece) for piece in pieces]
            ranges = pack(fitting, opens, leads, budget, self.overlap_tokens)
            bodies = [table.passage(pieces[first], pieces[last - 1]) for first, last in ranges]
            longest = max((yield [embedded_text(title, under, body) for body in bodies]))
            if longest <= self.max_tokens:
                return [_Part(title, under, body) for body in bodies]
            budget -= longest - self.max_tokens
        raise self._hopeless(document.doc_id)

    def _fit_heading(self, title: str, section: str) -> Counting[tuple[str, str]]:
        """Cut the section, then the title, until the text keeps its share of the passage."""
        alone = embedded_text(title, "", "")
        (count,) = yield [alone]
        if self._may_head(alone, count):
            return title, (yield from self._prefix(section, lambda cut: embedded_text(title, cut, "")))
        return (yield from self._prefix(title, lambda cut: embedded_text(cut, "", ""))), ""

    def _prefix(self, text: str, embed: Callable[[str], str]) -> Counting[str]:
        """Longest run of leading words (of characters, if the first word is too long) that fits."""
        words = text.split(" ")
        for pieces, joint in ((words, " "), (list(words[0]), "")):
            fitting, tried = 0, len(pieces)
            while fitting < tried:
                kept = (fitting + tried + 1) // 2
                heading = embed(joint.join(pieces[:kept]))
                (count,) = yield [heading]
                if self._may_head(heading, count):
                    fitting = kept
                else:
                    tried = kept - 1
            if fitting:
                return joint.join(pieces[:fitting])
        return ""

    def _may_head(self, heading: str, count: int) -> bool:
        room = int(self.max_tokens * HEADING_SHARE)
        return count <= room and len(heading) <= room * CHARACTERS_PER_TOKEN

    def _fit_sentences(
        self, table: "_Table", sentences: Sequence[Sentence], costs: Sequence[int], budget: int
    ) -> Counting[tuple[list[Sentence], list[int]]]:
        """Halve the sentences that need more than `budget` tokens, until none does; the rest stay as they are."""
        fitted = list(zip(sentences, costs, strict=True))
        while any(cost + table.lead(sentence) > budget for sentence, cost in fitted):
            halves = [
                halve(table.text, sentence) if cost + table.lead(sentence) > budget else [] for sentence, cost in fitted
            ]
            texts = [table.text[half.start : half.end] for two in halves for half in two]
            new = iter(self._costs(texts, (yield texts)))
            fitted = [
                piece
                for one, two in zip(fitted, halves, strict=True)
                for piece in ([(half, next(new)) for half in two] or [one])
            ]
            single = [one for one, cost in fitted if one.end - one.start == 1 and cost + table.lead(one) > budget]
            if single:
                raise self._hopeless(table.text[single[0].start])
        return [sentence for sentence, _ in fitted], [cost for _, cost in fitted]

    def _costs(self, texts: Sequence[str], counts: Sequence[int]) -> list[int]:
        """Tokens without the special ones, and at least those that the length stands for."""
        return [
            max(count - self.special_tokens, -(-len(text) // CHARACTERS_PER_TOKEN))
            for text, count in zip(texts, counts, strict=True)
        ]

    def _hopeless(self, what: str) -> KnowledgeBaseError:
        return KnowledgeBaseError(f"{what!r} cannot be cut into passages of {self.max_tokens} tokens: raise max_tokens")


class _Table:
    """A section's text, and what its tables' headers cost where a passage begins with one of their rows.

    A header that would take more than its share of the passage is not repeated.
    """

    def __init__(self, text: str, sentences: Sequence[Sentence], costs: Sequence[int], budget: int) -> None:
        self.text = text
        headers = {sentence.header for sentence in sentences} - {None}
        self._costs = {
            (sentence.start, sentence.end): cost
            for sentence, cost in zip(sentences, costs, strict=True)
            if (sentence.start, sentence.end) in headers and cost <= HEADING_SHARE * budget
        }

    def lead(self, first: Sentence) -> int:
        """Tokens of what stands before a passage that begins with this sentence."""
        return self._costs.get(first.header, 0) if first.header else 0

    def passage(self, first: Sentence, last: Sentence) -> str:
        """The text from one sentence to another, under the header of the table it begins in."""
        body = self.text[first.start : last.end]
        if first.header in self._costs:
            return f"{self.text[slice(*first.header)]}\n{body}"
        return body


def halve(text: str, sentence: Sentence) -> list[Sentence]:
    """Cut a sentence of two or more characters at the white space nearest its middle.

    Without white space, as in Chinese, it is cut in the very middle.
    """
    middle = (sentence.start + sentence.end) // 2
    spaces = [at for at in range(sentence.start, sentence.end) if text[at].isspace()]
    if not spaces:
        return [replace(sentence, end=middle), replace(sentence, start=middle, opens_paragraph=False)]
    at = min(spaces, key=lambda space: abs(space - middle))
    left = sentence.start + len(text[sentence.start : at].rstrip())
    right = sentence.end - len(text[at : sentence.end].lstrip())
    return [replace(sentence, end=left), replace(sentence, start=right, opens_paragraph=False)]


def pack(
    costs: Sequence[int], opens_paragraph: Sequence[bool], leads: Sequence[int], budget: int, overlap: int
) -> list[tuple[int, int]]:
    """Group consecutive sentences into passages.

    Args:
        costs: tokens of each sentence.
        opens_paragraph: whether a sentence is the first of its paragraph.
        leads: tokens of what is put before a passage that begins with the sentence; with its own none above `budget`.
        budget: tokens a passage may have.
        overlap: tokens a passage may repeat from the one before it.

    Returns:
        Half-open ranges of sentence numbers, in order. Each ends further than the one before.

    Raises:
        KnowledgeBaseError: if a sentence alone is over the budget; it must be cut first.
    """
    needed = [cost + lead for cost, lead in zip(costs, leads, strict=True)]
    if max(needed, default=0) > budget:
        raise KnowledgeBaseError(f"a sentence of {max(needed)} tokens for passages of {budget}: cut it before packing")
    passages: list[tuple[int, int]] = []
    first, done, total = 0, 0, len(costs)
    while done < total:
        last = _fill(costs, first, budget - leads[first])
        if last < total:
            last = _paragraph_end(costs, opens_paragraph, first, done, last, budget)
        passages.append((first, last))
        done = last
        if done < total:
            first = done - _repeated(costs, leads, first, done, overlap, budget - costs[done])
    return passages


def _fill(costs: Sequence[int], first: int, budget: int) -> int:
    used, last = 0, first
    while last < len(costs) and used + costs[last] <= budget:
        used += costs[last]
        last += 1
    return last


def _paragraph_end(costs: Sequence[int], opens: Sequence[bool], first: int, done: int, last: int, budget: int) -> int:
    """Latest paragraph start in (done, last] that leaves the passage full enough, else `last`."""
    for end in range(last, max(first, done), -1):
        if opens[end] and sum(costs[first:end]) >= MIN_FILL * budget:
            return end
    return last


def _repeated(costs: Sequence[int], leads: Sequence[int], first: int, done: int, overlap: int, room: int) -> int:
    """How many sentences before `done` may be repeated and, with their lead, fit into `room`; never all of the passage."""
    kept, used = 0, 0
    while done - kept - 1 > first:
        before = done - kept - 1
        if used + costs[before] > overlap or used + costs[before] + leads[before] > room:
            break
        kept += 1
        used += costs[before]
    return kept
