"""What every parameter is, from the one place that says it: the descriptions of the fields.

Made of them: a page for people, and JSON schemas that editors complete from.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter

from clinic.config import PresetParams
from clinic.loaders.mapping import Mapping as CaseMapping
from doctor.base_model_recipe import BaseModelRecipe
from doctor.mistakes import read_yaml
from doctor.parameters import ROOT, Params

HEAD = """# Parameters

Made by `python -m commands.parameter_reference` from the descriptions in the code; a test fails where it is out of date. Every number is in a file, none has a default in code.
`params.yaml` has the choices, `recipes/rewards/<reward.preset>.yaml` the reward's constants, `recipes/<algorithm.name>.yaml` the algorithm's numbers
([their pages](../algorithms/index.md)), `recipes/base_model.yaml` what the bundled model is made with. Editors with a YAML language server complete keys from `schemas/`.
"""
MAPPING_HEAD = """# Mapping files

Made by `python -m commands.parameter_reference`. A mapping file says what the columns of a table of your own cases are ([how to use one](../how-to/use-your-own-cases.md)).
The value of a field is the name of a column, as the table writes it; fields that are left out are not in the table. With
`# yaml-language-server: $schema=schemas/mapping.schema.json` as its first line, editors complete it.

| field | may be | what it is |
|---|---|---|
"""
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def generated() -> dict[Path, str]:
    """Every file that is made of the descriptions, with its content."""
    reward = TypeAdapter[PresetParams](PresetParams).json_schema()
    return {
        ROOT / "docs" / "reference" / "parameters.md": page(),
        ROOT / "docs" / "reference" / "mapping.md": mapping_page(),
        ROOT / "schemas" / "mapping.schema.json": _schema("*.mapping.yaml", CaseMapping.model_json_schema()),
        ROOT / "schemas" / "params.schema.json": _schema("params.yaml", Params.model_json_schema()),
        ROOT / "schemas" / "reward.schema.json": _schema("recipes/rewards/*.yaml", reward),
    }


def stale() -> list[str]:
    """Names of the files that are missing or say something else by now."""
    return [
        path.relative_to(ROOT).as_posix()
        for path, text in generated().items()
        if not path.exists() or path.read_text() != text
    ]


def page() -> str:
    """The reference, as Markdown."""
    told: dict[type[BaseModel], str] = {}
    parts = [HEAD, "\n## `params.yaml`\n", *_tables("", Params, read_yaml(ROOT / "params.yaml"), told)]
    for path in sorted((ROOT / "recipes" / "rewards").glob("*.yaml")):
        shipped = read_yaml(path)
        preset = TypeAdapter[PresetParams](PresetParams).validate_python(shipped)
        parts += [f"\n## `recipes/rewards/{path.name}`\n", *_tables("", type(preset), shipped, told)]
    parts += [
        "\n## `recipes/base_model.yaml`\n",
        *_tables("", BaseModelRecipe, read_yaml(ROOT / "recipes" / "base_model.yaml"), told),
    ]
    return "\n".join(parts)


def mapping_page() -> str:
    """The reference of mapping files, as Markdown."""
    rows = [
        _row(name, _field_may_be(name, field.annotation), str(field.description).replace("<", "&lt;"))
        for name, field in CaseMapping.model_fields.items()
    ]
    return MAPPING_HEAD + "\n".join(rows) + "\n"


def _field_may_be(name: str, annotation: Any) -> str:
    if name in ("name", "separator"):
        return "a text"
    if name == "corrections":
        return "text: text"
    several = "columns" if "tuple" in str(annotation) else "column"
    needed = ", needed" if CaseMapping.model_fields[name].is_required() else ""
    return f"{several}{' or `{constant: text}`' * bool(_models(annotation))}{needed}"


def _schema(file: str, schema: Mapping[str, Any]) -> str:
    return (
        json.dumps(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": file},
            indent=1,
            ensure_ascii=False,
        )
        + "\n"
    )


def _tables(path: str, model: type[BaseModel], shipped: Any, told: dict[type[BaseModel], str]) -> Iterator[str]:
    """The table of a section, then those of the blocks in it; a block that can stand in several places is told in the
    first.
    """
    values = shipped if isinstance(shipped, Mapping) else {}
    properties = model.model_json_schema()["properties"]
    yield from [
        f"{summary}\n"
        for summary in (model.__doc__ or "").splitlines()[:1]
        if not re.fullmatch(r"Section `\w+`\.", summary)
    ]
    yield from ["| key | shipped | may be | what it is |", "|---|---|---|---|"]
    inside: list[tuple[str, type[BaseModel], Any]] = []
    for name, field in model.model_fields.items():
        blocks, value = _models(field.annotation), values.get(name)
        seen = [f"as `{told[block]}`" for block in blocks[:1] if block in told] or ["a block, below"]
        may_be = (
            _may_be(properties[name])
            if not blocks
            else " or ".join([*seen, *["null"] * (type(None) in get_args(field.annotation))])
        )
        known = (
            ""
            if isinstance(value, Mapping)
            else f"`{_yaml(value)}`"
            if name in values and not (blocks and value)
            else "–"
        )
        yield _row(f"{path}{name}", known, may_be, str(field.description).replace("<", "&lt;"))
        inside += [(f"{path}{name}", block, value) for block in blocks if block not in told]
        told |= {block: f"{path}{name}" for block in blocks if block not in told}
    yield ""
    for key, block, value in inside:
        yield f"### `{key}`\n"
        yield from _tables(f"{key}.", block, value if _fits(block, value) else None, told)


def _row(key: str, *said: str) -> str:
    cells = [f"`{key}`", *said]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The classes of blocks in a type, in order."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _fits(block: type[BaseModel], value: Any) -> bool:
    """Whether what is shipped is a block of this class, by its keys."""
    return isinstance(value, Mapping) and set(value) == set(block.model_fields)


def _may_be(schema: Mapping[str, Any]) -> str:
    """The values of a leaf in words."""
    if choices := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        return ", ".join(f"`{choice}`" for choice in choices)
    if "anyOf" in schema:
        return " or ".join(_may_be(option) for option in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_may_be(schema['items'])}"
    bounds = [f"{sign} {schema[name]:g}" for name, sign in BOUNDS.items() if name in schema]
    return " ".join([str(schema["type"]), ", ".join(bounds)]).strip()


def _yaml(value: Any) -> str:
    """A value as params.yaml has it."""
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    if isinstance(value, float):
        return ".inf" if value == float("inf") else f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)
