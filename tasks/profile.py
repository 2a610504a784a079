"""Reference profiles: overlays that rewrite `params.yaml` and recipes, shown as a diff with the plan that follows from them."""

import argparse
import difflib
import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tasks.parameters import ROOT, ParameterError, parse_params, read_yaml
from tasks.recipe import parse_algorithm, recipe_path
from tasks.training import plan_text


def main() -> int:
    """Command line; returns the exit status."""
    known = ", ".join(sorted(path.stem for path in (ROOT / "recipes/profiles").glob("*.yaml")))
    parser = argparse.ArgumentParser(prog="python -m tasks.profile", description=__doc__)
    parser.add_argument("name", help=f"one of: {known}")
    parser.add_argument("--write", action="store_true", help="rewrite the files; without it nothing changes")
    given = parser.parse_args()
    try:
        changed = rewritten(given.name)
        sys.stdout.write("".join(difference(path, text) for path, text in changed.items()) + plan(changed) + "\n")
    except ParameterError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if given.write:
        for path, text in changed.items():
            temporary = path.with_suffix(".partial")
            temporary.write_text(text)
            os.replace(temporary, path)
    else:
        sys.stdout.write("nothing was written; add --write\n")
    return 0


def rewritten(name: str) -> dict[Path, str]:
    """The files that a profile changes, with their new content; comments stay.

    Raises:
        ParameterError: no such profile, or it names a key that does not exist.
    """
    source = ROOT / "recipes" / "profiles" / f"{name}.yaml"
    if not source.exists():
        known = ", ".join(sorted(path.stem for path in source.parent.glob("*.yaml")))
        raise ParameterError(f"there is no profile {name!r}; choose one of: {known}")
    profile: Mapping[str, Mapping[str, Any]] = YAML().load(source)  # with its comments
    if missing := [file for file in profile if not (ROOT / file).is_file()]:
        raise ParameterError(f"{source.name}: there is no file {missing[0]}; correct the profile")
    return {ROOT / file: _overlaid(ROOT / file, changes, source.name) for file, changes in profile.items()}


def _overlaid(path: Path, changes: Mapping[str, Any], source: str) -> str:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    content = yaml.load(path)
    _overlay(content, changes, f"{source}: ", path.name)
    out = io.StringIO()
    yaml.dump(content, out)
    return out.getvalue()


def _overlay(content: Any, changes: Mapping[str, Any], where: str, name: str) -> None:
    for key, value in changes.items():
        if key not in content:
            raise ParameterError(f"{where}{key} is not in {name}; correct the profile")
        if isinstance(value, Mapping) and _same_kind(content[key], value):
            _overlay(content[key], value, f"{where}{key}.", name)
        else:
            content[key] = value


def _same_kind(block: Any, changes: Mapping[str, Any]) -> bool:
    """Whether changes are to a block's own keys; a block of another `kind` takes its place as a whole."""
    return isinstance(block, Mapping) and changes.get("kind", block.get("kind")) == block.get("kind")


def difference(path: Path, text: str) -> str:
    """Unified diff of a file and its new content."""
    name = path.relative_to(ROOT).as_posix()
    return "".join(difflib.unified_diff(path.read_text().splitlines(keepends=True), text.splitlines(keepends=True), name, f"{name} (profile)", n=0))


def plan(changed: Mapping[Path, str]) -> str:
    """The accounting that follows."""

    def content(path: Path) -> Any:
        return YAML(typ="safe").load(changed[path]) if path in changed else read_yaml(path)

    params = parse_params(content(ROOT / "params.yaml"), ROOT / "params.yaml")
    recipe = recipe_path(params)
    return plan_text(params, parse_algorithm(content(recipe), params, recipe))


if __name__ == "__main__":
    sys.exit(main())
