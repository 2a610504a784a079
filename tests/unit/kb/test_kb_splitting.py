import hashlib
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kb.documents import Document
from kb.errors import KnowledgeBaseError
from kb.passages import embedded_text
from kb.sentences import split_sections, split_sentences
from kb.splitting import pack, split_passages


def by_words(texts):
    return [len(text.split()) + 2 for text in texts]


def by_characters(texts):
    return [len(text) + 1 for text in texts]


def by_bytes_not_additive(texts):
    """Like a byte-pair tokenizer gone wrong: joining two texts costs extra."""
    return [2 + ceil(len(text.encode()) / 2) + text.count(" ") for text in texts]


def document(text, title="T"):
    return Document(doc_id="d", title=title, text=text, source="book", licence="CC0 1.0")


def sentences_of(text):
    return [text[s.start : s.end] for s in split_sentences(text, 0, len(text))]


def test_sentences_end_at_stops_paragraphs_and_list_items():
    text = 'Use e.g. ice. He said "stop." Then 3.5 mg! Why?\n\nNew one\nsame:\n- item a\n- item b'
    assert sentences_of(text) == [
        "Use e.g. ice.",
        'He said "stop."',
        "Then 3.5 mg!",
        "Why?",
        "New one\nsame:",
        "- item a",
        "- item b",
    ]
    opens = [s.opens_paragraph for s in split_sentences(text, 0, len(text))]
    assert opens == [True, False, False, False, True, False, False]


def test_chinese_sentences_need_no_space():
    assert sentences_of("胸痛三天。有时加重!吗\uff1f休息后缓解") == [
        "胸痛三天。",
        "有时加重!吗\uff1f",
        "休息后缓解",
    ]


def test_sections_follow_markdown_headings():
    text = "intro\n# A\n\n## B ##\ntext b\n#no heading\n"
    found = [(s.title, text[s.start : s.end].strip()) for s in split_sections(text)]
    assert found == [("", "intro"), ("B", "text b\n#no heading")]


def test_a_passage_carries_its_provenance_and_the_hash_of_what_is_embedded():
    (first, second) = split_passages([document("Under title.\n# Signs\nPain.", title="Gout")], by_words, 16, 0)
    assert (first.passage_id, first.section, first.text) == ("d#0", "", "Under title.")
    assert (second.passage_id, second.section, second.text) == ("d#1", "Signs", "Pain.")
    assert (second.doc_id, second.source, second.licence) == ("d", "book", "CC0 1.0")
    assert second.embedded_text == "Gout: Signs\nPain."
    assert second.sha256 == hashlib.sha256(b"Gout: Signs\nPain.").hexdigest()


def test_heading_line_of_what_is_embedded():
    assert embedded_text("T", "T", "x") == "T\nx"
    assert embedded_text("", "S", "x") == "S\nx"
    assert embedded_text("", "", "x") == "x"


def test_packing_known_numbers():
    """Budget 10: fills up, prefers a paragraph end at half or more, repeats whole sentences."""
    no = [False] * 6
    assert pack([4, 4, 4, 4], no, 10, 0) == [(0, 2), (2, 4)]
    assert pack([4, 4, 4, 4], no, 10, 4) == [(0, 2), (1, 3), (2, 4)]
    assert pack([4, 4, 4, 4], no, 10, 3) == [(0, 2), (2, 4)]
    assert pack([3, 3, 3, 3], [True, False, True, False], 10, 0) == [(0, 2), (2, 4)]
    assert pack([3, 3, 3, 3], [True, True, False, False], 10, 0) == [(0, 3), (3, 4)]
    assert pack([10, 10], no, 10, 9) == [(0, 1), (1, 2)]
    assert pack([0, 0, 10], no, 10, 5) == [(0, 3)]
    assert pack([4, 4, 9], no, 10, 4) == [(0, 2), (2, 3)]
    assert pack([], [], 10, 0) == []
    with pytest.raises(KnowledgeBaseError, match="cut it before packing"):
        pack([11], no, 10, 0)


@given(
    sentences=st.lists(st.tuples(st.integers(0, 10), st.booleans()), max_size=40),
    budget=st.integers(10, 30),
    overlap=st.integers(0, 29),
)
def test_packing_keeps_its_promises(sentences, budget, overlap):
    costs = [cost for cost, _ in sentences]
    ranges = pack(costs, [opens for _, opens in sentences], budget, overlap)
    assert all(sum(costs[first:last]) <= budget for first, last in ranges)
    assert [first for first, _ in ranges][:1] == [0] * bool(costs)
    assert [last for _, last in ranges][-1:] == [len(costs)] * bool(costs)
    for (first, end), (start, further) in pairwise(ranges):
        assert first < start <= end < further
        assert sum(costs[start:end]) <= overlap


def test_overlap_repeats_the_end_of_the_passage_before():
    text = " ".join(f"This is sentence number {i}." for i in range(12))
    passages = split_passages([document(text)], by_words, 18, 5)
    assert len(passages) == 6
    for before, after in pairwise(passages):
        last = before.text.split(". ")[-1].rstrip(".")
        assert after.text.startswith(last)


def test_a_sentence_too_long_is_cut_between_words():
    words = [f"w{i}" for i in range(100)]
    passages = split_passages([document(" ".join(words))], by_words, 16, 0)
    assert " ".join(passage.text for passage in passages).split() == words


def test_a_title_too_long_leaves_half_the_room_to_the_text():
    long = document("One two three.\n# " + "s " * 40 + "\nFour.", title="t " * 7 + "t")
    passages = split_passages([long], by_words, 20, 0)
    assert [p.title for p in passages] == ["t " * 7 + "t"] * 2
    assert [p.section for p in passages] == ["", ""]
    unbroken = document("文" * 30, title="题" * 300)
    for passage in split_passages([unbroken], by_characters, 16, 0):
        assert passage.title == "题" * 6


def test_senseless_limits_are_refused():
    for limits in ((15, 0), (16, 16), (16, -1)):
        with pytest.raises(KnowledgeBaseError, match="max_tokens"):
            split_passages([document("x")], by_words, *limits)


def test_a_character_that_cannot_fit_is_an_error():
    with pytest.raises(KnowledgeBaseError, match="raise max_tokens"):
        split_passages([document("x")], lambda texts: [99 * len(t) for t in texts], 16, 0)


CHARACTERS = st.one_of(st.sampled_from("ab .\n#-。!\t"), st.characters(codec="utf-8"))
PIECE = st.text(CHARACTERS, min_size=4, max_size=80)
TEXT = st.lists(PIECE, min_size=3, max_size=20).flatmap(
    lambda pieces: st.sampled_from([" ", "\n\n", ". ", "\n# "]).map(lambda by: by.join(pieces))
)


@pytest.mark.parametrize("count_tokens", [by_words, by_characters, by_bytes_not_additive])
@given(
    text=TEXT,
    title=st.text(max_size=60),
    max_tokens=st.integers(16, 40),
    overlap=st.integers(0, 39),
)
@settings(max_examples=60, deadline=None)
def test_passages_fit_and_together_hold_the_whole_text(count_tokens, text, title, max_tokens, overlap):
    doc = document(text, title)
    passages = split_passages([doc], count_tokens, max_tokens, min(overlap, max_tokens - 1))
    assert max(count_tokens([p.embedded_text for p in passages]), default=0) <= max_tokens
    assert all(passage.text in text for passage in passages)
    body = "".join(text[s.start : s.end] for s in split_sections(text))
    assert covered(body, [p.text for p in passages])


def covered(body, pieces):
    """Each piece starts at or before the first character that is not yet covered."""
    letters = "".join(body.split())
    done = 0
    for piece in ("".join(piece.split()) for piece in pieces):
        starts = [at for at in range(done + 1) if letters.startswith(piece, at)]
        if not starts:
            return False
        done = max(done, max(starts) + len(piece))
    return done == len(letters)
