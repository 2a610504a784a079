import json

import pytest

from clinic.errors import ClinicError
from clinic.ratings import ask_for_ratings, read_ratings, transcript_id

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
