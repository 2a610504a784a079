"""What passes from hand to hand has names: dataclasses of many fields take keywords, and nobody reads an event of a
consultation by a string. What comes from outside is no code.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

from clinic.events import Answered, Asked, Diagnosed, Examined, Invalid, Searched

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("flows", "tasks", "tracking", "doctor", "commands", "kb", "clinic", "rl", "benchmarks")
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for room in ROOMS
    for path in sorted((ROOT / room).rglob("*.py"))
}
MOST_POSITIONAL = 5
KEYS = {
    "kind",
    "hits",
    *(field.name for event in (Asked, Examined, Searched, Diagnosed, Invalid, Answered) for field in fields(event)),
}


def findings(look: Callable[[str], list[str]]) -> dict[str, list[str]]:
    return {file: found for file, source in SOURCES.items() if (found := look(source))}


def positional_dataclasses(source: str) -> list[str]:
    """Dataclasses of more than `MOST_POSITIONAL` fields that take them by position."""
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
        and any(
            "dataclass" in (written := ast.unparse(decorator)) and "kw_only=True" not in written
            for decorator in node.decorator_list
        )
        and sum(
            isinstance(line, ast.AnnAssign) and "ClassVar" not in ast.unparse(line.annotation) for line in node.body
        )
        > MOST_POSITIONAL
    ]


def event_reads(source: str) -> list[str]:
    """Reads by an event's key (`x["topic"]`, `x.get("topic")`, `"topic" in x`) of something that is, or comes from,
    what is called event or events.
    """
    tree = ast.parse(source)
    names = {"event"} | {
        name.id
        for target, value in bindings(tree)
        if holds_events(value)
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    }
    return [
        ast.unparse(read)
        for read, key, of in reads(tree)
        if key in KEYS and (holds_events(of) or (isinstance(of, ast.Name) and of.id in names))
    ]


def bindings(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Targets and values of loops, comprehensions and assignments to one name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension):
            yield node.target, node.iter
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0], node.value


def holds_events(value: ast.AST) -> bool:
    """Whether an expression is what is called events, or one of them: not what a function makes of them."""
    if isinstance(value, ast.Subscript):
        return holds_events(value.value)
    if isinstance(value, ast.IfExp):
        return holds_events(value.body) or holds_events(value.orelse)
    return isinstance(value, ast.Attribute | ast.Name) and (
        value.attr if isinstance(value, ast.Attribute) else value.id
    ) in ("event", "events")


def reads(tree: ast.AST) -> Iterator[tuple[ast.AST, object, ast.AST]]:
    """Reads by a constant: the expression, the key and what it is read of."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            yield node, node.slice.value, node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node, node.args[0].value, node.func.value
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In) and isinstance(node.left, ast.Constant):
            yield node, node.left.value, node.comparators[0]


def test_dataclasses_of_many_fields_take_keywords():
    assert findings(positional_dataclasses) == {}


def test_a_dataclass_that_takes_positions_would_be_seen():
    wide = "\n".join(f"    {name}: int" for name in "abcdef")
    assert positional_dataclasses(f"@dataclass(frozen=True)\nclass Wide:\n{wide}") == ["Wide"]
    assert positional_dataclasses(f"@dataclass\nclass Wide:\n{wide}") == ["Wide"]
    assert positional_dataclasses(f"@dataclass(frozen=True, kw_only=True)\nclass Wide:\n{wide}") == []
    assert positional_dataclasses(f"@dataclass\nclass Narrow:\n{wide.removesuffix('    f: int')}") == []


def imports(source: str) -> list[str]:
    """Every module that is imported, by its whole name; import-linter knows those of other packages by their first."""
    return [
        name
        for node in ast.walk(ast.parse(source))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [f"{node.module}.{alias.name}" for alias in node.names]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    ]


def test_one_room_knows_of_other_processes_of_torch():
    """Where ranks speak to each other and share weights."""
    found = findings(lambda source: [name for name in imports(source) if name.startswith("torch.distributed")])
    assert found.keys() == {"rl/ranks.py"}


def trusting(source: str) -> list[str]:
    """Calls of transformers' Auto classes that do not say that a repository's own code is never run."""
    return [
        written
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and re.fullmatch(r"(transformers\.)?Auto\w+\.from_(pretrained|config)", written := ast.unparse(node.func))
        and "trust_remote_code=False" not in map(ast.unparse, node.keywords)
    ]


def test_code_that_a_repository_brings_is_never_run():
    assert findings(trusting) == {}


def test_a_call_that_would_run_it_would_be_seen():
    for call in ("AutoTokenizer.from_pretrained(name)", "transformers.AutoModel.from_pretrained(name, **source)"):
        assert trusting(call) == [call.partition("(")[0]]
    assert trusting("AutoConfig.from_pretrained(name, trust_remote_code=True)")
    assert not trusting("AutoConfig.from_pretrained(name, trust_remote_code=False)")


def test_nobody_reads_an_event_by_a_string():
    assert findings(event_reads) == {}


def test_a_read_by_a_string_would_be_seen():
    for read in (
        'event["topic"]',
        'event.get("leaks", 0)',
        'trajectory.events[-1]["kind"]',
        '[e["topic"] for t in ts for e in t.events]',
        'last = t.events[-1]\nlast.get("diagnosis")',
        'last = t.events[-1] if t.events else {}\n"diagnosis" in last',
        'reply.event["kind"]',
    ):
        assert event_reads(read), read
    for other in (
        'row["topic"]',
        'event["outcome"]',
        "event.topic",
        '[row["topic"] for row in rows(t.events)]',
        'privileged["present"]',
    ):
        assert not event_reads(other), other
