import pytest
from pydantic import ValidationError

from kb.config import KnowledgeBaseParams

GOOD = {
    "sources": ["data/starter/articles"],
    "embedder": "all-MiniLM-L6-v2",
    "max_tokens": 256,
    "overlap_tokens": 32,
    "batch_size": 32,
    "queries": None,
    "qrels": None,
}


def test_good_settings_are_kept_and_frozen():
    params = KnowledgeBaseParams(**GOOD)
    assert params.model_dump() == GOOD
    with pytest.raises(ValidationError):
        params.max_tokens = 128


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sources": []}, "name at least one"),
        ({"sources": [" "]}, "none blank"),
        ({"embedder": ""}, "embedder is blank"),
        ({"max_tokens": 15}, "choose 16 to 256"),
        ({"max_tokens": 257}, "choose 16 to 256"),
        ({"overlap_tokens": 256}, "less than max_tokens"),
        ({"overlap_tokens": -1}, "0 or more"),
        ({"batch_size": 0}, "choose 1 or more"),
        ({"queries": "q.jsonl"}, "both files or neither"),
        ({"chunk_size": 3}, "Extra inputs are not permitted"),
    ],
)
def test_bad_settings_are_refused_in_one_line_each(change, words):
    with pytest.raises(ValidationError, match=words) as caught:
        KnowledgeBaseParams(**{**GOOD, **change})
    (error,) = caught.value.errors()
    assert "\n" not in error["msg"]


@pytest.mark.parametrize("name", sorted(GOOD))
def test_nothing_has_a_default(name):
    with pytest.raises(ValidationError, match="Field required"):
        KnowledgeBaseParams(**{key: value for key, value in GOOD.items() if key != name})
