"""Reference profiles: overlays that rewrite `params.yaml` and a recipe, shown as a diff with the plan that follows from
them.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def main() -> int:
    """Show what a profile changes, and write it if asked to."""
    parser = argparse.ArgumentParser(prog="python -m commands.profile", description=__doc__)
    parser.add_argument("name", help="a file in recipes/profiles, without .yaml")
    parser.add_argument("--write", action="store_true", help="rewrite the files; without it nothing changes")
    given = parser.parse_args()
    from doctor.parameters import ParameterError
    from doctor.profiles import difference, rewritten

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


def plan(changed: Mapping[Path, str]) -> str:
    """The accounting that follows from changed files, by path."""
    from ruamel.yaml import YAML

    from doctor.mistakes import read_yaml
    from doctor.parameters import ROOT, parse_params, recipe_path
    from doctor.recipe import parse_algorithm
    from doctor.training import plan_text

    def content(path: Path) -> Any:
        return YAML(typ="safe").load(changed[path]) if path in changed else read_yaml(path)

    params = parse_params(content(ROOT / "params.yaml"), ROOT / "params.yaml")
    recipe = recipe_path(params.algorithm.name)
    return plan_text(params, parse_algorithm(content(recipe), params, recipe))


if __name__ == "__main__":
    sys.exit(main())
