"""compose.yaml, as far as it can be judged without running it."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "compose.yaml").read_text()
COMPOSE = YAML(typ="safe").load(TEXT)
SERVICES = COMPOSE["services"]
OWN = sorted(name for name, service in SERVICES.items() if "build" in service)
WORKER = (ROOT / "deploy" / "worker.sh").read_text()
EXAMPLE = dict(
    line.split("=", 1) for line in (ROOT / ".env.example").read_text().splitlines() if line and line[0] != "#"
)


def asked():
    """Variables without which `docker compose` refuses to start."""
    return set(re.findall(r"\$\{(\w+):\?", TEXT))


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split(" ;")[0].strip().split("==") for line in lines if "==" in line)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_says_whether_it_is_well_and_comes_back(name):
    service = SERVICES[name]
    assert service["healthcheck"]["test"][0] == "CMD"
    assert service["restart"] == "unless-stopped"


def test_nothing_starts_before_what_it_needs_is_well():
    needed = {name: service.get("depends_on", {}) for name, service in SERVICES.items()}
    assert {name: set(others) for name, others in needed.items()} == {
        "postgres": set(),
        "prefect": {"postgres"},
        "mlflow": {"postgres"},
        "worker": {"prefect", "mlflow"},
    }
    assert all(how == {"condition": "service_healthy"} for others in needed.values() for how in others.values())


def test_ports_are_open_to_this_machine_only():
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert ports == {"prefect": ["127.0.0.1:4200:4200"], "mlflow": ["127.0.0.1:5000:5000"]}


def test_every_password_is_asked_for_and_none_has_a_default():
    secret = re.compile(r"PASSWORD|SECRET|AUTH_STRING")
    for service in SERVICES.values():
        for name, value in service["environment"].items():
            if secret.search(name):
                assert re.fullmatch(r"(admin:)?\$\{\w+:\?set it in \.env\}", value), name
    assert not re.search(r"://[^\s/@]+:[^\s/@]*@", TEXT + (ROOT / "deploy" / "mlflow_users.ini").read_text())
    assert {name for name, value in EXAMPLE.items() if value} == {"PROJECT_USER"}
    assert asked() == set(EXAMPLE)


def test_the_real_passwords_are_ignored_by_git():
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()


def test_volumes_outlive_containers():
    mounted = {m.split(":")[0] for service in SERVICES.values() for m in service.get("volumes", [])}
    assert {m for m in mounted if not m.startswith(".")} == set(COMPOSE["volumes"]) == {"database", "artifacts"}
    for folder in mounted - set(COMPOSE["volumes"]):
        assert (ROOT / folder).exists()


def test_images_are_pinned_and_ours_is_built_from_the_constraints():
    assert re.fullmatch(r"postgres:\d+-\w+", SERVICES["postgres"]["image"])
    assert OWN == ["mlflow", "prefect", "worker"]
    built = (ROOT / "Dockerfile").read_text()
    assert "--constraint constraints.txt" in built
    assert re.search(r"^FROM python:3\.12-slim$", built, re.MULTILINE)
    assert re.search(r"^USER anamnesis$", built, re.MULTILINE)
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = re.findall(r"^COPY (.+) \S+$", built, re.MULTILINE)
    assert sorted(kept) == sorted(copied[0].split())
    assert len(copied) == 1
    for package in ("prefect", "mlflow"):  # what these tests ask is what the image runs
        assert pins()[package] == version(package)


def test_the_packages_for_postgresql_are_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for line in project["optional-dependencies"]["server"]:
        wanted = Requirement(line)
        assert wanted.specifier.contains(pins()[wanted.name])
    assert "asyncpg" in pins()  # Prefect brings it


def options(command):
    """The long options that a command line uses, and the help of the command."""
    words = shlex.split(command)
    end = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    help_page = subprocess.run(
        [sys.executable, "-m", *words[:end], "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "200", "DO_NOT_TRACK": "true", "MLFLOW_DISABLE_TELEMETRY": "true"},
    )
    return {word for word in words if word.startswith("--")}, set(re.findall(r"--[\w-]+", help_page.stdout))


@pytest.mark.parametrize(
    "command",
    [
        SERVICES["prefect"]["command"],
        SERVICES["mlflow"]["command"],
        WORKER.splitlines()[-1].removeprefix("exec "),
    ],
    ids=["prefect", "mlflow", "worker"],
)
def test_the_installed_programs_know_the_options(command):
    used, known = options(command)
    assert used
    assert used <= known


def test_the_programs_know_the_variables():
    from mlflow import environment_variables
    from prefect.settings import Settings
    from prefect.settings.legacy import _get_settings_fields

    of_prefect = set(_get_settings_fields(Settings))
    for service in OWN:
        for name in SERVICES[service]["environment"]:
            if name.startswith("PREFECT_"):
                assert name in of_prefect, name
            if name.startswith("MLFLOW_"):
                assert hasattr(environment_variables, name), name


def test_the_worker_finds_its_servers():
    worker = SERVICES["worker"]
    assert worker["environment"]["PREFECT_API_URL"] == "http://prefect:4200/api"
    assert worker["environment"]["MLFLOW_TRACKING_URI"] == "http://mlflow:5000"
    hosts = shlex.split(SERVICES["mlflow"]["command"])
    assert "mlflow:*" in hosts[hosts.index("--allowed-hosts") + 1].split(",")
    assert worker["command"].split()[-1] == "deploy/worker.sh"
    pool = YAML(typ="safe").load((ROOT / "prefect.yaml").read_text())["deployments"][0]["work_pool"]["name"]
    assert f"--pool {pool} " in WORKER


def test_the_worker_needs_no_database(monkeypatch):
    """Runs, artifacts and the registry go through MLflow's server, which keeps the models' files."""
    import mlflow

    environment = SERVICES["worker"]["environment"]
    assert not [name for name, value in environment.items() if name.startswith("PG") or "postgres" in value]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", environment["MLFLOW_TRACKING_URI"])
    monkeypatch.setattr("mlflow.tracking._tracking_service.utils._tracking_uri", None)
    assert mlflow.get_registry_uri() == "http://mlflow:5000"
    assert "--artifacts-destination" in shlex.split(SERVICES["mlflow"]["command"])
