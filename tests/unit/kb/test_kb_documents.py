import gzip
import json
from pathlib import Path

import pytest

from kb.config import DocumentSource
from kb.documents import Document, load_documents
from kb.errors import KnowledgeBaseError
from kb.reading import Corpus


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def write_jsonl(path: Path, *records: object) -> Path:
    return write(path, "".join(json.dumps(record) + "\n" for record in records))


def load(root, *sources, licences=None):
    return load_documents(sources or ["."], root, licences)


def test_markdown_front_matter_fills_the_fields(tmp_path):
    write(
        tmp_path / "heart" / "angina.md",
        "---\ntitle: Angina\nsource: NHS\nlicence: OGL\ncondition: C01\nyear: 2020\n"
        "names: [angina, chest pain]\ncode: {icd: I20}\n---\n# Signs\n\nPain on effort.\n",
    )
    (document,), rejected = load(tmp_path)
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
    documents, rejected = load(tmp_path)
    assert rejected == []
    assert [(d.doc_id, d.title, d.licence) for d in documents] == [
        ("a", "Gout flare", "unknown"),
        ("back_pain.txt", "back pain", "unknown"),
        ("c", "c", "unknown"),
    ]
    assert documents[1].text == "Rest is not best.\nMove."
    assert documents[1].source == "back_pain.txt"


def test_lines_may_end_as_they_once_did(tmp_path):
    (tmp_path / "a.md").write_bytes(b"# Gout\r\rA swollen toe.\rIt hurts.")
    (document,), rejected = load(tmp_path)
    assert rejected == []
    assert (document.title, document.text) == ("Gout", "# Gout\n\nA swollen toe.\nIt hurts.")


def test_a_number_that_is_none_is_a_field_without_value(tmp_path):
    """As pandas writes an empty cell."""
    lines = [
        '{"text": "A toe.", "title": NaN, "source": NaN, "licence": NaN, "year": NaN, "focus": NaN}',
        '{"text": NaN}',
    ]
    write(tmp_path / "a.jsonl", "\n".join(lines))
    (document,), (rejected,) = load(tmp_path)
    assert (document.title, document.source, document.licence, document.metadata) == ("", "a.jsonl", "unknown", {})
    assert (rejected.line, rejected.reason) == (2, "no text: the field 'text' is missing or blank")


def test_whole_numbers_beside_empty_cells_are_whole(tmp_path):
    """As pandas writes a column of ids of which one is missing."""
    write_jsonl(tmp_path / "a.jsonl", {"text": "A toe.", "pmid": 12345.0, "year": 2020.0, "title": 1.5})
    fields = {"doc_id": "pmid", "date": "year", "title": "title", "text": "text"}
    (document,), _ = load(tmp_path, DocumentSource.model_validate({"path": "a.jsonl", "fields": fields}))
    assert (document.doc_id, document.date, document.title) == ("12345", "2020", "1.5")


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
    documents, rejected = load(tmp_path, "b.jsonl.gz", "a.jsonl")
    assert rejected == []
    assert [d.title for d in documents] == ["Gout: symptoms", "T", ""]
    assert documents[0].doc_id == "MQ-1"
    assert documents[0].licence == "CC BY 4.0"
    assert documents[0].metadata == {"focus": "Gout", "qtype": "symptoms", "synonyms": ""}


def test_folders_are_read_recursively_sorted_and_each_file_once(tmp_path):
    for name in ("b/2.txt", "a/9.txt", "1.txt", ".hidden/x.txt", ".gitkeep"):
        write(tmp_path / name, f"text of {name}")
    documents, rejected = load(tmp_path, ".", "1.txt")
    assert [document.doc_id for document in documents] == ["1.txt", "a/9.txt", "b/2.txt"]
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
    documents, (rejected,) = load(tmp_path)
    assert [document.doc_id for document in documents] == ["good"]
    assert (rejected.path, rejected.line) == (path.relative_to(tmp_path), 3)
    assert reason in rejected.reason
    assert "\n" not in rejected.reason


def test_an_undecodable_line_costs_only_itself(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "one"}\n{"text": "\xff"}\n{"text": "three"}\n')
    documents, (rejected,) = load(tmp_path)
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
        ("bad.docx", b"PK", "unknown file type"),
        ("bad.pdf", b"%PDF", "not a whole PDF"),
        ("bad.html", b"", "not HTML"),
        ("bad.html", b"<html><body><script>write('text')</script></body></html>", "no text on the page"),
        ("bad.xml", b"<ClinicalDocument/>", "its root is <ClinicalDocument>"),
        ("bad.xml", b"", "not whole XML"),
        (
            "bad.xml",
            b'<!DOCTYPE Document [<!ENTITY a SYSTEM "file:///etc/passwd">]><Document>&a;</Document>',
            "document type",
        ),
    ],
)
def test_a_bad_file_is_rejected_with_its_reason(tmp_path, name, content, reason):
    write(tmp_path / "good.md", "fine")
    (tmp_path / name).write_bytes(content)
    documents, (rejected,) = load(tmp_path)
    assert [document.doc_id for document in documents] == ["good"]
    assert rejected.path == Path(name)
    assert reason in rejected.reason
    assert "\n" not in rejected.reason


def test_a_missing_path_names_itself_and_the_fix(tmp_path):
    with pytest.raises(KnowledgeBaseError, match=r"nowhere does not exist: correct 'sources'"):
        load(tmp_path, "nowhere")


def test_an_empty_corpus_is_an_error(tmp_path):
    with pytest.raises(KnowledgeBaseError, match=r"no documents in 'sources': add \.md"):
        load(tmp_path)
    write(tmp_path / "a.jsonl", "nonsense\n")
    with pytest.raises(KnowledgeBaseError, match=r"all 1 records were rejected.*a\.jsonl:1: not JSON"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("spoil", "least"),
    [
        (lambda whole: whole[: len(whole) // 2], 100),
        (lambda whole: whole[:-8] + bytes(8), 1000),
        (lambda _: b"text", 0),
    ],
    ids=["cut off", "wrong checksum", "no gzip"],
)
def test_what_stands_before_the_damage_of_an_archive_is_kept(tmp_path, spoil, least):
    lines = [json.dumps({"text": f"one {number}", "doc_id": str(number)}) for number in range(1000)]
    (tmp_path / "a.jsonl.gz").write_bytes(spoil(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0)))
    write(tmp_path / "z.txt", "whole")
    documents, (rejected,) = load(tmp_path)
    assert [document.doc_id for document in documents] == [*map(str, range(len(documents) - 1)), "z.txt"]
    assert least < len(documents) <= 1001
    assert (rejected.path, rejected.line) == (Path("a.jsonl.gz"), len(documents))
    assert rejected.reason.startswith("cannot be read from here on")


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
    before = Corpus(["."], tmp_path, None, None).hashes
    write(path, "two")
    after = Corpus(["."], tmp_path, None, None).hashes
    assert before.keys() == after.keys() == {"a.txt"}
    assert before != after


MEDQUAD = {
    "title": ["focus", "qtype"],
    "text": ["lead", "body"],
    "source": "collection",
    "date": "year",
}


def test_a_mapped_row_takes_its_fields_from_the_columns_and_the_rest_from_the_entry(tmp_path):
    row = {
        "focus": "Gout", "qtype": "signs", "lead": "A red toe.", "body": ["It hurts.", None, "It is hot."], "collection": "NIDDK",
        "year": 2020, "language": "de", "title": "unused", "synonyms": ["podagra"],
    }  # fmt: skip
    write_jsonl(tmp_path / "a.jsonl", row, {"body": "Rest.", "licence": "MIT", "focus": "Sprain"})
    source = DocumentSource(path="a.jsonl", fields=MEDQUAD, licence="CC BY 4.0", language="en", source="MedQuAD")
    (first, second), rejected = load(tmp_path, source)
    assert rejected == []
    assert (first.title, first.text) == ("Gout: signs", "A red toe.\n\nIt hurts.\n\nIt is hot.")
    assert (first.source, first.licence, first.language, first.date) == ("NIDDK", "CC BY 4.0", "de", "2020")
    assert first.metadata == {"synonyms": "podagra"}
    assert (second.title, second.source, second.licence, second.language) == ("Sprain", "MedQuAD", "MIT", "en")


def test_a_column_that_no_row_has_is_told(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", {"abstract": "Gout hurts.", "pmid": 1})
    source = DocumentSource(path="a.jsonl", fields={"text": "abstract", "title": "titel"})
    (document,), (rejected,) = load(tmp_path, source)
    assert (document.text, document.title) == ("Gout hurts.", "")
    assert str(rejected) == "a.jsonl: no record has the column 'titel' that 'fields' of its source names"


def test_a_date_and_an_address_are_read_from_front_matter(tmp_path):
    write(tmp_path / "a.md", "---\nurl: https://example.org/a\ndate: 2024-05-01\nlanguage: en\n---\nRest.")
    (document,), _ = load(tmp_path)
    assert (document.url, document.date, document.language) == ("https://example.org/a", "2024-05-01", "en")


def test_front_matter_may_have_dates_and_numbers_for_keys(tmp_path):
    write(tmp_path / "a.md", "---\nrevisions: {2024-05-01: first, note: second, 3: [{1: x, b: y}]}\n---\nGout hurts.")
    (document,), rejected = load_documents(["a.md"], tmp_path, None)
    assert not rejected
    assert json.loads(document.metadata["revisions"]) == {
        "2024-05-01": "first",
        "note": "second",
        "3": [{"1": "x", "b": "y"}],
    }


def test_only_allowed_licences_are_kept(tmp_path):
    rows = [{"text": f"{name}.", "licence": name} for name in ("CC0-1.0", "cc by 4.0", "CC BY-NC 4.0", "")]
    write_jsonl(tmp_path / "a.jsonl", *rows)
    documents, rejected = load(tmp_path, licences=["CC0 1.0", "CC-BY-4.0"])
    assert [document.licence for document in documents] == ["CC0-1.0", "cc by 4.0"]
    assert [(item.line, item.reason) for item in rejected] == [
        (3, "licence 'CC BY-NC 4.0' is none of 'licences' (CC0 1.0, CC-BY-4.0)"),
        (4, "licence 'unknown' is none of 'licences' (CC0 1.0, CC-BY-4.0)"),
    ]


def test_a_row_without_an_id_keeps_its_name_when_another_is_put_above_it(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", {"text": "One."}, {"text": "Two."})
    before = {document.text: document.doc_id for document in load(tmp_path)[0]}
    write_jsonl(path, {"text": "Zero."}, {"text": "One."}, {"text": "Two."}, {"text": "One."})
    documents, (again,) = load(tmp_path)
    after = {document.text: document.doc_id for document in documents}
    assert {name: after[name] for name in before} == before
    assert len(set(after.values())) == 3
    assert all(doc_id.startswith("a.jsonl:") for doc_id in after.values())
    assert (again.line, "duplicate" in again.reason) == (4, True)


@pytest.mark.parametrize(
    "text", ["go\u00adut\0 \u200bhur\u202ets", "gout \u2066hurts\u2069\ufeff\U000e0041", "gout" + " " * 50 + "hurts"]
)
def test_what_nobody_sees_is_taken_out(tmp_path, text):
    write_jsonl(tmp_path / "a.jsonl", {"text": text + "\n" * 40 + "End.", "title": text})
    (document,), _ = load(tmp_path)
    assert document.text == "gout hurts\n\nEnd."
    assert document.title == "gout hurts"
