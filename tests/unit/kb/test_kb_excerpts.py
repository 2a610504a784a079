"""What of passages is shown: sentences that speak of the query, in their order, within what fits."""

import pytest

from kb.excerpts import excerpts

GOUT = "It strikes at night. The big toe is red and hot. Alcohol brings it on. Treatment is rest."
FLU = "It begins within hours. There is fever with aching muscles. Rest helps."


def within(words):
    return lambda texts: sum(len(text.split()) for text in texts) <= words


def test_the_sentences_that_share_most_with_the_query_come_first_and_stand_in_their_order():
    assert excerpts([GOUT, FLU], "red toe after alcohol", within(13)) == [
        "The big toe is red and hot. Alcohol brings it on.",
        "",
    ]
    assert excerpts([GOUT, FLU], "fever and a toe", within(12)) == [
        "The big toe is red and hot.",
        "",
    ]
    assert excerpts([GOUT, FLU], "fever and a toe", within(14)) == [
        "The big toe is red and hot.",
        "There is fever with aching muscles.",
    ]


def test_every_passage_gets_a_sentence_before_one_gets_two():
    assert excerpts([FLU, GOUT], "rest, red toe, alcohol", within(11)) == ["Rest helps.", "The big toe is red and hot."]


def test_an_inflection_is_the_same_word_and_a_word_that_all_share_weighs_little():
    assert excerpts(["It is the heart. It is the muscle. It is the toe."], "it is the muscles", within(4)) == [
        "It is the muscle."
    ]


def test_of_a_passage_without_a_word_of_the_query_the_first_sentence_is_shown():
    assert excerpts([GOUT, FLU], "podagra", within(99)) == ["It strikes at night.", "It begins within hours."]


def test_chinese_is_compared_by_pairs_of_characters():
    text = "多见于夜间发作。关节红肿热痛。饮酒可诱发。"
    assert excerpts([text], "关节痛", lambda texts: len(texts[0]) <= 8) == ["关节红肿热痛。"]
    assert excerpts([text], "夜间饮酒", lambda texts: len(texts[0]) <= 16) == ["多见于夜间发作。饮酒可诱发。"]


def test_where_no_sentence_fits_the_best_one_is_cut_after_a_word():
    assert excerpts([GOUT, FLU], "toe", within(3)) == ["The big toe…", ""]
    assert excerpts(["关节红肿热痛。"], "关节", lambda texts: len(texts[0]) <= 4) == ["关节红…"]


def test_a_list_is_shown_without_its_bullets_and_on_one_line():
    assert excerpts(["- Is there\n  a fever?\n- Does the toe hurt?"], "fever toe", within(99)) == [
        "Is there a fever? Does the toe hurt?"
    ]


@pytest.mark.parametrize(("room", "shown"), [(5, 3), (2, 2), (1, 1), (0, 1)])
def test_as_many_passages_are_shown_as_fit_without_a_sentence_and_at_least_one(room, shown):
    assert excerpts([GOUT] * 3, "x", lambda texts: len(texts) <= room and not any(texts)) == [""] * shown


def test_nothing_found_is_nothing_shown():
    assert excerpts([], "x", within(9)) == []
    assert excerpts(["", "!"], "x", within(9)) == ["", "!"]
