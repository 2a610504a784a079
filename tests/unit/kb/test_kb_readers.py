"""What a file states, before anybody asks whether it makes a document."""

import gzip

import pytest

from kb.readers import read_records, suffix_of
from kb.records import Record, Rejected


@pytest.mark.parametrize(
    ("name", "suffix"),
    [("a.md", ".md"), ("A.MD", ".md"), ("a.jsonl.gz", ".jsonl.gz"), ("a.gz", None), ("md", None), ("a.txt.bak", None)],
)
def test_the_kind_is_how_the_name_ends(tmp_path, name, suffix):
    assert suffix_of(tmp_path / name) == suffix


def test_an_unknown_kind_is_told_which_there_are(tmp_path):
    (found,) = read_records(tmp_path / "a.docx")
    reason = "unknown file type: use .md, .txt, .html, .htm, .pdf, .xml, .jsonl, .jsonl.gz"
    assert found == Rejected(tmp_path / "a.docx", None, reason)


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        ("---\ntitle: Gout\n---\nA toe.", {"title": "Gout", "text": "A toe."}),
        ("---\r\ntitle: Gout\r\n---\r\nA toe.", {"title": "Gout", "text": "A toe."}),
        ("\ufeff---\ntitle: Gout\n---\nA toe.", {"title": "Gout", "text": "A toe."}),
        ("---\n# a remark\n---\nA toe.", {"text": "A toe."}),
        ("---\n1: one\n---\nA toe.", {"1": "one", "text": "A toe."}),
        ("A toe.\n---\ntitle: Gout\n---\n", {"text": "A toe.\n---\ntitle: Gout\n---\n"}),
        ("", {"text": ""}),
    ],
)
def test_front_matter_is_what_the_first_line_opens(tmp_path, content, fields):
    (tmp_path / "a.md").write_bytes(content.encode())
    (found,) = read_records(tmp_path / "a.md")
    assert isinstance(found, Record)
    assert found.fields == fields


def test_plain_text_has_no_front_matter(tmp_path):
    (tmp_path / "a.txt").write_text("---\ntitle: Gout\n---\nA toe.")
    (found,) = read_records(tmp_path / "a.txt")
    assert found == Record(tmp_path / "a.txt", None, {"text": "---\ntitle: Gout\n---\nA toe."})


def test_lines_of_a_gzipped_file_are_those_of_the_plain_one(tmp_path):
    lines = b'{"text": "a"}\n\n[1]\n{"text": "\\u00e9"}\nno json\n\xff\n{"text": "last"}'
    (tmp_path / "a.jsonl").write_bytes(lines)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines))
    plain, packed = (list(read_records(tmp_path / name)) for name in ("a.jsonl", "a.jsonl.gz"))
    assert [(found.line, type(found)) for found in plain] == [
        (1, Record), (3, Rejected), (4, Record), (5, Rejected), (6, Rejected), (7, Record),
    ]  # fmt: skip
    assert [found.fields for found in plain if isinstance(found, Record)] == [
        {"text": "a"},
        {"text": "é"},
        {"text": "last"},
    ]
    assert [(f.line, getattr(f, "reason", "")) for f in plain] == [(f.line, getattr(f, "reason", "")) for f in packed]
