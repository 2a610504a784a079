"""Registered models in MLflow: versions, what is said of each, and the aliases by which one is in use.

One version per sha256; `models:/<name>@<alias>` resolves to an immutable folder, nothing is copied.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# prepares MLflow's environment, so before MLflow
from tracking.errors import TrackingError
from tracking.store import patiently

# isort: split
import mlflow
from mlflow.exceptions import MlflowException


@dataclass(frozen=True, kw_only=True)
class Version:
    """A version of a registered model."""

    number: str
    sha256: str
    path: Path  # the immutable copy
    run_id: str | None  # the training it came from
    tags: Mapping[str, str]


def register(
    model_name: str,
    directory: Path,
    sha256: str,
    run_id: str | None,
    alias: str,
    tags: Mapping[str, str],
    description: str = "",
) -> tuple[str, bool]:
    """Give a model a version in the registry and point an alias at it; the same sha256 has one version for ever.

    Registering again only moves the alias: a version keeps the tags it has, and gets those it lacks.

    Args:
        model_name: made if missing.
        directory: the immutable copy, named by its hash; `models:/<name>@<alias>` resolves to this very folder, nothing
            is copied.
        sha256: identity of the model.
        run_id: the training it came from.
        alias: for example `challenger`.
        tags: for example `git.sha`, `dvc.md5`, `gate`.
        description: of a new version, in Markdown.

    Returns:
        The version and whether it is new.

    Raises:
        TrackingError: the folder is missing, empty or not named by the hash.
    """
    if directory.name != sha256 or not directory.is_dir() or not any(directory.iterdir()):
        raise TrackingError(
            f"{directory} cannot be registered: a version needs an immutable copy in a folder named {sha256}; copy the model there first"
        )
    client = mlflow.MlflowClient()
    try:
        patiently(client.create_registered_model, model_name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    about = {**tags, "sha256": sha256, "path": str(directory.resolve())}
    found = patiently(client.search_model_versions, f"name = '{model_name}' and tags.sha256 = '{sha256}'")
    if found:
        first = min(found, key=lambda version: int(version.version))
        version = str(first.version)
        for key in about.keys() - first.tags.keys() | {"path"}:
            patiently(client.set_model_version_tag, model_name, version, key, about[key])
    else:
        version = str(
            patiently(
                client.create_model_version,
                model_name,
                directory.resolve().as_uri(),
                run_id,
                about,
                description=description or None,
            ).version
        )
    patiently(client.set_registered_model_alias, model_name, alias, version)
    return version, not found


def version_at(model_name: str, alias: str, digest: Callable[[Path], str] | None = None) -> Version | None:
    """The version behind an alias, None if there is no such model or alias; see `intact`."""
    return _version(model_name, mlflow.MlflowClient().get_model_version_by_alias, alias, digest)


def numbered(model_name: str, number: str, digest: Callable[[Path], str] | None = None) -> Version | None:
    """A version by its number, None if there is none; see `intact`."""
    return _version(model_name, mlflow.MlflowClient().get_model_version, number, digest)


def _version(
    model_name: str, find: Callable[[str, str], Any], which: str, digest: Callable[[Path], str] | None
) -> Version | None:
    try:
        found = patiently(find, model_name, which)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise
    tags = dict(found.tags)
    version = Version(
        number=str(found.version),
        sha256=tags.get("sha256", ""),
        path=Path(tags.get("path", "")),
        run_id=found.run_id or None,
        tags=tags,
    )
    intact(f"{model_name} version {version.number}", version, digest)
    return version


def intact(name: str, version: Version, digest: Callable[[Path], str] | None) -> None:
    """Refuse a version whose copy is not what was registered.

    Args:
        name: of the version, for the message.
        version: its record.
        digest: hashes the folder (`rl.checkpoint.folder_hash`); without it only the folder's name is checked.

    Raises:
        TrackingError: the folder is gone or is not what was registered.
    """
    path, expected = version.path, version.sha256
    if not path.is_dir() or path.name != expected or (digest is not None and digest(path) != expected):
        raise TrackingError(
            f"{name} should be {path} with sha256 {expected}, which is missing or changed; restore it or move the alias"
        )


def tags_of(model_name: str, number: str) -> dict[str, str]:
    """What is said of a version now."""
    return dict(patiently(mlflow.MlflowClient().get_model_version, model_name, number).tags)


def describe(model_name: str, number: str, tags: Mapping[str, str]) -> None:
    """Set tags of a version."""
    client = mlflow.MlflowClient()
    for key, value in tags.items():
        patiently(client.set_model_version_tag, model_name, number, key, value)


def point(model_name: str, alias: str, number: str) -> None:
    """Let an alias name a version."""
    patiently(mlflow.MlflowClient().set_registered_model_alias, model_name, alias, number)
