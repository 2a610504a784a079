import json
import threading

import pytest

from clinic.errors import ClinicError
from clinic.ratings import ask_for_ratings, keep_rating, read_ratings, transcript_id

SAID = [{"role": "user", "content": "It hurts."}, {"role": "assistant", "content": "Where?"}]


def test_a_score_belongs_to_these_very_words():
    assert transcript_id(SAID) == transcript_id([dict(m) for m in SAID])
    assert transcript_id(SAID) != transcript_id([SAID[0], {"role": "assistant", "content": "Where? "}])


def test_what_is_missing_is_asked_for_once_and_ratings_survive(tmp_path):
    path = tmp_path / "deep" / "ratings.jsonl"
    assert read_ratings(path) == {}
    assert ask_for_ratings(path, [("c1", SAID), ("c1", SAID)]) == 1
    row = json.loads(path.read_text())
    assert (row["score"], row["case_id"], row["transcript"]) == (None, "c1", SAID)
    assert read_ratings(path) == {}
    path.write_text(json.dumps(row | {"score": 3.5}) + "\n")
    other = [{"role": "user", "content": "胸口疼"}]
    assert ask_for_ratings(path, [("c1", SAID), ("c2", other)]) == 1
    assert read_ratings(path) == {transcript_id(SAID): 3.5}
    assert len(path.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 1: not a rating"),
        ('{"score": 1}', "line 1: not a rating"),
        ('{"transcript_id": "x", "score": "good"}', "line 1: score 'good' is no number"),
        ('{"transcript_id": "x", "score": true}', "is no number"),
        ('{"transcript_id": "x", "score": NaN}', "is no number"),
        (
            '{"transcript_id": "x", "score": 1}\n{"transcript_id": "x", "score": 2}',
            "line 2: transcript x is rated 1 above and 2 here",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, told):
    path = tmp_path / "ratings.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(ClinicError, match=told):
        read_ratings(path)


def test_what_editors_do_to_the_file_is_no_matter(tmp_path):
    path = tmp_path / "ratings.jsonl"
    strange = [{"role": "user", "content": "line\u2028separator\u0085"}]
    ask_for_ratings(path, [("c1", SAID), ("c2", strange)])
    rows = [json.loads(line) for line in path.read_text().split("\n") if line]
    # a mark, a blank line, no end of line
    path.write_text("\ufeff" + "\n\n".join(json.dumps(row | {"score": 2}, ensure_ascii=False) for row in rows))
    assert read_ratings(path) == {transcript_id(SAID): 2.0, transcript_id(strange): 2.0}
    assert ask_for_ratings(path, [("c3", [*SAID, *strange])]) == 1
    assert len(read_ratings(path)) == 2


def test_two_who_rate_at_once_lose_nothing(tmp_path):
    """Each reads the file, and writes it anew."""
    path = tmp_path / "ratings.jsonl"
    ask_for_ratings(path, [(f"c{number}", [{"role": "user", "content": f"{number} " * 400}]) for number in range(600)])
    talks = [[{"role": "user", "content": f"My knee hurts, {number}"}] for number in range(12)]
    raters = [threading.Thread(target=keep_rating, args=(path, "own", talk, 3)) for talk in talks]
    for rater in raters:
        rater.start()
    ask_for_ratings(path, [("c", SAID)])
    for rater in raters:
        rater.join()
    assert read_ratings(path) == {transcript_id(talk): 3.0 for talk in talks}
    assert len(path.read_text().splitlines()) == 600 + 12 + 1


@pytest.mark.parametrize("line", ["{", '{"score": 1}', "[1]", '{"transcript_id": "x", "score": "good"}'])
def test_nobody_writes_into_a_file_that_cannot_be_read(tmp_path, line):
    path = tmp_path / "ratings.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(ClinicError, match=r"ratings\.jsonl, line 1: "):
        keep_rating(path, "c", SAID, 2)
    with pytest.raises(ClinicError, match=r"ratings\.jsonl, line 1: "):
        ask_for_ratings(path, [("c", SAID)])
    assert path.read_text() == line + "\n"


def test_a_place_that_cannot_be_written_is_a_line(tmp_path):
    (tmp_path / "taken").write_text("")
    for path in (tmp_path / "taken" / "ratings.jsonl", tmp_path):
        with pytest.raises(ClinicError, match=r"correct path in recipes/rewards/human\.yaml"):
            keep_rating(path, "c", SAID, 2)
    with pytest.raises(ClinicError, match=r"correct path in recipes/rewards/human\.yaml"):
        read_ratings(tmp_path)


def test_half_a_character_is_rated_too(tmp_path):
    torn = [{"role": "user", "content": "it hurts \ud83d"}]
    keep_rating(tmp_path / "ratings.jsonl", "c", torn, 2)
    assert read_ratings(tmp_path / "ratings.jsonl") == {transcript_id(torn): 2.0}
