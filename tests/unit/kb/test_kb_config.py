import json
import os

import pytest
from pydantic import ValidationError

from kb.config import KnowledgeBaseParams, read_params
from kb.errors import KnowledgeBaseError

GOOD = {
    "sources": ["data/starter/articles"],
    "licences": None,
    "near_duplicate": 0.9,
    "embedder": "all-MiniLM-L6-v2",
    "max_tokens": 256,
    "overlap_tokens": 32,
    "batch_size": 32,
    "compute": "float32",
    "max_unknown_share": 0.05,
    "fusion": {"method": "weighted", "lexical_weight": 0.3, "candidates": 300},
    "bm25": {"k1": 1.5, "b": 0.75, "stemmer": "english", "title_weight": 3, "document_weight": 1.0},
    "index": {"kind": "auto", "hnsw_from": 50000, "ivf_pq_from": 1000001, "probes": 64, "rerank": 100},
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
        ({"compute": "int8"}, "float32"),
        ({"fusion": GOOD["fusion"] | {"lexical_weight": 1.1}}, "less than or equal to 1"),
        ({"fusion": GOOD["fusion"] | {"method": "borda"}}, "weighted"),
        ({"index": GOOD["index"] | {"kind": "lsh"}}, "ivf_pq"),
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


def test_a_section_is_read_from_its_file_alone(tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text(json.dumps({"knowledge_base": GOOD, "rollout": "of no interest"}))
    assert read_params(file) == KnowledgeBaseParams(**GOOD)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "does not exist"),
        ("a: [", "not valid YAML"),
        ("seed: 0", "no section knowledge_base"),
        (json.dumps({"knowledge_base": GOOD | {"batch_size": 0}}), "knowledge_base.batch_size: batch_size is 0"),
        (json.dumps({"knowledge_base": {"batch_sise": 1}}), "knowledge_base.batch_sise: unknown key; correct or"),
        (json.dumps({"knowledge_base": {}}), "knowledge_base.sources: missing; add it"),
        (
            json.dumps({"knowledge_base": GOOD | {"bm25": GOOD["bm25"] | {"b": 2}}}),
            "knowledge_base.bm25.b: .*less than",
        ),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, content, words):
    file = tmp_path / "params.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(KnowledgeBaseError, match=f"params.yaml.*{words}") as caught:
        read_params(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_not_waited_for(tmp_path, make):
    make(tmp_path / "params.yaml")
    with pytest.raises(KnowledgeBaseError, match=r"params\.yaml is not valid YAML: .* name a regular file"):
        read_params(tmp_path / "params.yaml")


def test_a_source_is_kept_as_it_was_written():
    mapped = {"path": "a.jsonl", "fields": {"title": ["focus", "qtype"]}, "licence": "CC BY 4.0"}
    params = KnowledgeBaseParams(**{**GOOD, "sources": ["articles", mapped]})
    assert [source.path for source in params.sources] == ["articles", "a.jsonl"]
    assert params.sources[1].fields.columns() == {"title": ("focus", "qtype")}
    assert KnowledgeBaseParams(**params.model_dump(mode="json")) == params
