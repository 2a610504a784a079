"""Reference profiles: overlays that rewrite `params.yaml` and a recipe, shown as a diff with the plan that follows from them."""

import difflib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from doctor.parameters import ROOT, ParameterError, parse_params
from doctor.recipe import parse_algorithm
from doctor.training import plan_text


def rewritten(name: str) -> dict[Path, str]:
    """The files that a profile changes, with their new content; comments stay.

    Raises:
        ParameterError: no such profile, or it names a key that does not exist.
    """
    source = ROOT / "recipes" / "profiles" / f"{name}.yaml"
    if not source.exists():
        known = ", ".join(sorted(path.stem for path in source.parent.glob("*.yaml")))
        raise ParameterError(f"there is no profile {name!r}; choose one of: {known}")
    profile = YAML(typ="safe").load(source)
    algorithm = profile["params"]["algorithm"]["name"]
    files = {ROOT / "params.yaml": profile["params"], ROOT / "recipes" / f"{algorithm}.yaml": profile["recipe"]}
    return {path: _overlaid(path, changes, source.name) for path, changes in files.items()}


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
        if isinstance(value, Mapping):
            _overlay(content[key], value, f"{where}{key}.", name)
        else:
            content[key] = value


def difference(path: Path, text: str) -> str:
    """Unified diff of a file and its new content."""
    name = path.relative_to(ROOT).as_posix()
    return "".join(difflib.unified_diff(path.read_text().splitlines(keepends=True), text.splitlines(keepends=True), name, f"{name} (profile)", n=0))


def plan(changed: Mapping[Path, str]) -> str:
    """The accounting that follows."""
    yaml = YAML(typ="safe")
    texts = {path.name: yaml.load(text) for path, text in changed.items()}
    params = parse_params(texts["params.yaml"], ROOT / "params.yaml")
    name = f"{params.algorithm.name}.yaml"
    return plan_text(params, parse_algorithm(texts[name], params, ROOT / "recipes" / name))
