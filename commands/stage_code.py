"""The code that each stage of dvc.yaml depends on, read from the imports of its flow: an edit makes exactly those stages
stale that would run it.

What starts, shows, tracks and versions a run is left out: results must not depend on it.
"""

import argparse
import ast
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("clinic", "kb", "rl", "doctor", "tracking", "tasks", "flows")  # in the order of the list
EXEMPT = {
    "tasks/command_line.py",
    "tasks/versioning.py",
    *(f"tracking/{name}.py" for name in ("console", "errors", "progress", "provenance", "recorder", "runs", "traces")),
}
COLUMNS = 160
_STAGE = r"(  {stage}:\n(?:    [^\n]*\n)*?    deps:)\s*\[([^\]]*)\]"


def main() -> int:
    """List the files, or say which stages list others than they import; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m commands.stage_code", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if a list is out of date")
    given = parser.parse_args()
    path = ROOT / "dvc.yaml"
    old = path.read_text()
    new = listed(old)
    if new != old and not given.check:
        path.write_text(new)
    told = "up to date" if new == old else "out of date" if given.check else "written"
    sys.stdout.write(f"dvc.yaml: {told}\n")
    return int(given.check and new != old)


def listed(text: str) -> str:
    """The text of dvc.yaml with every stage's code listed as it is imported; its other dependencies stay as they are."""
    for stage in re.findall(r"^  (\w+):$", text, re.MULTILINE):
        code = in_folders(closure(ROOT / "flows" / f"{stage}.py"))

        def renewed(match: "re.Match[str]", code: list[str] = code) -> str:
            given = re.split(r",\s*", match[2].strip())
            names = [*(name for name in given if not is_code(name.strip("'"))), *code]
            body = textwrap.fill(
                ", ".join(names), COLUMNS, initial_indent=" " * 7, subsequent_indent=" " * 7, break_on_hyphens=False
            )
            return f"{match[1]}\n      [{body.strip()}]"

        text = re.sub(_STAGE.format(stage=stage), renewed, text, count=1)
    return text


def is_code(name: str) -> bool:
    """Whether a dependency is listed here: a module, a text beside one, or a folder of them."""
    path = ROOT / name
    return name.split("/")[0] in ROOMS and (path.suffix in (".py", ".yaml") or any(path.rglob("*.py")))


def closure(start: Path) -> set[str]:
    """The files that a module imports, directly or not, itself among them, with the texts that they read beside
    themselves; as paths from the root. Of packages those with code.
    """
    seen: set[Path] = set()
    queue = [start]
    while queue:
        path = queue.pop()
        if path in seen or path.relative_to(ROOT).as_posix() in EXEMPT:
            continue
        seen.add(path)
        queue += imported_files(path)
    kept = {path for path in seen if path.name != "__init__.py" or imported_files(path)}
    return {path.relative_to(ROOT).as_posix() for path in kept | {text for path in kept for text in texts_beside(path)}}


def imported_files(path: Path) -> set[Path]:
    """The modules of our rooms that a module names in its imports, wherever they stand in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        found |= {file for name in names if (file := module_file(name))}
    return found


def module_file(name: str) -> Path | None:
    """The file of a module of ours."""
    if name.split(".")[0] not in ROOMS:
        return None
    path = ROOT / Path(*name.split("."))
    if path.with_suffix(".py").exists():
        return path.with_suffix(".py")
    return path / "__init__.py" if (path / "__init__.py").exists() else None


def texts_beside(path: Path) -> Iterator[Path]:
    """The YAML files that a module reads with `Path(__file__).with_name("<name>.yaml")`."""
    for name in re.findall(r'with_name\("([\w.]+\.yaml)"\)', path.read_text(encoding="utf-8")):
        if path.with_name(name).exists():
            yield path.with_name(name)


def in_folders(files: Iterable[str]) -> list[str]:
    """The files in the order of the rooms; a folder whose code is all among them stands for it."""
    chosen = set(files)
    for room in ROOMS:
        for folder in sorted([ROOT / room, *(path for path in (ROOT / room).rglob("*") if path.is_dir())]):
            inside = {path for path in folder.rglob("*") if path.suffix in (".py", ".yaml") and _counts(path)}
            names = {path.relative_to(ROOT).as_posix() for path in inside}
            if len(names) > 1 and names <= chosen:
                chosen = (chosen - names) | {folder.relative_to(ROOT).as_posix()}
    return sorted(chosen, key=lambda name: (ROOMS.index(name.split("/")[0]), name))


def _counts(path: Path) -> bool:
    return path.name != "__init__.py" or bool(imported_files(path))


if __name__ == "__main__":
    sys.exit(main())
