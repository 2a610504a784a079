"""Documents -> passages that fit the embedder, cut at sentence and paragraph ends.

A passage is a verbatim slice of its document. What gets embedded is more than that slice: title
and section come first, and the tokenizer adds special tokens; all of it counts. The tokenizer is
seen only as a function from texts to counts, so any embedder will do.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kb.config import MIN_PASSAGE_TOKENS
from kb.documents import Document
from kb.errors import KnowledgeBaseError
from kb.files import sha256_text
from kb.passages import Passage, embedded_text
from kb.sentences import Section, Sentence, split_sections, split_sentences

logger = logging.getLogger(__name__)

CountTokens = Callable[[list[str]], list[int]]
"""Texts to token counts, special tokens included, nothing truncated."""

MIN_FILL = 0.5
"""A passage ends at a paragraph if that leaves at least this share of its token budget used."""

HEADING_SHARE = 0.5
"""Title and section may take at most this share of a passage; beyond it they are cut."""


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
    splitter = _Splitter(count_tokens, max_tokens, overlap_tokens, count_tokens([""])[0])
    passages = [passage for document in documents for passage in splitter.split(document)]
    logger.info("split %d documents into %d passages", len(documents), len(passages))
    return passages


@dataclass(frozen=True)
class _Splitter:
    """`split_passages` for one document, with the numbers that stay the same."""

    count_tokens: CountTokens
    max_tokens: int
    overlap_tokens: int
    special_tokens: int

    def split(self, document: Document) -> list[Passage]:
        parts = [
            (title, section, text)
            for part in split_sections(document.text)
            for title, section in [self._fit_heading(document.title, part.title)]
            for text in self._split_section(document, part, embedded_text(title, section, ""))
        ]
        return [
            Passage(
                passage_id=f"{document.doc_id}#{number}",
                doc_id=document.doc_id,
                title=title,
                section=section,
                text=text,
                source=document.source,
                licence=document.licence,
                sha256=sha256_text(embedded_text(title, section, text)),
            )
            for number, (title, section, text) in enumerate(parts)
        ]

    def _split_section(self, document: Document, section: Section, heading: str) -> list[str]:
        """Pack against an estimate (counts add up), check the real count, tighten, repeat.

        Counts add up exactly for the default embedder, so the second round is for tokenizers
        that merge across a white space.
        """
        sentences = split_sentences(document.text, section.start, section.end)
        budget = self.max_tokens - self.count_tokens([heading])[0]
        while budget > 0:
            pieces, costs = self._fit_sentences(document.text, sentences, budget)
            opens = [piece.opens_paragraph for piece in pieces]
            texts = [
                document.text[pieces[first].start : pieces[last - 1].end]
                for first, last in pack(costs, opens, budget, self.overlap_tokens)
            ]
            longest = max(self.count_tokens([heading + text for text in texts]))
            if longest <= self.max_tokens:
                return texts
            budget -= longest - self.max_tokens
        raise self._hopeless(document.doc_id)

    def _fit_heading(self, title: str, section: str) -> tuple[str, str]:
        """Cut the section, then the title, until the text keeps its share of the passage."""
        room = int(self.max_tokens * HEADING_SHARE)
        if self._fits(embedded_text(title, section, ""), room):
            return title, section
        if self._fits(embedded_text(title, "", ""), room):
            return title, self._prefix(section, lambda cut: embedded_text(title, cut, ""), room)
        return self._prefix(title, lambda cut: embedded_text(cut, "", ""), room), ""

    def _prefix(self, text: str, embed: Callable[[str], str], room: int) -> str:
        """Longest run of leading words (of characters, if the first word is too long) that fits."""
        words = text.split(" ")
        for pieces, joint in ((words, " "), (list(words[0]), "")):
            fitting, tried = 0, len(pieces)
            while fitting < tried:
                kept = (fitting + tried + 1) // 2
                if self._fits(embed(joint.join(pieces[:kept])), room):
                    fitting = kept
                else:
                    tried = kept - 1
            if fitting:
                return joint.join(pieces[:fitting])
        return ""

    def _fits(self, text: str, room: int) -> bool:
        return self.count_tokens([text])[0] <= room

    def _fit_sentences(self, text: str, sentences: Sequence[Sentence], budget: int) -> tuple[list[Sentence], list[int]]:
        """Cut the sentences that need more than `budget` tokens; return the rest as they are."""
        pieces: list[Sentence] = []
        costs: list[int] = []
        counts = self._costs([text[sentence.start : sentence.end] for sentence in sentences])
        for sentence, cost in zip(sentences, counts, strict=True):
            if cost <= budget:
                pieces.append(sentence)
                costs.append(cost)
                continue
            if sentence.end - sentence.start == 1:
                raise self._hopeless(text[sentence.start])
            halves = self._fit_sentences(text, halve(text, sentence), budget)
            pieces += halves[0]
            costs += halves[1]
        return pieces, costs

    def _costs(self, texts: list[str]) -> list[int]:
        return [max(0, count - self.special_tokens) for count in self.count_tokens(texts)]

    def _hopeless(self, what: str) -> KnowledgeBaseError:
        return KnowledgeBaseError(f"{what!r} cannot be cut into passages of {self.max_tokens} tokens: raise max_tokens")


def halve(text: str, sentence: Sentence) -> list[Sentence]:
    """Cut a sentence of two or more characters at the white space nearest its middle.

    Without white space, as in Chinese, it is cut in the very middle.
    """
    middle = (sentence.start + sentence.end) // 2
    spaces = [at for at in range(sentence.start, sentence.end) if text[at].isspace()]
    if not spaces:
        return [replace(sentence, end=middle), Sentence(middle, sentence.end, False)]
    at = min(spaces, key=lambda space: abs(space - middle))
    left = sentence.start + len(text[sentence.start : at].rstrip())
    right = sentence.end - len(text[at : sentence.end].lstrip())
    return [replace(sentence, end=left), Sentence(right, sentence.end, False)]


def pack(costs: Sequence[int], opens_paragraph: Sequence[bool], budget: int, overlap: int) -> list[tuple[int, int]]:
    """Group consecutive sentences into passages.

    Args:
        costs: tokens of each sentence, none above `budget`.
        opens_paragraph: whether a sentence is the first of its paragraph.
        budget: tokens a passage may have.
        overlap: tokens a passage may repeat from the one before it.

    Returns:
        Half-open ranges of sentence numbers, in order. Each ends further than the one before.

    Raises:
        KnowledgeBaseError: if a sentence alone is over the budget; it must be cut first.
    """
    if max(costs, default=0) > budget:
        raise KnowledgeBaseError(f"a sentence of {max(costs)} tokens for passages of {budget}: cut it before packing")
    passages: list[tuple[int, int]] = []
    first, done, total = 0, 0, len(costs)
    while done < total:
        last = _fill(costs, first, budget)
        if last < total:
            last = _paragraph_end(costs, opens_paragraph, first, done, last, budget)
        passages.append((first, last))
        done = last
        if done < total:
            first = done - _repeated(costs, first, done, min(overlap, budget - costs[done]))
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


def _repeated(costs: Sequence[int], first: int, done: int, room: int) -> int:
    """How many sentences before `done` fit into `room` tokens, never all of the passage."""
    kept, used = 0, 0
    while done - kept - 1 > first and used + costs[done - kept - 1] <= room:
        kept += 1
        used += costs[done - kept]
    return kept
