"""What the registry says, once more beside the copies of its models: a database that was lost costs no champion.

Only of a project's own database; another is for whoever runs it to keep.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl.files import write_json
from tracking.errors import TrackingError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel

COPIES = Path("models") / "registry"  # of a project: a folder for each version, named by its hash, and the ledgers
RUN_LOST = "run.lost"  # tag of a version that was made again: the run that it came from


def ledgers(project: Path) -> list[Path]:
    """Of a project's registered models, each named after its own."""
    return sorted((project / COPIES).glob("[!.]*.json"))


def write(path: Path, model: "RegisteredModel", versions: "Sequence[ModelVersion]") -> None:
    """Keep versions and aliases of a registered model."""
    told = [
        {
            "version": int(one.version),
            "source": one.source,
            "run_id": one.run_id,
            "tags": dict(one.tags),
            "description": one.description,
        }
        for one in sorted(versions, key=lambda one: int(one.version))
    ]
    write_json(path, {"versions": told, "aliases": {alias: int(number) for alias, number in model.aliases.items()}})


def restore(path: Path, client: "MlflowClient") -> str:
    """Make a registered model again in a new database; returns what was made, in words.

    Raises:
        TrackingError: the file is damaged.
    """
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        versions = {int(one["version"]): one for one in told["versions"]}
        aliases = {str(alias): str(number) for alias, number in told["aliases"].items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TrackingError(
            f"{path} is no record of a registry ({error!r}); bring back a copy of it, or delete it, and the registry begins anew"
        ) from error
    client.create_registered_model(path.stem)
    numbers = range(1, max(versions, default=0) + 1)
    for number in numbers:
        _make(client, path.stem, versions.get(number))
    for number in set(numbers) - versions.keys():
        client.delete_model_version(path.stem, str(number))
    for alias, of in aliases.items():
        client.set_registered_model_alias(path.stem, alias, of)
    return f"{len(versions)} versions of {path.stem}, aliases {', '.join(sorted(aliases)) or '(none)'}"


def _make(client: "MlflowClient", name: str, one: Mapping[str, Any] | None) -> None:
    """A version; where none is kept, one to be deleted again, for its number."""
    if one is None:
        client.create_model_version(name, "file:///deleted")
        return
    lost = {RUN_LOST: one["run_id"]} if one["run_id"] else {}
    client.create_model_version(name, one["source"], None, one["tags"] | lost, description=one["description"])
