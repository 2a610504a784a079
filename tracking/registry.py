"""Registered models in MLflow: versions, what is said of each, and the aliases by which one is in use.

One version per sha256. In a database `models:/<name>@<alias>` resolves to an immutable folder, nothing is copied. An MLflow
server takes no folder of ours: it is given the files, and they come back by their hash where the folder is not there.
"""

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from doctor.parameters import HOME
from rl.files import folder_hash

# prepares MLflow's environment, so before MLflow
from tracking import ledger
from tracking.errors import TrackingError, without_password
from tracking.store import EXPERIMENT, patiently, runs_place, transferring

# isort: split
import mlflow
from mlflow.exceptions import MlflowException

log = logging.getLogger(__name__)
COPIES = HOME / ledger.COPIES  # of a version the folder named by its hash
PAGES = "ANAMNESIS_MLFLOW_PAGES"  # where people see MLflow's pages, if programs reach it at another address
GONE = ".deleted"  # end of the name of a folder that is being deleted
PRUNED = "pruned"  # tag of a version whose copy was deleted here: when


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
        directory: the immutable copy, named by its hash.
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
        if PRUNED in first.tags:
            patiently(client.delete_model_version_tag, model_name, version, PRUNED)
    else:
        source, model_id = _uploaded(directory, run_id) if _is_served() else (directory.resolve().as_uri(), None)
        create = client.create_model_version
        made = patiently(create, model_name, source, run_id, about, description=description or None, model_id=model_id)
        version = str(made.version)
    patiently(client.set_registered_model_alias, model_name, alias, version)
    _remember(model_name)
    return version, not found


def _remember(model_name: str) -> None:
    """Keep what the project's own database says, beside the copies."""
    if mlflow.get_registry_uri() != f"sqlite:///{COPIES.parents[1] / 'mlruns' / 'mlflow.db'}":
        return
    client = mlflow.MlflowClient()
    versions = patiently(client.search_model_versions, f"name = '{model_name}'")
    ledger.write(COPIES / f"{model_name}.json", patiently(client.get_registered_model, model_name), versions)


def _is_served() -> bool:
    """Whether the registry is behind a server."""
    return str(mlflow.get_registry_uri()).startswith(("http://", "https://"))


def _uploaded(directory: Path, run_id: str | None) -> tuple[str, str]:
    """Give the server the files, as a logged model, unless it has them all; returns where they are and the model's id."""
    client = mlflow.MlflowClient()
    experiment = patiently(client.get_experiment_by_name, EXPERIMENT).experiment_id
    same = f"tags.sha256 = '{directory.name}' and tags.registered = 'copy'"
    for one in patiently(client.search_logged_models, [experiment], same):
        if one.status == "READY":
            return one.artifact_location, one.model_id
        patiently(client.delete_logged_model, one.model_id)  # a kill left it half
    with transferring():
        model = patiently(
            client.create_logged_model,
            experiment,
            f"doctor-{directory.name[:12]}",
            run_id,
            {"sha256": directory.name, "registered": "copy"},
            model_type="doctor",
        )
        patiently(client.log_model_artifacts, model.model_id, str(directory))
        patiently(client.finalize_logged_model, model.model_id, "READY")
    return model.artifact_location, model.model_id


def _fetch(model_name: str, number: str, sha256: str) -> None:
    """Bring a version's files from the server to their folder.

    Raises:
        TrackingError: they are not what was registered.
    """
    with making(COPIES / sha256) as partial:
        if partial is None:
            return
        with transferring():
            patiently(mlflow.artifacts.download_artifacts, f"models:/{model_name}/{number}", dst_path=str(partial))
        if folder_hash(partial) != sha256:
            raise TrackingError(
                f"{model_name} version {number} came from {without_password(mlflow.get_registry_uri())} with other bytes than sha256 {sha256}; register it again"
            )


@contextmanager
def making(copy: Path) -> Iterator[Path | None]:
    """Make a copy in an empty folder beside its place, where it is put at the end, its files read-only.

    One process makes it; another that wants the same copy waits, and finds it made. A damaged copy makes way, and so does
    what a killed process left; where making it fails nothing is left.

    Args:
        copy: its place, named by its sha256.

    Yields:
        The empty folder, or None where the copy is there.
    """
    copy.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(copy.with_name(f".{copy.name}.lock")):
        if _holds(copy, copy.name, folder_hash):
            yield None
            return
        if copy.is_dir():
            log.warning("%s is not what was registered; it is made again", copy)
            discard(copy)
        partial = copy.with_name(f".{copy.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            yield partial
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        for path in partial.rglob("*"):
            if path.is_file():
                path.chmod(0o444)
        os.replace(partial, copy)


def version_at(model_name: str, alias: str, digest: Callable[[Path], str] | None = None) -> Version | None:
    """The version behind an alias, None if there is no such model or alias; see `intact`."""
    return _version(model_name, mlflow.MlflowClient().get_model_version_by_alias, alias, digest)


def numbered(model_name: str, number: str, digest: Callable[[Path], str] | None = None) -> Version | None:
    """A version by its number, None if there is none; see `intact`."""
    return _version(model_name, mlflow.MlflowClient().get_model_version, number, digest)


def told_of(model_name: str, called: str) -> Version | None:
    """A version by its number or alias, whatever became of its files; None if there is none."""
    client = mlflow.MlflowClient()
    find = client.get_model_version if called.isdecimal() else client.get_model_version_by_alias
    found = _found(model_name, find, called)
    return None if found is None else _as_told(found)


def _as_told(found: Any) -> Version:
    """A version as MLflow's record has it."""
    tags = dict(found.tags)
    return Version(
        number=str(found.version),
        sha256=tags.get("sha256", ""),
        path=Path(tags.get("path", "")),
        run_id=found.run_id or None,
        tags=tags,
    )


def _found(model_name: str, find: Callable[[str, str], Any], which: str) -> Any:
    """MLflow's record of a version, None if there is none."""
    try:
        return patiently(find, model_name, which)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise


def _version(
    model_name: str, find: Callable[[str, str], Any], which: str, digest: Callable[[Path], str] | None
) -> Version | None:
    if (found := _found(model_name, find, which)) is None:
        return None
    version = _as_told(found)
    sha256 = version.sha256
    if sha256 and _is_served() and not found.source.startswith("file:") and not _holds(version.path, sha256, digest):
        path = COPIES / sha256
        version = replace(version, path=path)
        if not _holds(path, sha256, digest):
            _fetch(model_name, version.number, sha256)
    intact(f"{model_name} version {version.number}", version, digest)
    return version


def _holds(folder: Path, sha256: str, digest: Callable[[Path], str] | None) -> bool:
    return folder.is_dir() and (digest is None or digest(folder) == sha256)


def intact(name: str, version: Version, digest: Callable[[Path], str] | None) -> None:
    """Refuse a version whose copy is not what was registered.

    Args:
        name: of the version, for the message.
        version: its record.
        digest: hashes the folder (`rl.files.folder_hash`); without it only the folder's name is checked.

    Raises:
        TrackingError: the folder is gone or is not what was registered.
    """
    path, expected = version.path, version.sha256
    commit = version.tags.get("retrain.commit") or version.tags.get("git.sha") or "its commit"
    again = f"make it again: git checkout {commit} && dvc checkout && python -m flows.retrain"
    if version.tags.get(PRUNED) and not path.is_dir():
        raise TrackingError(f"{name} was pruned {version.tags[PRUNED]}; {again}")
    if path.name != expected or not _holds(path, expected, digest):
        raise TrackingError(
            f"{name} should be {path} with sha256 {expected}, which is missing or changed; move the alias, or {again}"
        )


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A version whose files lie in `COPIES`."""

    number: str
    folder: Path
    promoted: bool
    needed: str  # by what, in words; "" if by nothing


def copies(model_name: str) -> list[Copy]:
    """Versions with a copy here, the newest first, none if there is no such model. Needed is what an alias names, what
    was not decided about yet, and what the champion replaced.
    """
    client = mlflow.MlflowClient()
    try:
        aliases = patiently(client.get_registered_model, model_name).aliases
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return []
    found = {str(one.version): one.tags for one in patiently(client.search_model_versions, f"name = '{model_name}'")}
    champion = found.get(str(aliases.get("champion")), {})
    made = []
    for number, tags in sorted(found.items(), key=lambda one: -int(one[0])):
        needed = [alias for alias, of in aliases.items() if str(of) == number]
        needed += ["not decided about"] * ("gate" not in tags)
        needed += ["the champion before"] * (champion.get("replaced") == number)
        folder = COPIES / tags.get("sha256", "-")
        if folder.is_dir():
            promoted = tags.get("gate") == "promoted"
            made.append(Copy(number=number, folder=folder, promoted=promoted, needed=", ".join(needed)))
    return made


def superfluous(found: Sequence[Copy], promoted: int) -> list[Copy]:
    """Those that nothing needs, without the newest so many that were promoted."""
    stay = [one.number for one in found if one.promoted][:promoted]
    return [one for one in found if not one.needed and one.number not in stay]


def prune(model_name: str, copy: Copy) -> None:
    """Delete a copy; its version says so first."""
    describe(model_name, copy.number, {PRUNED: f"on {time.strftime('%Y-%m-%d')}"})
    discard(copy.folder)


def discard(copy: Path) -> None:
    """Delete the folder of a copy. What a kill leaves goes with the next."""
    gone = copy.with_name(f".{copy.name}{GONE}")
    shutil.rmtree(gone, ignore_errors=True)
    os.replace(copy, gone)
    for gone in copy.parent.glob(f".*{GONE}"):
        shutil.rmtree(gone)


def tags_of(model_name: str, number: str) -> dict[str, str]:
    """What is said of a version now."""
    return dict(patiently(mlflow.MlflowClient().get_model_version, model_name, number).tags)


def describe(model_name: str, number: str, tags: Mapping[str, str]) -> None:
    """Set tags of a version."""
    client = mlflow.MlflowClient()
    for key, value in tags.items():
        patiently(client.set_model_version_tag, model_name, number, key, value)
    _remember(model_name)


def version_page(model_name: str, number: str) -> str:
    """Address of a version's page; empty where no server shows one."""
    return _page(mlflow.get_registry_uri(), "models", model_name, "versions", number)


def run_page(run_id: str) -> str:
    """Address of a run's page; empty where no server shows one."""
    if not _page(mlflow.get_tracking_uri()):
        return ""
    return _page(mlflow.get_tracking_uri(), "experiments", _experiment(), "runs", run_id)


def trainings_page() -> str:
    """Address of the table of runs; empty where no server shows one."""
    if not _page(mlflow.get_tracking_uri()):
        return ""
    return _page(mlflow.get_tracking_uri(), runs_place(_experiment()))


def _experiment() -> str:
    return str(patiently(mlflow.MlflowClient().get_experiment_by_name, EXPERIMENT).experiment_id)


def _page(uri: str, *place: str) -> str:
    shown = os.environ.get(PAGES) or uri
    if not shown.startswith(("http://", "https://")):
        return ""
    return f"{without_password(shown).rstrip('/')}/#/{'/'.join(place)}"


def point(model_name: str, alias: str, number: str) -> None:
    """Let an alias name a version."""
    patiently(mlflow.MlflowClient().set_registered_model_alias, model_name, alias, number)
    _remember(model_name)
