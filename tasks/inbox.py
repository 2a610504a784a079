"""Files that arrive in an inbox: each is admitted to the place that its path there names, if a source reads it and takes
it, else it goes into quarantine with the reason beside it.

`admit` copies what is valid into the checkout and moves nothing; `file_away` moves, once a commit holds what came in. In
between a kill loses nothing, and admits nothing twice.
"""

import errno
import filecmp
import hashlib
import logging
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from prefect import task
from prefect.cache_policies import NO_CACHE

from clinic.cases import Rejected
from clinic.config import CaseSource
from clinic.errors import ClinicError, shortened
from clinic.loaders import load_source
from clinic.loaders.rows import is_table
from clinic.rejections import refuse_too_many
from doctor.mistakes import read_yaml
from doctor.parameters import ROOT, Params
from doctor.places import KB_CACHE
from kb.cache import Cache
from kb.config import DocumentSource
from kb.documents import documents_of
from kb.errors import KnowledgeBaseError
from kb.reading import Corpus
from kb.sources import SourceFile, new_file
from rl.files import file_hash
from tasks.patient_cases import at_root
from tasks.repository import WorkspaceError
from tasks.workspace import holds_own_files, is_ignored, tracked_by_dvc

log = logging.getLogger(__name__)
ADMITTED, REJECTED = "admitted", "rejected"  # folders of an inbox
REASON = ".reason.txt"  # end of the name of what says why
MB = 1_000_000
NAME_BYTES = 255  # of a file's name, at most
FULL = (errno.ENOSPC, errno.EDQUOT)
Shelf = str | DocumentSource  # an entry of knowledge_base.sources


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A file that was found in an inbox, and what became of it."""

    name: str  # its path in the inbox, and in the project
    sha256: str = ""
    reason: str = ""  # why it was not admitted

    def __str__(self) -> str:
        name = self.name if self.name.isprintable() else ascii(self.name)  # a name of another encoding is no text
        return f"rejected {name}: {self.reason}" if self.reason else f"admitted {name}, sha256 {self.sha256}"


class RefusedError(Exception):
    """A file cannot be admitted; the message says why and what to do."""


def inbox_folder(project: Path, given: str) -> Path:
    """Where an inbox is that is named from the project.

    Raises:
        WorkspaceError: it is no folder, or one of the project's own, whose files would be moved away.
    """
    folder = (project / given).resolve()
    if folder.exists() and not folder.is_dir():
        raise WorkspaceError(f"inbox {folder} is no folder; name one")
    if holds_own_files(project, folder):
        raise WorkspaceError(
            f"inbox {folder} holds files of the project, which would be moved away; name a folder of its own (inbox)"
        )
    if not folder.exists():
        log.info("inbox %s is not there, so nothing comes in", folder)
    return folder


def arrived(inbox: Path) -> list[Path]:
    """What lies in an inbox, in the order of names; what begins with a dot is still being written, and a reason may have come
    back with its file.
    """
    found = (path for path in sorted(inbox.rglob("*")) if path.is_symlink() or not path.is_dir())
    inside = ((path, path.relative_to(inbox).parts) for path in found)
    return [
        path
        for path, parts in inside
        if parts[0] not in (ADMITTED, REJECTED)
        and not any(part.startswith(".") for part in parts)
        and not path.name.endswith(REASON)
    ]


@task(cache_policy=NO_CACHE)
def admit(params: Params, inbox: Path) -> list[Arrival]:
    """Copy every valid file to its place in this checkout; returns all files with what was said of them.

    Raises:
        ClinicError: a source that is there already cannot be read.
        KnowledgeBaseError: the same of documents.
    """
    if not (found := arrived(inbox)):
        return []
    admission = Admission(params)
    arrivals = [admission.judged(path, path.relative_to(inbox).as_posix()) for path in found]
    for arrival in arrivals:
        log.log(logging.WARNING if arrival.reason else logging.INFO, "inbox: %s", arrival)
    return arrivals


def file_away(inbox: Path, arrivals: Sequence[Arrival], commit: str) -> None:
    """Move what was looked at below `admitted/<commit>/` or `rejected/<time>/`, there with the reason in a file beside it.

    Args:
        inbox: the folder.
        arrivals: what `admit` said.
        commit: holds what was admitted.
    """
    for told in (inbox / REJECTED).rglob(f"*{REASON}"):
        if not os.path.lexists(told.with_name(told.name.removesuffix(REASON))):
            told.unlink()  # a kill came between it and its file
    quarantine = inbox / REJECTED / time.strftime("%Y-%m-%dT%H%M%S")
    for arrival in arrivals:
        path = inbox / arrival.name
        if not os.path.lexists(path):
            continue
        if _sha256(path) != arrival.sha256:
            log.warning("inbox: %s was changed meanwhile and stays for the next time", arrival.name)
            continue
        kept = (quarantine if arrival.reason else inbox / ADMITTED / commit[:12]) / arrival.name
        kept.parent.mkdir(parents=True, exist_ok=True)
        if arrival.reason:
            kept = _with_room(kept)
            kept.with_name(f"{kept.name}{REASON}").write_text(f"{arrival.reason}\n", encoding="utf-8")
        os.replace(path, kept)


def _with_room(path: Path) -> Path:
    """A place whose name leaves room for the end of its reason's; of one that is too long its hash and its end stay."""
    name, most = os.fsencode(path.name), NAME_BYTES - len(REASON)
    if len(name) <= most:
        return path
    head = f"{hashlib.sha256(name).hexdigest()[:12]}-"
    return path.with_name(head + name[len(head) - most :].decode(errors="ignore"))


class Admission:
    """The sources of a checkout, and what they take."""

    def __init__(self, params: Params) -> None:
        """Judge by the parameters and by what the checkout holds.

        Args:
            params: of the checkout.

        Raises:
            ClinicError: a table that is there already cannot be read.
            KnowledgeBaseError: the same of documents.
        """
        self.params = params
        self.stages = read_yaml(ROOT / "dvc.yaml")["stages"]
        tables = [source for source in params.patient_cases.imported if (ROOT / source.path).exists()]
        split = params.patient_cases.split
        self.case_ids = {
            case.case_id: source.path for source in tables for case in load_source(_whole(source), split)[0]
        }
        self.licences = params.knowledge_base.licences
        shelves = [shelf for shelf in params.knowledge_base.sources if (ROOT / _path(shelf)).exists()]
        corpus = Corpus(shelves, ROOT, self.licences, Cache(KB_CACHE))
        self.document_ids = {document.doc_id for document in corpus.documents}
        self.stems = {file.stem for file in corpus.files}

    def judged(self, path: Path, name: str) -> Arrival:
        """Copy a file to its place if it may stand there.

        Args:
            path: in the inbox.
            name: its path there.

        Raises:
            OSError: the disk is full, which is no fault of the file's.
        """
        target = ROOT / name
        tables = [source for source in self.params.patient_cases.imported if _reads(source, name)]
        shelves = [shelf for shelf in self.params.knowledge_base.sources if _is_in(name, _path(shelf))]
        try:
            if path.is_symlink() or not path.is_file() or not name.isprintable():
                raise RefusedError("it is no plain file with a plain name; copy the file itself")
            watched = [("patient_cases", source.path) for source in tables]
            self._check_is_watched([*watched, *(("knowledge_base", _path(shelf)) for shelf in shelves)])
            if target.exists():
                if not filecmp.cmp(path, target, shallow=False):
                    raise RefusedError("the project has another file of this name; give it another one")
            else:
                self._check_size(path, name)
                self._place(path, target, tables, shelves)
            return Arrival(name=name, sha256=_sha256(target))
        except (RefusedError, ClinicError, KnowledgeBaseError, OSError) as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise OSError(error.errno, os.strerror(error.errno), str(target)) from error
            told = " ".join(str(error).replace(f"{ROOT}/", "").split())
            return Arrival(name=name, sha256=_sha256(path), reason=shortened(told))

    def _place(self, path: Path, target: Path, tables: Sequence[CaseSource], shelves: Sequence[Shelf]) -> None:
        """Copy, and take away again what no source takes."""
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(path, target)
            cases = {case_id: source.path for source in tables for case_id in self._checked_table(source, target)}
            files = [new_file(target, shelf, ROOT, self.stems) for shelf in shelves[:1]]
            texts = {doc_id for file in files for doc_id in self._checked_documents(file)}
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        self.case_ids |= cases
        self.document_ids |= texts
        self.stems |= {file.stem for file in files}

    def _check_is_watched(self, read: Sequence[tuple[str, str]]) -> None:
        if not read:
            raise RefusedError(
                "no source reads it; name its folder in patient_cases.imported (format own) or in knowledge_base.sources, or put it into one that is named"
            )
        for stage, source in read:
            if not any(_is_in(source, str(dep)) for dep in self.stages[stage]["deps"]):
                raise RefusedError(f"DVC would not see it; add {source} to the deps of {stage} in dvc.yaml")

    def _check_size(self, path: Path, name: str) -> None:
        if tracked_by_dvc(ROOT, name) is not None:
            return
        if is_ignored(ROOT, name):
            raise RefusedError("git ignores files of this name; change .gitignore, or let DVC track its folder")
        size, most = path.stat().st_size / MB, self.params.retrain.inbox.max_file_mb
        if size > most:
            raise RefusedError(
                f"{size:.1f} MB are too much for git (retrain.inbox.max_file_mb: {most:g}); let DVC track its folder (dvc add), or split the file"
            )

    def _checked_table(self, source: CaseSource, target: Path) -> Iterator[str]:
        """Ids of the cases, if the stage would take them."""
        section = self.params.patient_cases
        cases, rejected = load_source(_whole(source).model_copy(update={"path": str(target)}), section.split)
        if not cases and not rejected:
            raise RefusedError("no case in it")
        for case in cases:
            owner = self.case_ids.get(case.case_id, source.path)
            if owner != source.path:
                raise RefusedError(f"case id {case.case_id!r} is one of {owner} already; rename it")
        repeated = [case.case_id for case in cases if case.case_id in self.case_ids]
        rejected += [Rejected(str(target), 0, f"case id {one!r} is in {source.path} already") for one in repeated]
        records = len(cases) + len(rejected) - len(repeated)
        refuse_too_many(str(target), rejected, records, section.max_rejected_share)
        yield from (case.case_id for case in cases)

    def _checked_documents(self, file: SourceFile) -> Iterator[str]:
        """Ids of the documents, if they are usable."""
        documents, rejected = documents_of([file], self.licences)
        reasons = [f"{one.reason}" + (f" (line {one.line})" if one.line else "") for one in rejected]
        reasons += [
            f"a document {one.doc_id!r} is there already" for one in documents if one.doc_id in self.document_ids
        ]
        records, most = len(documents) + len(rejected), self.params.retrain.inbox.max_rejected_share
        if not records:
            raise RefusedError("no document in it")
        if len(reasons) > most * records:
            more = f"{len(reasons)} of {records} documents are unusable, the first: " if records > 1 else ""
            raise RefusedError(f"{more}{reasons[0]}; mend it")
        yield from (document.doc_id for document in documents)


def _whole(source: CaseSource) -> CaseSource:
    """With its paths, and every case."""
    return at_root(source).model_copy(update={"cases": source.cases if source.format == "ddxplus" else 0})


def _reads(source: CaseSource, name: str) -> bool:
    """Whether a source is this file, or is a folder of tables that this is one of."""
    is_file = PurePosixPath(name) == PurePosixPath(source.path)
    return is_file or (source.format == "own" and _is_in(name, source.path) and is_table(Path(name)))


def _path(shelf: Shelf) -> str:
    return shelf if isinstance(shelf, str) else shelf.path


def _is_in(name: str, place: str) -> bool:
    return PurePosixPath(name).is_relative_to(PurePosixPath(place))


def _sha256(path: Path) -> str:
    """Of a plain file, else ""."""
    if path.is_symlink() or not path.is_file():
        return ""
    try:
        return file_hash(path)
    except OSError:
        return ""
