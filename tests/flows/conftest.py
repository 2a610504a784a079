"""A tiny copy of the project and one real Prefect server for the tests that run whole stages."""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tasks.server import free_port, wait_until_healthy

ROOT = Path(__file__).resolve().parents[2]
TINY = {
    "params.yaml": {
        "    cases: ": "400",
        "  prompts: ": "4",
        "  steps: ": "4",
        "  keep_every: ": "2",
        "  export: ": "average",
        "  test_freq: ": "2",
        "  validation_cases: ": "12",
        "  forced_cases: ": "12",
        "  cases: ": "24",
        "  slots: ": "16",
        "  threads: ": "1",  # so small a model gains nothing from more, and other tests want the cores
    },
} | {
    f"recipes/{path.name}": {"group_size: ": "4", "  mini_batch_size: ": "8"}
    for path in sorted((ROOT / "recipes").glob("*.yaml"))
    if path.stem != "base_model"
}
TINY["recipes/ppo_roa.yaml"] |= {"train_steps: ": "2"}
for name in ("dpo", "online_dpo"):
    TINY[f"recipes/{name}.yaml"] |= {"pairs_per_group: ": "2"}


def shrink(project: Path) -> None:
    """Rewrite the numbers that decide how long a run takes."""
    for name, numbers in TINY.items():
        path = project / name
        lines = path.read_text().splitlines()
        for key, value in numbers.items():
            places = [i for i, line in enumerate(lines) if line.startswith(key)]
            assert places, f"{name} has no line {key!r}"
            for i in places:
                lines[i] = key + value
        path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("prefect")
    port = free_port()
    address = f"http://127.0.0.1:{port}/api"
    environment = {**os.environ, "PREFECT_HOME": str(home), "PREFECT_API_URL": address, "DO_NOT_TRACK": "true"}
    with (home / "server.log").open("w") as log:
        command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=ROOT)
    wait_until_healthy(address, process)
    yield address
    process.terminate()
    process.wait(20)


@pytest.fixture(scope="session")
def environment(server: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = tmp_path_factory.mktemp("home")
    given = {
        "PREFECT_API_URL": server,
        "PREFECT_HOME": str(place),
        "PREFECT_LOCAL_STORAGE_PATH": str(place / "storage"),
        "DO_NOT_TRACK": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DVC_NO_ANALYTICS": "1",
        "COLUMNS": "200",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "GIT_AUTHOR_NAME": "t",
        "GIT_AUTHOR_EMAIL": "t@example.org",
        "GIT_COMMITTER_NAME": "t",
        "GIT_COMMITTER_EMAIL": "t@example.org",
    }
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "MLFLOW_", "DVC_", "ANAMNESIS_"))}
    return {**inherited, **given}


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DVC's cache of all projects, also those of other processes of tests: what one has made, the others take from there."""
    place = tmp_path_factory.getbasetemp()
    return (place.parent if "PYTEST_XDIST_WORKER" in os.environ else place) / "dvc_cache"


@pytest.fixture(scope="session")
def copy_project(
    tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str], cache: Path
) -> Callable[..., Path]:
    """A fresh tiny git checkout with the given name; one that has a cache of its own runs every stage itself."""

    def copy(name: str, *, own_cache: bool = False) -> Path:
        project = tmp_path_factory.mktemp(name) / "project"
        tracked = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split("\0")
        for file in filter(None, tracked):
            if (
                not file.startswith(("tests/", "docs/", "metrics/", "plots/"))
                and file != "dvc.lock"
                and (ROOT / file).exists()
            ):
                (project / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, project / file)
        shrink(project)
        if not own_cache:
            (project / ".dvc/config.local").write_text(f"[cache]\n    dir = {cache}\n")
        for command in (["git", "init", "-q"], ["git", "add", "-A"], ["git", "commit", "-qm", "start"]):
            subprocess.run(command, cwd=project, env=environment, check=True)
        return project

    return copy


def asked(environment: dict[str, str], path: str, body: dict[str, Any] | None = None) -> Any:
    """What the Prefect server answers; asked again while its database is busy."""
    request = urllib.request.Request(
        environment["PREFECT_API_URL"] + path,
        None if body is None else json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    for pause_s in (1, 2, 4, 8, 0):
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)
        except HTTPError as error:
            if error.code != 503 or not pause_s:
                raise
            time.sleep(pause_s)
