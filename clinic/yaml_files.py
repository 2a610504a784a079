"""YAML as people write it: a few lines can hold gigabytes by aliases, or nest deeper than a message can show."""

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError

MAX_VALUES = 100_000
MAX_DEPTH = 40


def load_yaml(path: Path) -> Any:
    """What a file says; YAML 1.2, so that 3e-05 is a number.

    Raises:
        OSError: it cannot be read.
        YAMLError: it is not YAML.
        ValueError: it is no regular file, not UTF-8, holds a date that cannot be, more values than anybody writes, or
            is nested too deep.
    """
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise ValueError("it is a folder, a pipe, a socket or a device; name a regular file")
    try:
        path.read_bytes().decode()
        content = YAML(typ="safe").load(path)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.object[error.start]:#04x} is no UTF-8; save the file as UTF-8") from error
    except DuplicateKeyError as error:
        raise ValueError(_twice(error)) from error
    except RecursionError as error:
        raise ValueError(f"values are nested deeper than {MAX_DEPTH}") from error
    count, left = 0, [(content, 1)]
    while left:
        value, depth = left.pop()
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        count += len(inner)
        if depth > MAX_DEPTH:
            raise ValueError(f"values are nested deeper than {MAX_DEPTH}")
        if count > MAX_VALUES:
            raise ValueError(f"aliases (*name) repeat values more than {MAX_VALUES} times; write out what is meant")
        left += [(one, depth + 1) for one in inner]
    return content


def _twice(error: DuplicateKeyError) -> str:
    """What stands there twice, without the advice to let it pass."""
    what = " ".join(str(error.problem).split())
    return f"{what}, line {error.problem_mark.line + 1}; remove one of the two"
