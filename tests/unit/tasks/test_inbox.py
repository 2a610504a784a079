"""What an inbox lets in, and where the rest goes."""

import errno
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from clinic.config import CaseSource
from clinic.errors import ClinicError
from doctor.parameters import Params, load_params
from kb.documents import load_documents
from tasks import inbox as module
from tasks import patient_cases
from tasks.inbox import Arrival, admit, file_away, inbox_folder
from tasks.repository import WorkspaceError

PAGE = "# Gout\n\nGout is a sudden, painful swelling of a joint, often of the big toe.\n"
DVC_YAML = "stages:\n  patient_cases: {deps: [data/own]}\n  knowledge_base: {deps: [data/library]}\n"


def table(*names: str) -> str:
    rows = [f"A man of {40 + len(name)} comes with a sore {name}. It began on Sunday.,Gout" for name in names]
    return "\n".join(["text,illness", *rows]) + "\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a folder of tables, one of documents, and one that no stage watches."""
    made = tmp_path / "project"
    for name, text in {
        "data/own/old.csv": table("knee"),
        "data/own/m.yaml": "name: mine\nvignette: text\ndiagnosis: illness\n",
        "data/library/gout.md": PAGE,
        "data/unwatched/a.md": PAGE,
        "dvc.yaml": DVC_YAML,
        ".gitignore": "*.log.md\n",
    }.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(made)], check=True)
    monkeypatch.setattr(module, "ROOT", made)
    monkeypatch.setattr(module, "KB_CACHE", tmp_path / "kb.sqlite")
    monkeypatch.setattr(patient_cases, "ROOT", made)
    return made


@pytest.fixture
def params() -> Params:
    shipped = load_params()
    own = {"format": "own", "path": "data/own", "mapping": "data/own/m.yaml", "cases": 0, "licence": "CC0-1.0"}
    cases = shipped.patient_cases.model_copy(update={"imported": (CaseSource.model_validate(own),)})
    shelves = ["data/library", "data/unwatched"]
    kb = shipped.knowledge_base.model_copy(update={"sources": shelves})
    return shipped.model_copy(update={"patient_cases": cases, "knowledge_base": kb})


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def test_valid_files_come_in_and_move_only_when_a_commit_holds_them(root: Path, tmp_path: Path, params: Params) -> None:
    inbox = tmp_path / "inbox"
    put(inbox, "data/own/2026/new.csv", table("neck", "foot"))
    put(inbox, "data/library/foot.md", PAGE.replace("Gout", "Foot"))
    put(inbox, "data/own/.half.csv", "text,")  # still being written
    arrivals = admit.fn(params, inbox)
    assert [(one.name, one.reason) for one in arrivals] == [("data/library/foot.md", ""), ("data/own/2026/new.csv", "")]
    assert (root / "data/own/2026/new.csv").read_text() == table("neck", "foot")
    assert files(inbox) == {"data/own/2026/new.csv", "data/library/foot.md", "data/own/.half.csv"}
    assert admit.fn(params, inbox) == arrivals  # after a kill: what is there already is the same
    put(inbox, "data/library/foot.md", "changed since")
    file_away(inbox, arrivals, "c" * 40)
    assert files(inbox) == {f"admitted/{'c' * 12}/data/own/2026/new.csv", "data/library/foot.md", "data/own/.half.csv"}
    file_away(inbox, arrivals, "c" * 40)  # again: nothing is left to move


REFUSED = {
    "notes/a.md": (PAGE, "no source reads it; name its folder in patient_cases.imported"),
    "data/own/m2.yaml": ("name: x", "no source reads it"),
    "data/unwatched/b.md": (PAGE, "DVC would not see it; add data/unwatched to the deps of knowledge_base in dvc.yaml"),
    "data/own/old.csv": (table("hip"), "the project has another file of this name"),
    "data/own/columns.csv": ("text,ilness\nA cough.,Croup\n", "columns.csv has no column 'illness'"),
    "data/own/bad.csv": (table("hip") + "A man has a rash.,\n", "1 of 2 records are no cases, more than"),
    "data/own/again.csv": (table("knee"), "1 of 1 records are no cases, more than .*: case id 'mine-.*' is in data/own already"),
    "data/own/empty.csv": ("text,illness\n", "no case in it"),
    "data/own/utf16.csv": (table("hip").encode("utf-16"), "utf16.csv is UTF-16"),
    "data/library/x.pdf": (b"%PDF", "not a whole PDF"),
    "data/library/x.docx": (PAGE, "unknown file type"),
    "data/library/again.jsonl": ('{"doc_id": "gout", "text": "It hurts."}\n', "a document 'gout' is there already"),
    "data/library/lines.jsonl": ('{"text": "It hurts."}\n{"title": "none"}\n', "1 of 2 documents are unusable, the first: no text"),
    "data/library/blank.jsonl": ("\n", "no document in it"),
    "data/library/my.log.md": (PAGE, "git ignores files of this name"),
    "data/library/big.txt": ("It hurts. " * 2000, r"0\.0 MB are too much for git \(retrain\.inbox\.max_file_mb: 0\.01\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_valid_goes_into_quarantine_with_its_reason(
    root: Path, tmp_path: Path, params: Params, name: str
) -> None:
    content, told = REFUSED[name]
    tight = params.retrain.inbox.model_copy(update={"max_file_mb": 0.01})
    params = params.model_copy(update={"retrain": params.retrain.model_copy(update={"inbox": tight})})
    inbox, before = tmp_path / "inbox", files(root)
    path = put(inbox, name, content)
    content = path.read_bytes()
    (arrival,) = admit.fn(params, inbox)
    assert files(root) == before
    orphan = put(inbox, "rejected/before/killed.csv.reason.txt", "the file is still in the inbox")
    file_away(inbox, [arrival], "c" * 40)
    assert not path.exists()
    assert not orphan.exists()
    (kept,) = (inbox / "rejected").glob(f"*/{name}")
    assert kept.read_bytes() == content
    reason = kept.with_name(f"{kept.name}.reason.txt").read_text()
    assert re.search(told, reason), reason
    assert str(root) not in reason
    assert admit.fn(params, inbox) == []  # what was put away does not come again


def test_a_document_comes_in_under_the_name_that_the_stage_gives_it(root: Path, tmp_path: Path, params: Params) -> None:
    """Two shelves may hold a gout.md each."""
    shelves = ["data/library", "data/more"]
    (root / "dvc.yaml").write_text(DVC_YAML.replace("[data/library]", "[data/library, data/more]"))
    (root / "data/more").mkdir()
    params = params.model_copy(update={"knowledge_base": params.knowledge_base.model_copy(update={"sources": shelves})})
    put(tmp_path / "inbox", "data/more/gout.md", PAGE.replace("joint", "knuckle"))
    put(tmp_path / "inbox", "data/more/gout.txt", PAGE.replace("joint", "toe"))
    assert [one.reason for one in admit.fn(params, tmp_path / "inbox")] == ["", ""]
    documents, rejected = load_documents(shelves, root, None)
    assert ([one.doc_id for one in documents], rejected) == (["gout", "data/more/gout.md", "gout.txt"], [])


def test_links_and_pipes_are_not_read(root: Path, tmp_path: Path, params: Params) -> None:
    inbox = tmp_path / "inbox" / "data/library"
    inbox.mkdir(parents=True)
    (tmp_path / "secret.md").write_text(PAGE)
    (inbox / "link.md").symlink_to(tmp_path / "secret.md")
    (inbox / "folder").symlink_to(tmp_path)
    os.mkfifo(inbox / "pipe.md")
    arrivals = admit.fn(params, tmp_path / "inbox")
    assert {one.name.rpartition("/")[2] for one in arrivals} == {"link.md", "folder", "pipe.md"}
    assert all(one.reason.startswith("it is no plain file") for one in arrivals)
    file_away(tmp_path / "inbox", arrivals, "c" * 40)
    assert list(inbox.iterdir()) == []
    assert (tmp_path / "secret.md").exists()
    assert files(root / "data/library") == {"gout.md"}


def test_two_deliveries_of_the_same_night_are_held_against_each_other(
    root: Path, tmp_path: Path, params: Params
) -> None:
    put(tmp_path / "inbox", "data/own/a.csv", table("neck"))
    put(tmp_path / "inbox", "data/own/b.csv", table("neck"))
    first, second = admit.fn(params, tmp_path / "inbox")
    assert not first.reason
    assert "is in data/own already" in second.reason


def test_a_folder_of_dvcs_takes_what_git_would_not(root: Path, tmp_path: Path, params: Params) -> None:
    tight = params.retrain.inbox.model_copy(update={"max_file_mb": 0.00001})
    params = params.model_copy(update={"retrain": params.retrain.model_copy(update={"inbox": tight})})
    put(tmp_path / "inbox", "data/library/foot.md", PAGE)
    (root / "data/library.dvc").write_text("outs: []\n")
    (arrival,) = admit.fn(params, tmp_path / "inbox")
    assert not arrival.reason


def test_a_source_that_is_broken_already_is_no_files_fault(root: Path, tmp_path: Path, params: Params) -> None:
    (root / "data/own/m.yaml").unlink()
    put(tmp_path / "inbox", "data/own/new.csv", table("neck"))
    with pytest.raises(ClinicError, match=r"m\.yaml does not exist"):
        admit.fn(params, tmp_path / "inbox")
    assert files(tmp_path / "inbox") == {"data/own/new.csv"}


def test_a_full_disk_is_no_files_fault(
    root: Path, tmp_path: Path, params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was rejected for it would lie in quarantine when there is room again."""

    def full(source: Path, _: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(source))

    monkeypatch.setattr(shutil, "copyfile", full)
    put(tmp_path / "inbox", "data/own/new.csv", table("neck"))
    with pytest.raises(OSError, match="No space left") as told:
        admit.fn(params, tmp_path / "inbox")
    assert told.value.filename == str(root / "data/own/new.csv")


def test_a_name_without_room_for_its_reasons_is_put_away_shortened(root: Path, tmp_path: Path, params: Params) -> None:
    inbox = tmp_path / "inbox"
    names = [f"{head}{'痛' * 83}.md" for head in "ab"]  # 253 bytes
    for name in names:
        put(inbox, f"notes/{name}", PAGE)
    file_away(inbox, admit.fn(params, inbox), "c" * 40)
    kept = sorted(path.name for path in (inbox / "rejected").glob("*/notes/*"))
    assert len(kept) == 4
    assert all(name.endswith(("痛.md", "痛.md.reason.txt")) for name in kept)
    file_away(inbox, [], "c" * 40)  # no reason has lost its file
    assert len(list((inbox / "rejected").glob("*/notes/*"))) == 4


def test_the_reason_that_comes_back_with_a_mended_file_is_no_document(
    root: Path, tmp_path: Path, params: Params
) -> None:
    inbox = tmp_path / "inbox"
    put(inbox, "data/library/foot.md", "# Foot\n")
    file_away(inbox, admit.fn(params, inbox), "c" * 40)
    (quarantine,) = (inbox / "rejected").iterdir()
    shutil.copytree(quarantine / "data", inbox / "data", dirs_exist_ok=True)
    put(inbox, "data/library/foot.md", PAGE.replace("Gout", "Foot"))
    (arrival,) = admit.fn(params, inbox)
    assert (arrival.name, arrival.reason) == ("data/library/foot.md", "")
    assert files(root / "data/library") == {"gout.md", "foot.md"}


def test_a_name_of_another_encoding_is_told_as_text(root: Path, tmp_path: Path, params: Params) -> None:
    put(tmp_path / "inbox", os.fsdecode(b"data/own/caf\xe9.csv"), table("neck"))
    (arrival,) = admit.fn(params, tmp_path / "inbox")
    assert str(arrival).startswith("rejected 'data/own/caf\\udce9.csv': it is no plain file with a plain name")
    assert str(arrival).encode()
    assert str(Arrival(name="data/own/café.csv", sha256="0")) == "admitted data/own/café.csv, sha256 0"


@pytest.mark.parametrize("given", [".", "..", "data", "data/library", "tracked/inner"])
def test_a_folder_of_the_projects_own_is_no_inbox(root: Path, given: str) -> None:
    put(root, "tracked.dvc", "outs: []\n")
    subprocess.run(["git", "-C", str(root), "add", "-A"], check=True)
    with pytest.raises(WorkspaceError, match="holds files of the project, which would be moved away; name a folder"):
        inbox_folder(root, given)


def test_an_inbox_lies_in_the_project_or_elsewhere(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(root, "inbox/data/own/new.csv", table("neck"))
    assert inbox_folder(root, "inbox") == root / "inbox"
    with caplog.at_level("INFO"):
        assert inbox_folder(root, str(tmp_path / "inbx")) == tmp_path / "inbx"
    assert caplog.messages == [f"inbox {tmp_path / 'inbx'} is not there, so nothing comes in"]
    with pytest.raises(WorkspaceError, match=r"new\.csv is no folder; name one"):
        inbox_folder(root, "inbox/data/own/new.csv")
