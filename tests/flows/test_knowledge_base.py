"""The stage knowledge_base under DVC, which deletes the index before it makes it again."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def test_a_changed_sentence_is_one_embedded_passage(
    copy_project: Callable[[str], Path], environment: dict[str, str]
) -> None:
    project = copy_project("knowledge_base")
    article = project / "data/starter/articles/gout.md"
    for other in article.parent.glob("*.md"):
        if other.name not in (article.name, "asthma.md"):
            other.unlink()

    def repro(*options: str) -> tuple[int, int]:
        """Passages embedded, and passages known."""
        done = subprocess.run(
            ["dvc", "repro", *options, "knowledge_base"],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        told = re.search(r"(\d+) passages \((\d+) embedded, the others known\)", done.stdout + done.stderr)
        return (int(told[2]), int(told[1])) if told else (0, 0)

    def index() -> dict[str, bytes]:
        folder = project / "data/kb_index"
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    embedded, passages = repro()
    assert embedded == passages > 5
    assert repro() == (0, 0)  # DVC runs nothing
    text = article.read_text()
    changed = text.replace(". ", ". It may come at night. ", 1)
    assert changed != text
    article.write_text(changed)
    assert repro() == (1, passages)
    incremental = index()
    shutil.rmtree(project / "cache")
    assert repro("--force", "--no-run-cache") == (passages, passages)
    assert index() == incremental
    metrics = json.loads((project / "metrics/knowledge_base.json").read_text())
    assert (metrics["passages"], metrics["index_recall@10"]) == (passages, 1.0)
