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
from kb.splitting import CHARACTERS_PER_TOKEN, pack, split_passages


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

    def packed(costs, overlap, opens=(), leads=()):
        return pack(costs, opens or [False] * len(costs), leads or [0] * len(costs), 10, overlap)

    assert packed([4, 4, 4, 4], 0) == [(0, 2), (2, 4)]
    assert packed([4, 4, 4, 4], 4) == [(0, 2), (1, 3), (2, 4)]
    assert packed([4, 4, 4, 4], 3) == [(0, 2), (2, 4)]
    assert packed([3, 3, 3, 3], 0, [True, False, True, False]) == [(0, 2), (2, 4)]
    assert packed([3, 3, 3, 3], 0, [True, True, False, False]) == [(0, 3), (3, 4)]
    assert packed([10, 10], 9) == [(0, 1), (1, 2)]
    assert packed([0, 0, 10], 5) == [(0, 3)]
    assert packed([4, 4, 9], 4) == [(0, 2), (2, 3)]
    assert packed([], 0) == []
    assert packed([3, 3, 3, 3, 3, 3], 0, leads=[0, 3, 3, 3, 3, 3]) == [(0, 3), (3, 5), (5, 6)]
    assert packed([3, 3, 3, 3, 3, 3], 3, leads=[0, 3, 3, 3, 3, 3]) == [(0, 3), (2, 4), (3, 5), (4, 6)]
    for costs, leads in (([11], [0]), ([6], [5])):
        with pytest.raises(KnowledgeBaseError, match="cut it before packing"):
            packed(costs, 0, leads=leads)


@given(
    sentences=st.lists(st.tuples(st.integers(0, 7), st.booleans(), st.integers(0, 3)), max_size=40),
    budget=st.integers(10, 30),
    overlap=st.integers(0, 29),
)
def test_packing_keeps_its_promises(sentences, budget, overlap):
    costs, opens, leads = (list(column) for column in zip(*sentences, strict=True)) if sentences else ([], [], [])
    ranges = pack(costs, opens, leads, budget, overlap)
    assert all(leads[first] + sum(costs[first:last]) <= budget for first, last in ranges)
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


TABLE = (
    "Doses:\n\n| Drug | Dose. Note |\n|---|---|\n"
    + "\n".join(f"| drug {n} | {n} mg. Daily |" for n in range(12))
    + "\n\nRest."
)


def test_a_table_that_is_cut_repeats_its_header_and_keeps_its_rows():
    passages = split_passages([document(TABLE)], by_words, 50, 0)
    header = "| Drug | Dose. Note |\n|---|---|"
    rows = [line for passage in passages for line in passage.text.split("\n") if line.startswith("| drug")]
    assert len(passages) == 3
    assert rows == [f"| drug {n} | {n} mg. Daily |" for n in range(12)]
    assert [passage.text.count(header) for passage in passages] == [1, 1, 1]
    assert passages[0].text.startswith(f"Doses:\n\n{header}\n| drug 0")
    assert passages[1].text.startswith(f"{header}\n| drug")
    assert passages[1].text.removeprefix(f"{header}\n") in TABLE
    assert max(by_words([passage.embedded_text for passage in passages])) <= 50


def test_a_repeated_row_stands_below_the_header_too():
    passages = split_passages([document(TABLE)], by_words, 50, 12)
    for before, after in pairwise(passages):
        assert before.text.split("\n")[-1] == after.text.split("\n")[2]
        assert after.text.startswith("| Drug |")


def test_a_header_too_long_is_not_repeated_and_a_row_too_long_is_cut():
    wide = (
        "| " + " | ".join(f"h{n}" for n in range(20)) + " |\n|---|\n" + "\n".join(f"| row {n} | x |" for n in range(20))
    )
    passages = split_passages([document(wide)], by_words, 60, 0)
    assert sum(passage.text.count("h0") for passage in passages) == 1
    row = "| a | b |\n|---|---|\n| c | " + " ".join(f"w{n}" for n in range(100)) + " |"
    passages = split_passages([document(row)], by_words, 40, 0)
    assert all(passage.text.startswith("| a | b |\n|---|---|") for passage in passages)
    assert [word for passage in passages for word in passage.text.split() if word[0] == "w"] == [
        f"w{n}" for n in range(100)
    ]


def test_a_hash_in_fenced_code_opens_no_section():
    text = "# Use\n\n```sh\n# a remark\nmake\n```\n\n~~~~\n# b\n~~~\n# c\n~~~~\n\n# After\n\nEnd."
    assert [section.title for section in split_sections(text)] == ["Use", "After"]
    assert [section.title for section in split_sections("```\n# in\n")] == [""]
    assert [section.title for section in split_sections("``` a`b\n# Out\n\nText.")] == ["", "Out"]


@pytest.mark.parametrize(
    "unknown", ["x" * 600_000, "x" * 600_000 + " end.", "# " + "y" * 5_000 + "\n\nText. " + "z" * 9_000]
)
def test_a_passage_is_bounded_in_characters_whatever_the_tokenizer_counts(unknown):
    passages = split_passages([document(unknown, title="t" * 9_000)], by_words, 256, 32)
    assert max(len(passage.text) for passage in passages) <= 256 * CHARACTERS_PER_TOKEN
    assert max(len(passage.title) + len(passage.section) for passage in passages) <= 128 * CHARACTERS_PER_TOKEN
    assert sum(passage.text.count(letter) for passage in passages for letter in "xyz") == unknown.split("\n\n")[
        -1
    ].count("x") + unknown.count("z")


def test_texts_are_counted_in_few_calls_and_a_document_does_not_depend_on_its_neighbours():
    documents = [
        Document(
            doc_id=f"d{n}",
            title=f"T{n}",
            text=f"One {n}. " * (n % 40) + "# A\n\nEnd." + " w" * n,
            source="s",
            licence="l",
        )
        for n in range(300)
    ]
    calls = []

    def counted(texts):
        calls.append(len(texts))
        return by_words(texts)

    together = split_passages(documents, counted, 32, 8)
    assert len(calls) < 40
    alone = [passage for one in documents for passage in split_passages([one], by_words, 32, 8)]
    assert together == alone
