"""Reference profiles: overlays that rewrite `params.yaml` and recipes, shown as a diff."""

import difflib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import RoundTripRepresenter

from doctor.mistakes import read_yaml, validated
from doctor.parameters import ROOT, ParameterError, Params, parse_params


class _Representer(RoundTripRepresenter):
    """Writes null as it stands in the files; ruamel's own leaves the place empty."""

    def represent_none(self, data: None) -> ScalarNode:  # noqa: ARG002  ruamel's signature
        """The word."""
        node: ScalarNode = self.represent_scalar("tag:yaml.org,2002:null", "null")
        return node


_Representer.add_representer(type(None), _Representer.represent_none)


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
        raise ParameterError(
            f"{source.name}: there is no file {missing[0]}; restore it with `git checkout {missing[0]}`, or correct the profile"
        )
    return {ROOT / file: _overlaid(ROOT / file, changes, source.name) for file, changes in profile.items()}


def _overlaid(path: Path, changes: Mapping[str, Any], source: str) -> str:
    yaml = YAML()
    yaml.Representer = _Representer
    yaml.preserve_quotes = True
    yaml.width = 4096
    validated(read_yaml(path), path, dict)  # a mapping, or a line that says why not
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
    return "".join(
        difflib.unified_diff(
            path.read_text().splitlines(keepends=True), text.splitlines(keepends=True), name, f"{name} (profile)", n=0
        )
    )


def params_under(name: str) -> Params:
    """What `params.yaml` would be under a profile.

    Raises:
        ParameterError: as `rewritten`, or what it gives does not fit together.
    """
    path = ROOT / "params.yaml"
    return parse_params(YAML(typ="safe").load(rewritten(name)[path]), path)
