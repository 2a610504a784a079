"""What says the same becomes one passage that names everybody who says it; what only looks alike stays."""

import random

import pytest

from kb import duplicates
from kb.duplicates import merge_duplicates
from kb.errors import KnowledgeBaseError
from kb.passages import Origin, Passage

WORDS = [
    "the",
    "joint",
    "swells",
    "and",
    "hurts",
    "at",
    "night",
    "because",
    "crystals",
    "form",
    "in",
    "it",
    "and",
    "the",
    "toe",
    "is",
    "red",
    "hot",
    "and",
    "tender",
    "for",
    "days",
]


def passage(doc_id, text, title="Gout", number=0):
    return Passage(
        passage_id=f"{doc_id}#{number}", doc_id=doc_id, title=title, section="", text=text, source=f"book {doc_id}",
        licence="CC0", sha256=f"{title} {text}", url=f"https://example.org/{doc_id}",
    )  # fmt: skip


def text(seed, n_words=120):
    return " ".join(random.Random(seed).choices(WORDS, k=n_words))


def test_equal_texts_become_one_with_all_its_sources_in_order():
    passages = [
        passage("a", text(1)),
        passage("b", text(2)),
        passage("c", text(1)),
        passage("d", text(1).upper() + "\n"),
    ]
    first, second = merge_duplicates(passages, 1)
    assert (first.passage_id, second) == ("a#0", passages[1])
    assert first.origins == (
        Origin("c", "Gout", "book c", "https://example.org/c", "CC0"),
        Origin("d", "Gout", "book d", "https://example.org/d", "CC0"),
    )
    assert {**vars(first), "also": ""} == vars(passages[0])
    assert second.origins == ()


def test_a_repetition_within_a_document_names_nobody_else():
    (only,) = merge_duplicates([passage("a", text(1)), passage("a", text(1), number=1)], 0.9)
    assert only.also == ""


@pytest.mark.parametrize(("changed", "left"), [(0, 1), (1, 1), (30, 2)])
def test_near_equal_texts_become_one_from_the_threshold_on(changed, left):
    """Of 200 words a changed one costs three shingles of 198, on both sides: similarity .97; 30 of them: about .4."""
    words = text(3, 200).split()
    other = [f"other{'x' * n}" if n in range(0, 6 * changed, 6) else word for n, word in enumerate(words)]
    passages = [passage("a", " ".join(words)), passage("b", " ".join(other))]
    assert len(merge_duplicates(passages, 0.9)) == left
    assert len(merge_duplicates(passages, 1)) == (1 if changed == 0 else 2)


def test_chinese_is_compared_by_characters():
    body = "".join(random.Random(4).choices("关节红肿疼痛夜间加重休息后缓解尿酸升高", k=200))
    passages = [passage("a", body), passage("b", body[:100] + "脚" + body[101:]), passage("c", body[::-1])]
    assert [one.doc_id for one in merge_duplicates(passages, 0.9)] == ["a", "c"]


def test_other_numbers_are_another_statement():
    passages = [
        passage("a", text(5) + " take 5 mg"),
        passage("b", text(5) + " take 50 mg"),
        passage("c", text(5) + " take 5 mg ."),
    ]
    assert [one.doc_id for one in merge_duplicates(passages, 0.8)] == ["a", "b"]


@pytest.mark.parametrize(
    ("one", "other"), [("0.5 mg", "5.0 mg"), ("5 mg before and 10 mg after", "10 mg before and 5 mg after"),
                       ("½ a pill", "¼ a pill"), ("每日一次", "每日三次")]
)  # fmt: skip
def test_so_are_the_same_digits_in_another_order_and_numbers_without_digits(one, other):
    passages = [passage("a", f"{text(5)} take {one}"), passage("b", f"{text(5)} take {other}")]
    assert [left.doc_id for left in merge_duplicates(passages, 0.8)] == ["a", "b"]


def test_a_document_under_another_title_keeps_what_it_is_found_by():
    passages = [
        passage("a", text(6), "Achromatopsia: inheritance"),
        passage("b", text(6), "Albinism: inheritance"),
        passage("c", text(7), "Alkaptonuria: inheritance"),
        passage("c", text(6), "Alkaptonuria: inheritance", number=1),
    ]
    kept = merge_duplicates(passages, 0.9)
    assert [one.passage_id for one in kept] == ["a#0", "b#0", "c#0"]
    assert [origin.doc_id for origin in kept[0].origins] == ["c"]


def test_texts_without_words_are_equal_or_nothing():
    kept = merge_duplicates(
        [passage("a", "—"), passage("b", "—"), passage("c", "…"), passage("d", "ab"), passage("e", "cd")], 0.9
    )
    assert [one.doc_id for one in kept] == ["a", "c", "d", "e"]


def test_nothing_is_lost_and_the_result_is_final():
    rng = random.Random(8)
    passages = [passage(f"d{n}", text(rng.randrange(12)) + " end" * rng.randrange(3), number=n) for n in range(60)]
    kept = merge_duplicates(passages, 0.9)
    assert {one.doc_id for one in passages} == {one.doc_id for one in kept} | {
        o.doc_id for one in kept for o in one.origins
    }
    assert [one.passage_id for one in merge_duplicates(kept, 0.9)] == [one.passage_id for one in kept]
    assert merge_duplicates(passages, 0.9) == kept


def test_texts_of_one_template_are_not_all_compared_with_all(monkeypatch):
    """What is filled in makes them differ just too much to be one; of each there is a copy besides."""
    template = text(3, 130).split()
    forms = []
    for number in range(120):
        words = template.copy()
        for place in random.Random(number).sample(range(130), 5):
            words[place] = f"word{chr(97 + number % 26)}{chr(97 + number // 26)}x{chr(97 + place % 26)}"
        forms.append(" ".join(words))
    passages = [passage(f"d{n}", form) for n, form in enumerate([*forms, *(form + " x" for form in forms)])]
    whole = merge_duplicates(passages, 0.9)
    assert [one.doc_id for one in whole] == [f"d{n}" for n in range(120)]
    compared, original = [], duplicates._jaccard
    monkeypatch.setattr(duplicates, "_jaccard", lambda *both: compared.append(both) or original(*both))
    monkeypatch.setattr(duplicates, "MOST_COMPARED", 8)
    assert merge_duplicates(passages, 0.9) == whole
    assert len(compared) <= 8 * len(passages)


@pytest.mark.parametrize("threshold", [0, -1, 1.01, float("nan")])
def test_an_impossible_threshold_is_refused(threshold):
    with pytest.raises(KnowledgeBaseError, match="near_duplicate is"):
        merge_duplicates([], threshold)
