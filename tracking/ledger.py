"""What the registry says, once more beside the copies of its models: a database that was lost costs no champion.

Only for a project's own database; another is for whoever runs it to keep.
"""

import json
import logging
from pathlib import Path
from typing import Any

from rl.files import write_json

# prepares MLflow's environment, so before MLflow
from tracking.store import patiently

# isort: split
import mlflow
from mlflow.exceptions import MlflowException

log = logging.getLogger(__name__)
UNFINISHED = "restoring"  # tag of a registered model that is being made again
RUN_LOST = "run.lost"  # tag of a version that was made again: the run that it came from


def remember(model_name: str, path: Path) -> None:
    """Write versions and aliases of a registered model to a file."""
    client = mlflow.MlflowClient()
    model = patiently(client.get_registered_model, model_name)
    versions = [
        {
            "version": int(one.version),
            "source": one.source,
            "run_id": one.run_id,
            "tags": dict(one.tags),
            "description": one.description,
        }
        for one in patiently(client.search_model_versions, f"name = '{model_name}'")
    ]
    aliases = {alias: int(number) for alias, number in model.aliases.items()}
    write_json(path, {"versions": sorted(versions, key=lambda one: int(one["version"])), "aliases": aliases})


def restore(model_name: str, path: Path) -> None:
    """Make a registered model again that the database has not, or has in part, from what was remembered of it."""
    if not path.exists() or _is_whole(model_name):
        return
    client, told = mlflow.MlflowClient(), json.loads(path.read_text(encoding="utf-8"))
    patiently(client.create_registered_model, model_name, {UNFINISHED: str(path)})
    versions = {one["version"]: one for one in told["versions"]}
    for number in range(1, max(versions, default=0) + 1):
        patiently(_make, client, model_name, versions.get(number))
    for number in set(range(1, max(versions, default=0))) - versions.keys():
        patiently(client.delete_model_version, model_name, str(number))
    for alias, number in told["aliases"].items():
        patiently(client.set_registered_model_alias, model_name, alias, str(number))
    patiently(client.delete_registered_model_tag, model_name, UNFINISHED)
    log.warning(
        "MLflow's database had no %s and was lost, or is new; %d versions and the aliases %s were made again from %s",
        *(model_name, len(versions), ", ".join(sorted(told["aliases"])) or "(none)", path),
    )


def _is_whole(model_name: str) -> bool:
    client = mlflow.MlflowClient()
    try:
        model = patiently(client.get_registered_model, model_name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return False
    if UNFINISHED in model.tags:
        patiently(client.delete_registered_model, model_name)
        return False
    return True


def _make(client: mlflow.MlflowClient, model_name: str, one: dict[str, Any] | None) -> None:
    """A version; one that had been deleted, for its number, where nothing is remembered."""
    if one is None:
        client.create_model_version(model_name, "file:///deleted")
        return
    lost = {RUN_LOST: one["run_id"]} if one["run_id"] else {}
    client.create_model_version(model_name, one["source"], None, one["tags"] | lost, description=one["description"])
