"""Which files are read, under which names; and that nothing in a folder makes a build hang or lose a file in silence."""

import os

import pytest

from kb.cache import Cache
from kb.config import DocumentSource
from kb.errors import KnowledgeBaseError
from kb.reading import Corpus
from kb.sources import new_file, source_files


@pytest.fixture
def root(tmp_path):
    """A project with two folders of articles."""
    for name in ("a/gout.md", "a/gout.txt", "a/gout.html", "b/gout.md", "b/sub/flu.MD", "b/.hidden/x.md"):
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / name).write_text(f"<p>{name}")
    return tmp_path / "project"


def test_one_name_in_two_folders_or_with_two_suffixes_makes_two_ids(root):
    files, rejected = source_files(["a", "b"], root)
    assert {file.name: file.stem for file in files} == {
        "a/gout.html": "gout.html",
        "a/gout.md": "gout",
        "a/gout.txt": "gout.txt",
        "b/gout.md": "b/gout.md",
        "b/sub/flu.MD": "sub/flu",
    }
    assert rejected == []


def test_a_new_neighbour_renames_nothing(root):
    before = {file.name: file.stem for file in source_files(["a", "b"], root)[0]}
    for name in ("a/aaa.md", "a/gout.jsonl", "a/gout.jsonl.gz", "b/gout.pdf", "b/sub/gout.md"):
        (root / name).touch()
    after = {file.name: file.stem for file in source_files(["a", "b"], root)[0]}
    assert {name: after[name] for name in before} == before
    assert len(set(after.values())) == len(before) + 5


def test_names_are_relative_to_the_project_and_never_absolute(root, tmp_path):
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "flu.md").touch()
    files, _ = source_files([root / "a" / "gout.md", "../library", tmp_path / "library" / "flu.md"], root)
    assert [(file.name, file.stem) for file in files] == [("a/gout.md", "gout"), ("library/flu.md", "flu")]
    assert Corpus(["b"], root, None, None).hashes.keys() == {"b/gout.md", "b/sub/flu.MD"}


def test_sources_of_one_name_keep_their_files_apart(root, tmp_path):
    for year in ("2023", "2024"):
        (tmp_path / year / "a").mkdir(parents=True)
        (tmp_path / year / "a" / "gout.md").write_text(f"Gout in {year}.")
    sources = [tmp_path / "2023" / "a", tmp_path / "2024" / "a", "a"]
    files, _ = source_files(sources, root)
    assert [file.name for file in files] == [
        "a/gout.md",
        "2024/a/gout.md",
        "project/a/gout.html",
        "project/a/gout.md",
        "project/a/gout.txt",
    ]
    assert len({file.stem for file in files}) == len(files)
    for cache in (None, Cache(tmp_path / "kb.sqlite"), Cache(tmp_path / "kb.sqlite")):
        corpus = Corpus(sources, root, None, cache)
        assert [one.text for one in corpus.read(corpus.documents)][:2] == ["Gout in 2023.", "Gout in 2024."]
        assert len(corpus.hashes) == len(files)


def test_one_more_file_is_named_as_it_would_be_listed(root):
    before = {file.stem for file in source_files(["a", "b"], root)[0]}
    for name, source in (("b/flu.md", "b"), ("b/sub/gout.md", "b"), ("a/angina.md", "a"), ("b/gout.txt", "b")):
        (root / name).touch()
        (listed,) = (file for file in source_files(["a", "b"], root)[0] if file.name == name)
        assert new_file(root / name, source, root, before) == listed


def test_what_is_no_file_is_told(root):
    folder = root / "a"
    os.mkfifo(folder / "pipe.md")
    (folder / "nowhere.md").symlink_to("not there")
    (folder / "circle.md").symlink_to("circle.md")
    (folder / "itself").symlink_to(folder)
    (folder / "other").symlink_to(root / "b")
    (folder / "book.md").mkdir()
    (folder / "book.md" / "page.md").touch()
    (folder / os.fsdecode(b"caf\xe9.md")).touch()
    files, rejected = source_files(["a"], root)
    assert [file.stem for file in files] == [
        "book.md/page", "gout.html", "gout", "gout.txt", "other/gout", "other/sub/flu",
    ]  # fmt: skip
    assert {str(item.path): item.reason for item in rejected} == {
        "a/pipe.md": "no file but a pipe, a socket or a device",
        "a/nowhere.md": "a link that leads nowhere",
        "a/circle.md": "a file that cannot be reached (Too many levels of symbolic links)",
        "a/itself": "a link to a folder that is read already",
        "a/book.md": "a folder with the name of a file; the files in it are read",
        "a/caf\\xe9.md": "a file whose name is not UTF-8; rename it",
    }


def test_what_is_no_file_is_told_once_even_if_its_folder_is_a_source_twice(root):
    (root / "a" / "nowhere.md").symlink_to("not there")
    _, rejected = source_files(["a", "./a", "."], root)
    assert [str(item.path) for item in rejected] == ["a/nowhere.md"]


def test_what_an_entry_says_of_files_that_an_earlier_one_reads_is_told_to_be_lost(root):
    again = DocumentSource(path="a/gout.md", licence="MIT")
    files, (rejected,) = source_files(["a", again, "a"], root)
    assert {file.source.licence for file in files} == {None}
    assert str(rejected) == "a/gout.md: an earlier entry of 'sources' reads all of it: put this entry before that one"
    assert source_files([again, "a"], root)[1] == []


def test_a_source_that_is_no_file_is_refused(root):
    os.mkfifo(root / "pipe.md")
    with pytest.raises(KnowledgeBaseError, match=r"source pipe\.md is no file but a pipe"):
        source_files(["pipe.md"], root)
    with pytest.raises(KnowledgeBaseError, match=r"source nowhere does not exist: correct 'sources'"):
        source_files(["nowhere"], root)
