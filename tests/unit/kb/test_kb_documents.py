import gzip
import json
from pathlib import Path

import pytest

from kb.documents import Document, hash_sources, load_documents
from kb.errors import KnowledgeBaseError


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def write_jsonl(path: Path, *records: object) -> Path:
    return write(path, "".join(json.dumps(record) + "\n" for record in records))


def test_markdown_front_matter_fills_the_fields(tmp_path):
    write(
        tmp_path / "heart" / "angina.md",
        "---\ntitle: Angina\nsource: NHS\nlicence: OGL\ncondition: C01\nyear: 2020\n"
        "names: [angina, chest pain]\ncode: {icd: I20}\n---\n# Signs\n\nPain on effort.\n",
    )
    (document,), rejected = load_documents([tmp_path])
    assert rejected == []
    assert document == Document(
        doc_id="heart/angina",
        title="Angina",
        text="# Signs\n\nPain on effort.",
        source="NHS",
        licence="OGL",
        metadata={
            "condition": "C01",
            "year": "2020",
            "names": "angina; chest pain",
            "code": '{"icd": "I20"}',
        },
    )


def test_missing_fields_fall_back(tmp_path):
    write(tmp_path / "a.md", "# Gout  flare #\n\nA swollen toe.")
    write(tmp_path / "back_pain.txt", "Rest is not best.\r\nMove.")
    write(tmp_path / "c.md", "---\n---\nNo heading here.")
    documents, rejected = load_documents([tmp_path])
    assert rejected == []
    assert [(d.doc_id, d.title, d.licence) for d in documents] == [
        ("a", "Gout flare", "unknown"),
        ("back_pain", "back pain", "unknown"),
        ("c", "c", "unknown"),
    ]
    assert documents[1].text == "Rest is not best.\nMove."
    assert documents[1].source == (tmp_path / "back_pain.txt").as_posix()


def test_jsonl_plain_and_gzipped(tmp_path):
    medquad = {
        "doc_id": "MQ-1",
        "focus": "Gout",
        "qtype": "symptoms",
        "text": "A swollen toe.",
        "source": "NIDDK",
        "license": "CC BY 4.0",
        "category": None,
        "synonyms": [],
    }
    path = tmp_path / "b.jsonl.gz"
    path.write_bytes(gzip.compress((json.dumps(medquad) + "\n").encode()))
    write_jsonl(tmp_path / "a.jsonl", {"text": "One.", "title": "T"}, {"text": "Two."})
    documents, rejected = load_documents([path, tmp_path / "a.jsonl"])
    assert rejected == []
    assert [(d.doc_id, d.title) for d in documents] == [
        ("MQ-1", "Gout: symptoms"),
        ("a:1", "T"),
        ("a:2", ""),
    ]
    assert documents[0].licence == "CC BY 4.0"
    assert documents[0].metadata == {"focus": "Gout", "qtype": "symptoms", "synonyms": ""}


def test_folders_are_read_recursively_sorted_and_each_file_once(tmp_path):
    for name in ("b/2.txt", "a/9.txt", "1.txt", ".hidden/x.txt", ".gitkeep"):
        write(tmp_path / name, f"text of {name}")
    documents, rejected = load_documents([tmp_path, tmp_path / "1.txt"])
    assert [document.doc_id for document in documents] == ["1", "a/9", "b/2"]
    assert rejected == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{not json}", "not JSON"),
        ("[1, 2]", "not a JSON object but list"),
        ('{"title": "T"}', "no text"),
        ('{"text": "  "}', "no text"),
        ('{"text": "# only a heading"}', "no text below the headings"),
        ('{"text": ["a"]}', "field 'text' is list, not text"),
        ('{"text": true}', "field 'text' is bool, not text"),
        ('{"text": "half a pair: \\ud800"}', "not valid Unicode"),
        ('{"text": "again", "doc_id": "good"}', "duplicate doc_id 'good'"),
        ("9" * 5000, "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_record_is_rejected_with_its_line_and_reason(tmp_path, line, reason):
    path = write(tmp_path / "a.jsonl", '{"text": "fine", "doc_id": "good"}\n\n' + line + "\n")
    documents, (rejected,) = load_documents([path])
    assert [document.doc_id for document in documents] == ["good"]
    assert (rejected.path, rejected.line) == (path, 3)
    assert reason in rejected.reason
    assert "\n" not in rejected.reason


def test_an_undecodable_line_costs_only_itself(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "one"}\n{"text": "\xff"}\n{"text": "three"}\n')
    documents, (rejected,) = load_documents([path])
    assert [document.text for document in documents] == ["one", "three"]
    assert (rejected.line, "not UTF-8" in rejected.reason) == (2, True)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("bad.md", b"---\ntitle: Open\nno end", "not closed"),
        ("bad.md", b"---\na: &a [x, x]\nb: [*a, *a]\n---\ntext", "alias (*name)"),
        ("bad.md", b"---\ntitle: [\n---\ntext", "not YAML"),
        ("bad.md", b"---\n- a list\n---\ntext", "not a mapping"),
        ("bad.md", b"---\ntext: here\n---\ntext", "field 'text'"),
        ("bad.md", b"---\ntitle: 2020-01-01\n---\ntext", "field 'title' is date"),
        ("bad.md", b"---\ntitle: T\n---\n", "no text"),
        ("bad.txt", b"\xff\xfe", "not UTF-8"),
        ("bad.pdf", b"%PDF", "unknown file type"),
    ],
)
def test_a_bad_file_is_rejected_with_its_reason(tmp_path, name, content, reason):
    write(tmp_path / "good.txt", "fine")
    (tmp_path / name).write_bytes(content)
    documents, (rejected,) = load_documents([tmp_path])
    assert [document.doc_id for document in documents] == ["good"]
    assert rejected.path == tmp_path / name
    assert reason in rejected.reason
    assert "\n" not in rejected.reason


def test_a_missing_path_names_itself_and_the_fix(tmp_path):
    with pytest.raises(KnowledgeBaseError, match=r"nowhere does not exist: correct 'sources'"):
        load_documents([tmp_path / "nowhere"])


def test_an_empty_corpus_is_an_error(tmp_path):
    with pytest.raises(KnowledgeBaseError, match=r"no documents in .*: add .*\.md"):
        load_documents([tmp_path])
    write(tmp_path / "a.jsonl", "nonsense\n")
    with pytest.raises(KnowledgeBaseError, match=r"all 1 records were rejected.*a\.jsonl:1"):
        load_documents([tmp_path])


def test_a_damaged_gzip_is_an_error_not_a_short_corpus(tmp_path):
    whole = gzip.compress(b'{"text": "one"}\n' * 1000)
    (tmp_path / "a.jsonl.gz").write_bytes(whole[:-20])
    with pytest.raises(KnowledgeBaseError, match="not a whole gzip file"):
        load_documents([tmp_path])


def test_document_hash_sees_every_field():
    base = Document(doc_id="id", title="t", text="text", source="s", licence="l", metadata={"k": "v"})
    assert (
        base.sha256
        == Document(doc_id="id", title="t", text="text", source="s", licence="l", metadata={"k": "v"}).sha256
    )
    others = [
        Document(doc_id="id2", title="t", text="text", source="s", licence="l", metadata={"k": "v"}),
        Document(doc_id="id", title="t", text="text", source="s", licence="other", metadata={"k": "v"}),
        Document(doc_id="id", title="t", text="text", source="s", licence="l", metadata={"k": "w"}),
    ]
    assert base.sha256 not in {other.sha256 for other in others}


def test_sources_are_hashed_by_content(tmp_path):
    path = write(tmp_path / "a.txt", "one")
    before = hash_sources([tmp_path])
    write(path, "two")
    after = hash_sources([tmp_path])
    assert before.keys() == after.keys() == {path.as_posix()}
    assert before != after
