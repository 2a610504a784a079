"""Records that somebody got wrong: a sound one, changed at random where it hurts. The same seed gives the same ones."""

import copy
import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

WRONG: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    10**400,
    -(10**400),
    1e-320,
    float("nan"),
    float("inf"),
    float("-inf"),
    "",
    " \t\r\n",
    "\0",
    "\ud800",
    "\u2028\u202e\ufeff",
    "nan",
    "[",
    "[" * 5000,
    "{" * 100,
    "=cmd|' /C calc'!A0",
    "../../../etc/passwd",
    "<tool_call>",
    "a" * 100_000,
    "(" * 3000 + "a",
    "is it is it is it " * 500,
    "诊断" * 2000,
    [],
    {},
    [[]],
    [None],
    [{}],
    [1, "a", None],
    {"": ""},
    {"text": None},
)
TOKENS = (
    b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r", b"\n", b"\t", b'"', b"'", b"\\", b"\\u", b"\\ud800", b"{", b"}", b"[", b"]", b",", b":", b"-",
    b"&a ", b"*a", b"<<: *a", b"!!python/object/apply:os.system ", b"!x ", b"%TAG ! x", b"---\n", b"...\n", b"|", b">", b"? ", b"@", b"`", b"#", b"1e999", b"0x", b"9" * 5000,
    b"NaN", b"Infinity", b"~", b"null", b"[" * 3000, b"{a: " * 500,
)  # fmt: skip


@contextmanager
def deep() -> Iterator[None]:
    """Lets records be written that are nested deeper than who reads them can follow."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every node below a JSON value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in children:
        yield (*path, key)
        yield from places(inner, (*path, key))


def changed(record: Any, rng: random.Random) -> Any:
    """The record with one to three of its nodes lost, replaced, renamed, nested or doubled."""
    record = copy.deepcopy(record)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        found = list(places(record))
        if not found:
            break
        *way, last = rng.choice(found)
        place = record
        for key in way:
            place = place[key]
        match rng.randrange(8):
            case 0:
                del place[last]
            case 1 if isinstance(place, dict):
                place[rng.choice(("", "x", f" {last}", str(last).upper(), "text", "\ud800", "a" * 300))] = place.pop(
                    last
                )
            case 2:
                place[last] = nested(place[last], rng)
            case 3:
                place[last] = [copy.deepcopy(place[last]) for _ in range(rng.choice((2, 50)))]
            case 4 if isinstance(place[last], str) and place[last]:
                place[last] = cut(place[last].encode("utf-8", "surrogatepass"), rng).decode("utf-8", "replace")
            case _:
                place[last] = copy.deepcopy(rng.choice(WRONG))
    return record


def nested(value: Any, rng: random.Random) -> Any:
    """The value deep inside lists or mappings."""
    for _ in range(rng.choice((1, 10, 300, 900))):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def cut(content: bytes, rng: random.Random) -> bytes:
    """The bytes with something cut off, flipped, put in or doubled."""
    at = rng.randrange(len(content) + 1)
    match rng.randrange(5):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + rng.choice(TOKENS) + content[at:]
        case 2:
            return content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]
        case 3:
            return content[:at] + content[at + rng.randrange(1, 40) :]
    end = at + rng.randrange(1, 200)
    return content[:end] + content[at:end] * rng.choice((1, 20)) + content[end:]


def json_line(record: Any, rng: random.Random) -> bytes:
    """One line: the record changed as a value, or its text as bytes; never blank, never two lines."""
    text = json.dumps(changed(record, rng) if rng.random() < 0.7 else record, ensure_ascii=rng.random() < 0.5)
    line = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.4:
        line = cut(line, rng)
    return line.replace(b"\n", b" ").strip() or b"x"


def text_of(write: Callable[[Any], str], record: Any, rng: random.Random) -> bytes:
    """A whole file: the record changed as a value and written, or its text changed as bytes."""
    content = record
    if rng.random() < 0.5:
        content = changed(record, rng)
    try:
        text = write(content).encode("utf-8", "surrogatepass")
    except (ValueError, TypeError, RecursionError):  # what YAML cannot say
        text = write(record).encode()
    return cut(text, rng) if content is record or rng.random() < 0.2 else text
