"""Every stage of dvc.yaml lists the code that its flow imports; tracking, versioning and display are exempt."""

import ast
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("flows", "tasks", "tracking", "doctor", "kb", "clinic", "rl")
EXEMPT = {
    "tasks/versioning.py",
    *(f"tracking/{name}.py" for name in ("console", "progress", "provenance", "recorder", "runs", "traces")),
}
STAGES = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]


def module_file(name: str) -> Path | None:
    if name.split(".")[0] not in ROOMS:
        return None
    path = ROOT / Path(*name.split("."))
    if path.with_suffix(".py").exists():
        return path.with_suffix(".py")
    return path / "__init__.py" if (path / "__init__.py").exists() else None


def imported_files(path: Path) -> set[Path]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        found |= {file for name in names if (file := module_file(name))}
    return found


def closure(start: Path) -> set[str]:
    seen: set[Path] = set()
    queue = [start]
    while queue:
        path = queue.pop()
        if path in seen or path.relative_to(ROOT).as_posix() in EXEMPT:
            continue
        seen.add(path)
        queue += imported_files(path)
    return {path.relative_to(ROOT).as_posix() for path in seen if path.name != "__init__.py" or imported_files(path)}


def unlisted(stage: str, deps: list[str]) -> list[str]:
    return [
        file
        for file in sorted(closure(ROOT / "flows" / f"{stage}.py"))
        if not any(file == dep or file.startswith(f"{dep}/") for dep in deps)
    ]


@pytest.mark.parametrize("stage", STAGES)
def test_stage_lists_the_code_it_imports(stage: str) -> None:
    assert unlisted(stage, STAGES[stage]["deps"]) == []


def test_a_forgotten_module_would_be_seen() -> None:
    deps = [dep for dep in STAGES["train_doctor"]["deps"] if dep != "rl"]
    assert "rl/learner.py" in unlisted("train_doctor", deps)


@pytest.mark.parametrize("stage", STAGES)
def test_stage_flow_and_command_share_a_name(stage: str) -> None:
    assert f"-m flows.{stage} " in STAGES[stage]["cmd"]
    assert (ROOT / "flows" / f"{stage}.py").exists()
