"""HTML, PDF and MedQuAD's XML, as documents; and what is said of them where they are damaged."""

import json
import sys
from pathlib import Path

import pytest

from kb.documents import load_documents
from kb.errors import KnowledgeBaseError
from kb.records import Rejected, write_rejected
from tests.unit.kb.documents import MEDQUAD, PAGE, pdf


def load(path):
    return load_documents([path.name], path.parent, None)


def test_a_page_is_read_without_what_surrounds_its_text(tmp_path):
    (tmp_path / "gout.html").write_text(PAGE)
    (document,), rejected = load(tmp_path / "gout.html")
    assert rejected == []
    assert (document.doc_id, document.title, document.language) == ("gout.html", "Gout", "en")
    assert (document.url, document.date, document.licence) == ("https://example.org/gout", "2021-03-04", "CC BY 4.0")
    assert document.source == "example.org"
    assert "comes from crystals" in document.text
    assert "## Drugs" in document.text
    assert "| colchicine | 0.5 mg |" in document.text
    assert "Home" not in document.text
    assert "footer" not in document.text


def test_a_page_that_marks_no_article_keeps_its_headings_and_lists(tmp_path):
    told = " ".join(f"Gout of kind {n} is a disease of the joints that comes from crystals." for n in range(5))
    page = PAGE.replace("<article>", "").replace("</article>", "")
    page = page.replace("<h2>Drugs", f"<p>{told}</p><h2>Signs</h2><ul><li>a red toe</li><li>fever</li></ul><h2>Drugs")
    (tmp_path / "gout.html").write_text(page)
    (document,), _ = load(tmp_path / "gout.html")
    assert "## Signs\n\n- a red toe\n- fever\n" in document.text
    assert "## Drugs" in document.text
    assert "| colchicine | 0.5 mg |" in document.text
    assert "Home" not in document.text
    assert "footer" not in document.text


@pytest.mark.parametrize("around", ["{}", "<div>{}</div>", "<article>{}</article>", "<html>{}"])
def test_so_does_a_piece_of_a_page(tmp_path, around):
    told = "<h1>Gout</h1><p>Gout is a disease of the joints.</p><ul><li>a red toe</li><li>fever</li></ul>"
    (tmp_path / "gout.html").write_text(around.format(told))
    (document,), _ = load(tmp_path / "gout.html")
    assert document.text == "# Gout\n\nGout is a disease of the joints.\n\n- a red toe\n- fever"


def test_what_a_page_says_has_no_backslashes_of_markdown(tmp_path):
    told = ["1. HbA1c &lt; 7% [2], ~5 mg of a_b*", "- a pill", "# 3 is no heading"]
    cells = "<table><tr><th>Age</th><th>Dose</th></tr><tr><td>&lt; 5</td><td>a|b</td></tr></table>"
    page = "".join(f"<p>{one}</p>" for one in told)
    (tmp_path / "a.html").write_text(f"<html><body><article>{page}{cells}</article></body></html>")
    (document,), _ = load(tmp_path / "a.html")
    assert document.text.split("\n\n") == [
        "1. HbA1c < 7% [2], ~5 mg of a_b*",
        "- a pill",
        "\\# 3 is no heading",
        "| Age | Dose | \n|---|---|\n| < 5 | a\\|b |",
    ]


def test_raised_and_lowered_characters_have_no_tags(tmp_path):
    said = "H<sub>2</sub>O, 10<sup>9</sup>/L, Na<sup>+</sup>, a <b>1<sup>st</sup></b> dose, &lt;sub&gt;"
    (tmp_path / "a.html").write_text(f"<html><body><article><p>{said}</p></article></body></html>")
    (document,), _ = load(tmp_path / "a.html")
    assert document.text == "H2O, 10^9/L, Na^+, a **1st** dose, <sub>"


def test_a_page_in_another_encoding_is_read_too(tmp_path):
    page = '<html lang="de"><head><meta charset="iso-8859-1"></head><body><p>Die Gicht schmerzt, sie löst Anfälle aus.</p></body></html>'
    (tmp_path / "gicht.htm").write_bytes(page.encode("iso-8859-1"))
    (document,), _ = load(tmp_path / "gicht.htm")
    assert (document.text, document.language) == ("Die Gicht schmerzt, sie löst Anfälle aus.", "de")


def test_a_page_of_too_many_elements_is_rejected_before_it_takes_long(tmp_path):
    (tmp_path / "a.html").write_text("<html><body>" + "<p>a</p>" * 60_000 + "</body></html>")
    with pytest.raises(KnowledgeBaseError, match="elements, 50,000 at most: split it"):
        load(tmp_path / "a.html")


def test_the_pages_of_a_pdf_become_one_document(tmp_path):
    (tmp_path / "gout.pdf").write_bytes(pdf("Gout hurts.", "It comes at night."))
    (document,), rejected = load(tmp_path / "gout.pdf")
    assert rejected == []
    assert (document.doc_id, document.title, document.language) == ("gout.pdf", "Gout", "en")
    assert document.text == "Gout hurts.\n\nIt comes at night."


def test_of_a_damaged_pdf_the_sound_pages_are_kept(tmp_path):
    (tmp_path / "gout.pdf").write_bytes(pdf("Gout hurts.", None, "It comes at night."))
    (document,), rejected = load(tmp_path / "gout.pdf")
    assert document.text.split() == ["Gout", "hurts.", "It", "comes", "at", "night."]
    assert [str(item)[:52] for item in rejected] == ["gout.pdf: not a whole PDF: page 2 of 3 cannot be rea"]


def test_a_pdf_without_text_is_told_what_to_do(tmp_path):
    (tmp_path / "scan.pdf").write_bytes(pdf(""))
    with pytest.raises(KnowledgeBaseError, match=r"scan\.pdf: no text in it: .*OCR"):
        load(tmp_path / "scan.pdf")


def test_every_answer_of_a_medquad_file_is_a_document(tmp_path):
    (tmp_path / "0000007.xml").write_text(MEDQUAD)
    (first, second), (rejected,) = load(tmp_path / "0000007.xml")
    assert (first.doc_id, first.title) == ("MQ-NIDDK-0000007-0000007-1", "Gout: information")
    assert first.text == "A disease of\nthe joints. - It hurts.\n\nIt comes at night."
    assert (first.source, first.url, first.licence) == ("NIDDK", "https://example.org/gout", "unknown")
    assert first.metadata["synonyms"] == "podagra"
    assert (second.title, second.text) == ("Gout: symptoms", "A red toe.")
    assert str(rejected) == "0000007.xml: QAPair '2' has no answer"


def test_of_a_truncated_medquad_file_the_answers_before_its_end_are_kept(tmp_path):
    (tmp_path / "a.xml").write_text(MEDQUAD[: MEDQUAD.index("A red toe")])
    (document,), rejected = load(tmp_path / "a.xml")
    assert document.title == "Gout: information"
    assert [(item.line, item.reason[:13]) for item in rejected] == [(None, "QAPair '2' ha"), (13, "not whole XML")]


def test_entities_are_refused_before_they_are_read(tmp_path):
    bomb = '<!DOCTYPE Document [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    (tmp_path / "a.xml").write_text(MEDQUAD.replace("<Document", bomb + "<Document", 1).replace("A red toe", "&b;"))
    (tmp_path / "b.md").write_text("Rest.")
    (document,), (rejected,) = load_documents(["."], tmp_path, None)
    assert document.text == "Rest."
    assert rejected.reason == "XML with a document type or entities, which are not read (DTDForbidden)"


@pytest.mark.parametrize(("name", "package"), [("a.html", "trafilatura"), ("a.pdf", "pypdf"), ("a.xml", "defusedxml")])
def test_a_missing_library_is_named_with_its_file_and_the_command(tmp_path, monkeypatch, name, package):
    for module in [package, *(loaded for loaded in sys.modules if loaded.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / name).touch()
    with pytest.raises(
        KnowledgeBaseError, match=rf"{name} needs the package {package}.*pip install -e '\.\[documents\]'"
    ):
        load(tmp_path / name)


def test_what_was_rejected_is_written_a_line_each(tmp_path):
    write_rejected(
        [Rejected(Path("a/b.jsonl"), 3, "not JSON"), Rejected(Path("é.pdf"), None, "cut")], tmp_path / "r.jsonl"
    )
    lines = (tmp_path / "r.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"file": "a/b.jsonl", "line": 3, "reason": "not JSON"},
        {"file": "é.pdf", "line": None, "reason": "cut"},
    ]
    write_rejected([], tmp_path / "r.jsonl")
    assert (tmp_path / "r.jsonl").read_text() == ""
