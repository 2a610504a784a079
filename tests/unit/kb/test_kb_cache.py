import logging
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kb.cache import Cache
from kb.errors import KnowledgeBaseError


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "deep" / "kb.sqlite")


def test_bytes_come_back_by_maker_and_name(cache):
    content = {f"n{number}": os.urandom(40) for number in range(1200)}
    cache.put("one", content)
    assert cache.get("one", list(content)) == content
    assert cache.get("one", ["n1", "unknown"]) == {"n1": content["n1"]}
    assert cache.get("other", ["n1"]) == {}
    assert cache.get("one", []) == {}


def test_what_lost_its_checksum_counts_as_absent_and_is_replaced(cache):
    cache.put("maker", {"a": b"right", "b": b"right"})
    with sqlite3.connect(cache.path) as database:
        database.execute("UPDATE made SET content = ? WHERE name = 'a'", (b"wrong",))
    assert cache.get("maker", ["a", "b"]) == {"b": b"right"}
    cache.put("maker", {"a": b"right"})
    assert cache.get("maker", ["a"]) == {"a": b"right"}


@pytest.mark.parametrize("damage", ["no database", "torn"])
def test_a_damaged_file_is_set_aside_with_a_word(cache, caplog, damage):
    cache.put("maker", {f"n{number}": b"x" * 3000 for number in range(50)})
    whole = cache.path.read_bytes()
    cache.path.write_bytes(b"not a database" * 100 if damage == "no database" else whole[:8192] + b"\xff" * 90_000)
    with caplog.at_level(logging.WARNING):
        assert cache.get("maker", ["n7"]) == {}
        cache.put("maker", {"n7": b"new"})
    assert "is damaged" in caplog.text
    assert cache.path.with_suffix(".damaged").is_file()
    assert cache.get("maker", ["n7"]) == {"n7": b"new"}


def test_a_place_that_cannot_be_used_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "kb.sqlite", tmp_path):
        with pytest.raises(KnowledgeBaseError, match="cannot be used") as caught:
            Cache(place).get("maker", ["a"])
        assert "\n" not in str(caught.value)


def test_builds_at_once_do_not_disturb_each_other(cache):
    def work(number):
        own = Cache(cache.path)
        for turn in range(10):
            own.put("maker", {f"{number}.{turn}": b"x" * 500, "shared": b"same"})
        return own.get("maker", [f"{number}.{turn}" for turn in range(10)])

    with ThreadPoolExecutor(4) as pool:
        assert all(len(found) == 10 for found in pool.map(work, range(4)))
    assert cache.get("maker", ["shared"]) == {"shared": b"same"}


def test_a_kill_loses_the_transaction_under_way_at_most(cache):
    """The process dies while it embeds its third part: the first two are there, bit for bit."""
    code = f"""
        import os, signal, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from conftest import FakeEmbedder
        from kb.cache import Cache
        from kb.incremental import embed_passages
        from kb.passages import Passage

        class Dying(FakeEmbedder):
            parts = 0
            def encode(self, texts):
                self.parts += 1
                if self.parts == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                return super().encode(texts)

        passages = [Passage(passage_id=f"d#{{i}}", doc_id="d", title="", section="", text=f"w{{i}}", source="s",
                            licence="l", sha256=f"h{{i}}") for i in range(40)]
        embed_passages(passages, Dying(), Cache(Path(sys.argv[1])), kept_every=8)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(cache.path)], check=False)
    assert done.returncode == -signal.SIGKILL
    with sqlite3.connect(cache.path) as database:
        assert database.execute("SELECT count(*) FROM made").fetchone() == (16,)
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
