"""The `sources` of the knowledge base -> the files to read, each with the name it is known by.

Links are followed, once. What is no file (a pipe, a link that leads nowhere) is a `Rejected`. Hidden files and folders
are left out.
"""

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kb.config import DocumentSource
from kb.errors import KnowledgeBaseError
from kb.readers import SUFFIXES
from kb.records import Rejected

FOLDER = "a folder"
Sources = Sequence[str | Path | DocumentSource]


@dataclass(frozen=True)
class SourceFile:
    """A file to read. Made by `source_files`, read by `kb.documents`.

    Attributes:
        path: where it is.
        name: relative to the project; of a source outside it, from the source's own name on. Where a file before it has
            that name, with as many of the folders above as tell them apart.
        stem: what its documents are named after: the path inside its source, without `.md` or `.gz`. If a file before
            it has that stem, its name.
        source: the entry of `sources` that it belongs to.
    """

    path: Path
    name: str
    stem: str
    source: DocumentSource


def source_files(sources: Sources, root: Path) -> tuple[list[SourceFile], list[Rejected]]:
    """List the files to read, once each, in the order of `sources` and sorted within a folder.

    Args:
        sources: files or folders, relative to `root`; folders are searched recursively.
        root: the project.

    Returns:
        The files, and what looks like one and is none, with paths as in `SourceFile.name`.

    Raises:
        KnowledgeBaseError: if a source does not exist, or is neither a file nor a folder.
    """
    files: dict[Path, SourceFile] = {}
    rejected: list[Rejected] = []
    names: set[str] = set()
    stems: set[str] = set()
    for source in map(_entry, sources):
        base = Path(os.path.abspath(root / source.path))  # noqa: PTH100 links must stay as they are named
        found = list(_found(base, source.path))
        new = [path.relative_to(base) for path in found if isinstance(path, Path) and path not in files]
        if found and not new and source != DocumentSource(path=source.path):
            reason = "an earlier entry of 'sources' reads all of it: put this entry before that one"
            rejected.append(Rejected(Path(source.path), None, reason))
        known_as = _known_as(base, Path(os.path.abspath(root)), new, names)  # noqa: PTH100
        for path in found:
            where = path if isinstance(path, Path) else path.path
            name = (known_as / where.relative_to(base)).as_posix()
            if isinstance(path, Rejected):
                shown = os.fsencode(name).decode(errors="backslashreplace")
                rejected.append(Rejected(Path(shown), None, path.reason))
            elif path not in files:
                files[path] = _named(path, name, base, source, stems)
                stems.add(files[path].stem)
                names.add(name)
    return list(files.values()), list(dict.fromkeys(rejected))


def new_file(path: Path, source: str | DocumentSource, root: Path, stems: Collection[str]) -> SourceFile:
    """As `source_files` lists a file that is new in a source inside the project.

    Args:
        path: where it is.
        source: the entry of `sources`, a folder or this file.
        root: the project.
        stems: of the files that are there.
    """
    entry = _entry(source)
    return _named(path, path.relative_to(root).as_posix(), Path(os.path.abspath(root / entry.path)), entry, stems)  # noqa: PTH100


def _named(path: Path, name: str, base: Path, source: DocumentSource, stems: Collection[str]) -> SourceFile:
    stem = _stem(path.name if path == base else path.relative_to(base).as_posix())
    return SourceFile(path, name, name if stem in stems else stem, source)


def _entry(source: str | Path | DocumentSource) -> DocumentSource:
    return source if isinstance(source, DocumentSource) else DocumentSource(path=str(source))


def _known_as(base: Path, root: Path, inside: Sequence[Path], taken: Collection[str]) -> PurePosixPath:
    """What a source's files are named from: the end of its path, as long as it takes for names that are not taken."""
    shortest = len(base.relative_to(root).parts) if base.is_relative_to(root) else 1
    for depth in range(shortest, len(base.parts)):
        known_as = PurePosixPath(*base.parts[len(base.parts) - depth :])
        if not any((known_as / path).as_posix() in taken for path in inside):
            return known_as
    return PurePosixPath(*base.parts[1:])


def _stem(name: str) -> str:
    """`.md` is the usual kind and needs no suffix; any other keeps it, so that no file is named by its neighbours."""
    for dropped in (".gz", ".md"):
        if name.lower().endswith(dropped):
            name = name[: -len(dropped)]
    return name


def _found(base: Path, given: str) -> Iterator[Path | Rejected]:
    if not os.path.lexists(base):
        raise KnowledgeBaseError(f"knowledge base source {given} does not exist: correct 'sources' or fetch the data")
    if (wrong := _wrong(base)) is None:
        yield base
    elif wrong == FOLDER:
        yield from sorted(_walk(base), key=lambda found: (found if isinstance(found, Path) else found.path).parts)
    else:
        raise KnowledgeBaseError(f"knowledge base source {given} is {wrong}: name a file or folder")


def _walk(base: Path) -> Iterator[Path | Rejected]:
    """Files below a folder; real folders first, so that a link never takes the place of what it leads to."""
    folders: list[Path] = [base]
    links: list[Path] = []
    seen: set[tuple[int, int]] = set()
    while folders or links:
        folder = folders.pop() if folders else links.pop()
        try:
            inode = folder.stat()
            inside = sorted(folder.iterdir(), reverse=True)
        except OSError as error:
            yield Rejected(folder, None, f"a folder that cannot be listed ({error.strerror})")
            continue
        if (inode.st_dev, inode.st_ino) in seen:
            yield Rejected(folder, None, "a link to a folder that is read already")
            continue
        seen.add((inode.st_dev, inode.st_ino))
        for path in (path for path in inside if not path.name.startswith(".")):
            wrong = _wrong(path)
            if wrong == FOLDER:
                (links if path.is_symlink() else folders).append(path)
                if path.name.lower().endswith(SUFFIXES):
                    yield Rejected(path, None, "a folder with the name of a file; the files in it are read")
            else:
                yield path if wrong is None else Rejected(path, None, wrong)


def _wrong(path: Path) -> str | None:
    """Why a path is no file to read; None if it is one."""
    try:
        path.name.encode()
        mode = path.stat().st_mode
    except UnicodeEncodeError:
        return "a file whose name is not UTF-8; rename it"
    except FileNotFoundError:
        return "a link that leads nowhere"
    except OSError as error:
        return f"a file that cannot be reached ({error.strerror})"
    if stat.S_ISDIR(mode):
        return FOLDER
    return None if stat.S_ISREG(mode) else "no file but a pipe, a socket or a device"
