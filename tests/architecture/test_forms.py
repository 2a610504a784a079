"""Prefect's form of each deployment says what is asked for in every field."""

from importlib import import_module

import pytest
from prefect.utilities.callables import parameter_schema
from ruamel.yaml import YAML

from doctor.parameters import ROOT

DEPLOYMENTS = YAML(typ="safe").load((ROOT / "prefect.yaml").read_text())["deployments"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=[one["name"] for one in DEPLOYMENTS])
def test_every_field_is_described(deployment: dict[str, str]) -> None:
    path, _, name = deployment["entrypoint"].partition(":")
    flow = getattr(import_module(path.removesuffix(".py").replace("/", ".")), name)
    fields = parameter_schema(flow.fn).properties
    assert fields
    assert [field for field, about in fields.items() if not about.get("description")] == []
    assert flow.description
