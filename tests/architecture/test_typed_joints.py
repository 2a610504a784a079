"""What passes from hand to hand has names: dataclasses of many fields take keywords, and nobody reads an event by a string."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("flows", "tasks", "kb", "clinic", "rl", "benchmarks")
MOST_POSITIONAL = 5
SOURCES = {path.relative_to(ROOT).as_posix(): path.read_text() for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))}


def positional_dataclasses(source: str) -> list[str]:
    """Dataclasses of more than `MOST_POSITIONAL` fields that take them by position."""
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
        and any("dataclass" in (written := ast.unparse(decorator)) and "kw_only=True" not in written for decorator in node.decorator_list)
        and sum(isinstance(line, ast.AnnAssign) and "ClassVar" not in ast.unparse(line.annotation) for line in node.body) > MOST_POSITIONAL
    ]


@pytest.mark.parametrize("file", SOURCES)
def test_a_dataclass_of_many_fields_takes_keywords(file: str) -> None:
    assert positional_dataclasses(SOURCES[file]) == []


def test_a_dataclass_that_takes_positions_would_be_seen() -> None:
    fields = "\n".join(f"    {name}: int" for name in "abcdef")
    assert positional_dataclasses(f"@dataclass(frozen=True)\nclass Wide:\n{fields}") == ["Wide"]
    assert positional_dataclasses(f"@dataclass\nclass Wide:\n{fields}") == ["Wide"]
    assert positional_dataclasses(f"@dataclass(frozen=True, kw_only=True)\nclass Wide:\n{fields}") == []
    assert positional_dataclasses(f"@dataclass\nclass Wide:\n{fields.removesuffix('    f: int')}") == []
