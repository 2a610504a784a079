"""Cuts lose nothing: what is between two spans is white space or a heading, whatever the text."""

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from kb.sentences import first_heading, has_body, split_sections, split_sentences

PIECES = st.sampled_from(
    ["# Signs\n", "## Pain on effort #\n", "\n\n", "\n", "Fever. ", "It hurts! ", "of 38.5 degrees", "- a cough\n", "1) rest\n",
     "发热。", "头痛！", " ", "\t", '"No."', "e.g. this ", "#hashtag\n", "    # code\n", "\r\n", "x", "| a | b. C |\n", "|---|---|\n", "|"]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=25).map("".join)


def visible(text: str) -> str:
    return re.sub(r"\s", "", text)


@given(TEXTS)
def test_sentences_hold_every_visible_character_once_and_in_order(text):
    spans = split_sentences(text, 0, len(text))
    assert visible(text) == "".join(visible(text[s.start : s.end]) for s in spans)
    assert all(one.end <= other.start for one, other in itertools.pairwise(spans))
    assert all(text[s.start : s.end] == text[s.start : s.end].strip() != "" for s in spans)


@given(TEXTS, st.data())
def test_a_part_of_a_text_is_split_within_its_bounds(text, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    spans = split_sentences(text, start, end)
    assert all(start <= s.start < s.end <= end for s in spans)
    assert visible(text[start:end]) == "".join(visible(text[s.start : s.end]) for s in spans)


@given(TEXTS)
def test_sections_leave_out_headings_and_nothing_else(text):
    sections = split_sections(text)
    assert all(one.end <= other.start for one, other in itertools.pairwise(sections))
    kept = "".join(visible(text[s.start : s.end]) for s in sections)
    without = "".join(visible(line) for line in text.split("\n") if not re.match(r" {0,3}#{1,6}[ \t]+\S", line))
    assert kept == without
    assert has_body(text) == bool(kept)
    assert all(not re.search(r"(?m)^ {0,3}#{1,6}[ \t]+\S", text[s.start : s.end]) for s in sections)


@given(TEXTS)
def test_the_first_heading_is_the_first_title(text):
    lines = [line for line in text.split("\n") if re.match(r" {0,3}#{1,6}[ \t]+\S", line)]
    title = first_heading(text)
    assert bool(title) == bool(lines)
    if lines:
        assert visible(title) == visible(lines[0].strip().strip("#"))


def test_only_the_first_sentence_opens_its_paragraph():
    text = "Fever. Cough.\n\nRest. Drink."
    assert [s.opens_paragraph for s in split_sentences(text, 0, len(text))] == [True, False, True, False]
