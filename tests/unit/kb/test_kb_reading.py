"""Files that were read before are not read again, and what they hold is the same."""

import pytest

from kb import reading
from kb.cache import Cache
from kb.config import DocumentSource
from kb.documents import load_documents
from kb.errors import KnowledgeBaseError
from kb.reading import Corpus


@pytest.fixture
def root(tmp_path):
    """Two files that hold something, and several reasons why not."""
    (tmp_path / "gout.md").write_text("---\nlicence: CC0-1.0\n---\nGout hurts.")
    (tmp_path / "more.jsonl").write_text(
        '{"doc_id": "gout", "text": "Again."}\n{"doc_id": "flu", "text": "A fever.", "license": "CC0 1.0"}\nno JSON\n'
    )
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "nowhere.md").symlink_to("not there")
    return tmp_path


@pytest.fixture
def read(root, tmp_path_factory, monkeypatch):
    """Lists the documents with a cache: the corpus, and the files that were read."""
    cache, original = Cache(tmp_path_factory.mktemp("cache") / "kb.sqlite"), reading.documents_in
    names: list[str] = []
    monkeypatch.setattr(reading, "documents_in", lambda file: names.append(file.name) or original(file))

    def listed(sources=(".",), licences=None):
        names.clear()
        corpus = Corpus(list(sources), root, licences, cache)
        return corpus, list(names)

    return listed


@pytest.mark.parametrize("licences", [None, ["CC0 1.0"]])
def test_what_is_known_is_what_would_be_read(root, read, licences):
    documents, rejected = load_documents(["."], root, licences)
    for names in (["empty.txt", "gout.md", "more.jsonl"], []):
        corpus, touched = read(licences=licences)
        assert sorted(touched) == names
        assert [(one.doc_id, one.licence, one.sha256) for one in corpus.documents] == [
            (one.doc_id, one.licence, one.sha256) for one in documents
        ]
        assert corpus.rejected == rejected
        assert corpus.hashes.keys() == {"empty.txt", "gout.md", "more.jsonl"}
        assert corpus.read(corpus.documents) == documents


def test_only_the_file_of_a_wanted_document_is_read(root, read):
    read()
    corpus, _ = read()
    flu = [one for one in corpus.documents if one.doc_id == "flu"]
    assert [document.text for document in corpus.read(flu)] == ["A fever."]
    (root / "gout.md").write_text("Gout hurts a lot.")
    corpus, touched = read()
    assert touched == ["gout.md"]
    assert [document.text for document in corpus.read(corpus.documents)] == ["Gout hurts a lot.", "A fever."]


def test_another_entry_name_or_version_of_a_library_is_another_reading(root, read, monkeypatch):
    read(["gout.md"])
    for source in (
        DocumentSource(path="gout.md", licence="CC BY 4.0"),
        DocumentSource(path="gout.md", language="en"),
        DocumentSource(path="gout.md", source="a book"),
    ):
        assert read([source])[1] == ["gout.md"]
    assert read(["gout.md"])[1] == []
    (root / "gout.md").rename(root / "podagra.md")
    corpus, touched = read(["podagra.md"])
    assert ([one.doc_id for one in corpus.documents], touched) == (["podagra"], ["podagra.md"])
    monkeypatch.setattr(reading, "version", lambda name: f"{name} 99")
    assert read(["podagra.md"])[1] == ["podagra.md"]


def test_a_stop_while_files_are_read_loses_the_last_seconds_alone(root, tmp_path, monkeypatch):
    cache, original, seen = Cache(tmp_path.parent / f"{tmp_path.name}.sqlite"), reading.documents_in, []

    def stopped(file):
        if file.name == "more.jsonl" and not seen.count("more.jsonl"):
            seen.append(file.name)
            raise KeyboardInterrupt
        seen.append(file.name)
        return original(file)

    monkeypatch.setattr(reading, "documents_in", stopped)
    monkeypatch.setattr(reading, "KEPT_EVERY_S", -1.0)
    with pytest.raises(KeyboardInterrupt):
        Corpus(["."], root, None, cache)
    Corpus(["."], root, None, cache)
    assert seen == ["empty.txt", "gout.md", "more.jsonl", "more.jsonl"]


@pytest.mark.parametrize("known", [False, True])
def test_a_file_that_changes_while_it_is_read_is_named_and_nothing_of_it_is_kept(root, tmp_path, monkeypatch, known):
    """Else the cache would say of the one text what stood in the other, for good."""
    cache, original = Cache(tmp_path / "cache" / "kb.sqlite"), reading.documents_in
    before = Corpus(["gout.md"], root, None, cache) if known else None
    was = (root / "gout.md").read_text()

    def changed(file):
        file.path.write_text("Gout hurts ten times.")
        return original(file)

    monkeypatch.setattr(reading, "documents_in", changed)
    with pytest.raises(KnowledgeBaseError, match=r"gout\.md changed while it was read: run the build again"):
        Corpus(["gout.md"], root, None, cache).read(before.documents if before else [])
    monkeypatch.undo()
    (root / "gout.md").write_text(was)
    corpus = Corpus(["gout.md"], root, None, cache)
    assert [one.text for one in corpus.read(corpus.documents)] == ["Gout hurts."]
