"""The whole way from files to hits, with the bundled embedder; and the library alone."""

import errno
import json
import random
import re
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

import kb
from kb.__main__ import main
from kb.building import import_embedder
from kb.errors import KnowledgeBaseError
from kb.index import KnowledgeIndex
from kb.search import Searcher

ROOT = Path(__file__).parents[3]
TEXTS = {"gout.md": "Gout hurts the big toe at night.", "angina.md": "Angina is chest pain on effort."}
CHINESE = "\u80f8\u75db\u4e09\u5929\uff0c\u4f34\u6709\u53d1\u70ed\u3002" * 3


@pytest.fixture
def sources(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / name).write_text(f"---\nlicence: CC0-1.0\nlanguage: en\n---\n{text}\n")
    return folder


@pytest.fixture
def fake(monkeypatch, make_embedder):
    """A fake in place of the bundled embedder."""
    embedder = make_embedder("all-MiniLM-L6-v2")
    for module in ("building", "search"):
        monkeypatch.setattr(f"kb.{module}.load_embedder", lambda *_: embedder)
    return embedder


def with_fusion(params, **changes):
    return params.model_copy(update={"fusion": params.fusion.model_copy(update=changes)})


def test_build_and_open(sources, tmp_path, params, fake):
    (sources / "empty.md").write_text("")
    built = kb.build([sources], tmp_path / "index", params)
    assert (built.documents, built.rejected, built.embedded) == (2, 1, 2)
    (line,) = (tmp_path / "index" / "rejected.jsonl").read_text().splitlines()
    assert json.loads(line)["file"].endswith("empty.md")
    searcher = kb.open(tmp_path / "index")
    assert searcher.search("chest pain", 1)[0].passage.doc_id == "angina"
    assert searcher.search("chest pain", 1, {"language": "zh"}) == []


def test_one_changed_sentence_is_one_embedded_passage_and_the_bytes_of_a_build_from_nothing(
    sources, tmp_path, params, fake
):
    kb.build([sources], tmp_path / "index", params, cache=tmp_path / "kb.sqlite")
    (sources / "gout.md").write_text("Gout hurts the big toe. It comes at night.")
    again = kb.build([sources], tmp_path / "index", params, cache=tmp_path / "kb.sqlite")
    fresh = kb.build([sources], tmp_path / "fresh", params)
    assert (again.embedded, fresh.embedded) == (1, 2)
    assert again.manifest == fresh.manifest


@pytest.mark.parametrize("seed", range(4))
def test_an_index_has_the_same_bytes_whatever_the_cache_holds(sources, tmp_path, params, fake, seed):
    """Editions in which documents come, go, change and repeat each other; from the cache any row may be missing."""
    rng = random.Random(seed)
    said = [
        " ".join(rng.choices(["gout", "flu", "pain", "toe", "fever", "night", "5", "50", "mg"], k=40)) + "."
        for _ in range(6)
    ]
    cache = tmp_path / "kb.sqlite"
    for edition in range(5):
        for number in range(8):
            text = f"# Signs\n{rng.choice(said)} {rng.choice(said)}\n\n{'It ends. ' * rng.randrange(2)}"
            if rng.random() < 0.4:
                (sources / f"d{number}.md").write_text(text)
            elif rng.random() < 0.2:
                (sources / f"d{number}.md").unlink(missing_ok=True)
        rows = [{"doc_id": f"r{n}", "text": rng.choice(said)} for n in range(rng.randrange(4))]
        (sources / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, *rows[:1]]))
        built = [kb.build([sources], tmp_path / f"i{edition}", params, cache=cache)]
        built += [kb.build([sources], tmp_path / f"f{edition}", params)]
        assert built[0].manifest == built[1].manifest
        assert (built[0].documents, built[0].rejected) == (built[1].documents, built[1].rejected)
        with closing(sqlite3.connect(cache)) as database, database:
            database.execute("DELETE FROM made WHERE abs(random()) % 3 = 0")


def test_what_would_stop_a_build_stops_it_before_anything_is_embedded(sources, tmp_path, params, fake):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").touch()
    fake.max_tokens = 128
    for changes, out, told in (
        ({"bm25": params.bm25.model_copy(update={"stemmer": "englisch"})}, "index", "bm25.stemmer is 'englisch'"),
        ({"queries": "q.jsonl", "qrels": "q.tsv"}, "index", r"q\.jsonl"),
        ({}, "thesis", r"holds chapter\.txt, which is no part of an index"),
        ({"max_tokens": 129}, "index", "reads 128 tokens of a text and max_tokens is 129: set .* to 128 or less"),
    ):
        with pytest.raises(KnowledgeBaseError, match=told):
            kb.build([sources], tmp_path / out, params.model_copy(update=changes))
        assert not fake.seen
    (sources / "empty.md").write_text("")
    for _ in range(2):  # once unknown, once known to the cache
        with pytest.raises(KnowledgeBaseError, match="all 1 records were rejected"):
            kb.build([sources / "empty.md"], tmp_path / "index", params, cache=tmp_path / "kb.sqlite")


def test_nothing_new_is_neither_read_nor_embedded(sources, tmp_path, params, fake, monkeypatch):
    def build():
        return kb.build([sources], tmp_path / "index", params, cache=tmp_path / "kb.sqlite")

    first = build()
    for name in ("kb.building.load_embedder", "kb.reading.documents_in", "kb.duplicates._repeated"):
        monkeypatch.setattr(name, lambda *_: pytest.fail("asked again"))
    again = build()
    assert (again.embedded, again.documents, again.manifest) == (0, 2, first.manifest)


def test_what_embeds_is_imported_ahead_only_for_something_new(sources, tmp_path, params, fake, monkeypatch):
    imported: list[str] = []
    monkeypatch.setattr("kb.building.import_library", lambda: imported.append("now"))
    cache, named = tmp_path / "kb.sqlite", params.model_copy(update={"sources": [sources]})
    import_embedder(named, tmp_path, cache)
    assert imported == ["now"]
    kb.build([sources], tmp_path / "index", params, cache=cache)
    import_embedder(named, tmp_path, cache)
    assert imported == ["now"]
    (sources / "gout.md").write_text("Gout hurts.")
    import_embedder(named, tmp_path, cache)
    assert imported == ["now", "now"]


def test_an_embedder_that_cannot_read_the_texts_stops_the_build(sources, tmp_path, params, fake):
    (sources / "zh.txt").write_text(CHINESE)
    with pytest.raises(KnowledgeBaseError, match=r"does not know 33% of the texts' tokens.*method to lexical"):
        kb.build([sources], tmp_path / "index", params)
    assert not (tmp_path / "index").exists()
    assert kb.build([sources], tmp_path / "index", with_fusion(params, method="lexical")).embedded == 0
    hits = kb.open(tmp_path / "index").search("\u80f8\u75db", 3)
    assert [hit.passage.doc_id for hit in hits] == ["zh.txt"]
    assert fake.seen == []


def test_methods_may_be_chosen_by_the_searcher_but_vectors_must_be_there(sources, tmp_path, params, fake):
    kb.build([sources], tmp_path / "index", with_fusion(params, method="lexical"))
    index = KnowledgeIndex.load(tmp_path / "index")
    with pytest.raises(KnowledgeBaseError, match="has no vectors for fusion weighted"):
        Searcher(index, fake, params.fusion)


@pytest.fixture
def command(monkeypatch, capsys):
    """`python -m kb` in this process: its exit status and what it told."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["kb", *map(str, words)])
        status = main()
        return status, *capsys.readouterr()

    return run


def test_the_command_line(sources, tmp_path, fake, command):
    index, shipped = tmp_path / "index", ROOT / "params.yaml"
    status, told, progress = command("build", index, sources, "--params", shipped)
    assert "2 documents, 2 passages (2 embedded), 0 records rejected, index of flat" in told
    assert (status, progress) == (0, "embedded 2 of 2\n")
    status, told, _ = command("search", index, "chest pain", "-k", 1, "--licence", "CC0-1.0")
    assert status == 0
    assert re.match(r"1\.000  \[angina#0\] angina\n +Angina is chest pain on effort\.\n", told)
    assert command("search", index, "pain", "--language", "zh")[:2] == (0, "nothing found\n")
    assert (
        "is whole: 2 documents, 2 passages, index of flat, recall@10 of its vectors 1.000" in command("check", index)[1]
    )


def test_judged_queries_are_measured_by_every_method(sources, tmp_path, fake, command):
    command("build", tmp_path / "index", sources, "--params", ROOT / "params.yaml")
    (tmp_path / "queries.jsonl").write_text(
        '{"query_id": "a", "text": "toe at night"}\n{"query_id": "c", "text": "night toe"}\n'
    )
    (tmp_path / "qrels.tsv").write_text("a\tgout\t2\nc\tangina\t2\n")
    judged = ("--queries", tmp_path / "queries.jsonl", "--qrels", tmp_path / "qrels.tsv")
    status, told, _ = command("check", tmp_path / "index", *judged)
    assert status == 0
    for method in ("weighted", "rrf", "dense", "lexical"):
        assert re.search(rf"^{method} +0\.\d+ +0\.5000", told, re.MULTILINE), told
    assert "weighted - dense, hit@1: +0.0000 [+0.0000, +0.0000]" in told
    halves = [command("check", tmp_path / "index", *judged, "--half", half)[1] for half in ("tune", "report")]
    assert [re.search(r"(\d) queries", half)[1] for half in halves] == ["1", "1"]
    status, _, errors = command("check", tmp_path / "index", *judged, "--lexical-weight", 3)
    assert (status, errors) == (2, "error: --lexical-weight is 3.0: choose 0 to 1\n")


def test_an_index_of_words_is_measured_without_its_embedder(sources, tmp_path, params, fake, command, monkeypatch):
    monkeypatch.setattr("kb.search.load_embedder", lambda name, *_: pytest.fail(f"{name} was loaded"))
    kb.build([sources], tmp_path / "index", with_fusion(params, method="lexical"))
    (tmp_path / "queries.jsonl").write_text('{"query_id": "a", "text": "toe"}\n')
    (tmp_path / "qrels.tsv").write_text("a\tgout\t2\n")
    judged = ("--queries", tmp_path / "queries.jsonl", "--qrels", tmp_path / "qrels.tsv")
    status, told, _ = command("check", tmp_path / "index", *judged)
    assert status == 0
    assert re.search(r"^lexical +1\.0000", told, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("search", "nowhere", "pain"), "nowhere does not exist"),
        (("build", "index", "nowhere"), "source nowhere does not exist"),
        (("build", "index", "--params", "none.yaml"), "none.yaml does not exist"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(command, monkeypatch, tmp_path, fake, words, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    status, out, errors = command(*words)
    assert (status, out, errors.count("\n")) == (2, "", 1)
    assert told in errors
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]


def test_a_disk_that_refuses_is_one_line(command, monkeypatch, tmp_path):
    def refused(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system", "/srv/index")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    monkeypatch.setattr("kb.build", refused)
    assert command("build", "index") == (
        2,
        "",
        "error: /srv/index: Read-only file system; name another place, or make it one that can be written\n",
    )


def test_a_search_by_words_loads_no_model_library(sources, tmp_path, params, fake):
    """The command itself, in a process of its own; half a second of a processor."""
    kb.build([sources], tmp_path / "index", with_fusion(params, method="lexical"))
    code = (
        "import sys; from kb.__main__ import main; status = main(); "
        "assert not {'torch', 'sentence_transformers', 'prefect'} & set(sys.modules); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "search", str(tmp_path / "index"), "toe"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "[gout#0]" in done.stdout


@pytest.mark.slow
def test_the_example_of_the_page_runs_without_the_rest_of_the_house(tmp_path):
    """In an interpreter that has no Prefect, MLflow, DVC, and none of the other rooms."""
    page = (ROOT / "docs" / "knowledge_base.md").read_text()
    example = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    assert example.count("\n") <= 10
    blocked = (
        "prefect",
        "mlflow",
        "dvc",
        "peft",
        "openai",
        "vllm",
        "rl",
        "clinic",
        "doctor",
        "tasks",
        "tracking",
    )
    code = f"""
        import sys
        sys.modules.update({{name: None for name in {blocked!r}}})
        sys.path.insert(0, {str(ROOT)!r})
    """
    for name in ("params.yaml", "data"):
        (tmp_path / name).symlink_to(ROOT / name)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code) + example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Cystitis" in done.stdout
