import pytest
from pydantic import ValidationError

from kb.config import KnowledgeBaseParams

GOOD = {
    "sources": ["data/starter/articles"],
    "licences": None,
    "near_duplicate": 0.9,
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
        ({"sources": []}, "at least 1 item"),
        ({"sources": [" "]}, "path is blank"),
        ({"sources": [{"fields": {"text": "abstract"}}]}, "Field required"),
        ({"sources": [{"path": "a.jsonl", "fields": {"abstract": "text"}}]}, "Extra inputs are not permitted"),
        ({"sources": [{"path": "a.jsonl", "license": "CC0"}]}, "Extra inputs are not permitted"),
        ({"sources": [3]}, "valid dictionary"),
        ({"licences": []}, "at least 1 item"),
        ({"near_duplicate": 0}, "greater than 0"),
        ({"near_duplicate": 1.1}, "less than or equal to 1"),
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


def test_a_source_is_kept_as_it_was_written():
    mapped = {"path": "a.jsonl", "fields": {"title": ["focus", "qtype"]}, "licence": "CC BY 4.0"}
    params = KnowledgeBaseParams(**{**GOOD, "sources": ["articles", mapped]})
    assert [source.path for source in params.sources] == ["articles", "a.jsonl"]
    assert params.sources[1].fields.columns() == {"title": ("focus", "qtype")}
    assert KnowledgeBaseParams(**params.model_dump(mode="json")) == params
