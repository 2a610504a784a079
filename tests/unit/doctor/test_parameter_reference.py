"""The reference of parameters and the schemas that editors read are made of the descriptions in the code, and up to
date.
"""

import json
import subprocess
import sys

import pytest
from pydantic import BaseModel

from clinic.config import PresetParams
from doctor.base_model_recipe import BaseModelParams
from doctor.mistakes import read_yaml
from doctor.parameter_reference import _models, page, stale
from doctor.parameters import ROOT


def classes(annotation: object, found: set[type[BaseModel]]) -> set[type[BaseModel]]:
    for model in set(_models(annotation)) - found:
        found.add(model)
        for field in model.model_fields.values():
            classes(field.annotation, found)
    return found


ALL = classes(BaseModelParams, set()) | classes(PresetParams, set())


def test_every_parameter_says_what_it_is() -> None:
    assert len(ALL) > 25
    silent = [
        f"{model.__name__}.{name}"
        for model in ALL
        for name, field in model.model_fields.items()
        if not field.description and name != "base_model"
    ]
    assert silent == []


def test_page_and_schemas_are_up_to_date() -> None:
    assert stale() == [], "run: python -m commands.parameter_reference"


def test_the_page_has_every_leaf_with_what_is_shipped() -> None:
    text = page()
    for line in (
        "| `rollout.prompts` | `16` | integer ≥ 1 |",
        "| `rollout.engine.kv_cache_gib` | – | number > 0 |",
        "| `language_models.patient` | `null` | a block, below or null |",
    ):
        assert line in text

    def leaves(content: dict, path: str = "") -> list[str]:
        return [
            key
            for name, value in content.items()
            for key in (leaves(value, f"{path}{name}.") if isinstance(value, dict) else [f"{path}{name}"])
        ]

    assert [key for key in leaves(read_yaml(ROOT / "params.yaml")) if f"| `{key}` | " not in text] == []


@pytest.mark.parametrize(
    "path", [ROOT / "params.yaml", *sorted((ROOT / "recipes/rewards").glob("*.yaml"))], ids=lambda path: path.stem
)
def test_a_file_names_the_schema_that_editors_complete_it_from(path) -> None:
    first = path.read_text().splitlines()[0]
    schema = json.loads((path.parent / first.removeprefix("# yaml-language-server: $schema=")).read_text())
    known = (
        schema["properties"]
        if path.stem == "params"
        else schema["$defs"][schema["discriminator"]["mapping"][path.stem].rsplit("/")[-1]]["properties"]
    )
    assert set(read_yaml(path)) == set(known)


def test_the_command_says_whether_all_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "commands.parameter_reference", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "all up to date\n"), done.stderr
