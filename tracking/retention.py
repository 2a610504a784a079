"""Which folders of past trainings may go: checkpoints, experience and validation, told apart by what still needs them.

MLflow's record of a training, its points and traces, and the registry's copies of models stay.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rl.checkpoint import steps_saved
from rl.errors import TrainingError
from rl.files import held

# prepares MLflow's environment, so before MLflow
from tracking.ledger import RUN_LOST
from tracking.runs import run_of_doctor
from tracking.store import patiently

# isort: split
import mlflow
from mlflow.entities.model_registry import RegisteredModel
from mlflow.exceptions import MlflowException

Needed = Mapping[tuple[str, ...], str]  # project and name of a training's folder, wherever the project lies -> by what
ANY: tuple[str, ...] = ()  # stands for every folder
GONE = ".deleted"  # end of the name of a folder that is being deleted


@dataclass(frozen=True, kw_only=True)
class PastTraining:
    """A folder below `checkpoints/<project>/`."""

    folder: Path
    size: int  # bytes
    changed: float  # seconds since 1970, of its newest file
    step: int  # of its last checkpoint; 0 without one
    accuracy: float | None  # the best on validation cases
    needed: str  # by what, in words; "" if by nothing


def past_trainings(root: Path, current: str | None) -> list[PastTraining]:
    """Every training's folder, newest first.

    Args:
        root: the project, whose MLflow store is set up.
        current: MLflow's id of the run that trained the doctor in use, if it is known; the store may have lost that.

    Raises:
        TrackingError: MLflow does not answer, so that nobody knows what a registered model came from.
    """
    needed = _needed(root, current)
    folders = (folder for folder in sorted(root.glob("checkpoints/*/[!.]*")) if folder.is_dir())
    found = [_looked_at(folder, needed) for folder in folders]
    return sorted(found, key=lambda one: -one.changed)


def superfluous(found: Sequence[PastTraining], last: int, best: int) -> list[PastTraining]:
    """Those that nothing needs and that are neither of the `last` newest nor of the `best` on validation cases.

    Args:
        found: newest first.
        last: how many of the newest stay.
        best: how many of those with the best validation accuracy stay; of equals the newer.
    """
    rated = sorted((one for one in found if one.accuracy is not None), key=lambda one: -(one.accuracy or 0.0))
    stay = {one.folder for one in [*found[:last], *rated[:best]]}
    return [one for one in found if not one.needed and one.folder not in stay]


def delete(training: PastTraining) -> None:
    """Delete a training's folder; what a kill leaves of it is never taken for a whole one, and goes with the next.

    Raises:
        TrainingError: a training began in it meanwhile.
    """
    folder = training.folder
    gone = folder.with_name(f".{folder.name}{GONE}")
    with held(folder):
        shutil.rmtree(gone, ignore_errors=True)
        folder.rename(gone)
    for gone in folder.parent.glob(f".*{GONE}"):
        shutil.rmtree(gone)


def _looked_at(folder: Path, needed: Needed) -> PastTraining:
    files = list(_files(folder))
    try:
        with held(folder):
            use = needed.get(folder.parts[-2:], needed.get(ANY, ""))
    except TrainingError:
        use = "a training that runs"
    return PastTraining(
        folder=folder,
        size=sum(file.st_size for file in files),
        changed=max((file.st_mtime for file in files), default=folder.stat().st_mtime),
        step=max(steps_saved(folder), default=0),
        accuracy=max(_accuracies(folder), default=None),
        needed=use,
    )


def _files(folder: Path) -> Iterator[os.stat_result]:
    """Of all that lies below a folder, in which a training may be deleting what it needs no more."""
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                yield Path(place, name).stat()


def _accuracies(folder: Path) -> Iterator[float]:
    for path in folder.glob("validation/*.json"):
        yield float(json.loads(path.read_text())["validation/accuracy"])


def _needed(root: Path, current: str | None) -> Needed:
    """Folders of the doctor in use and of every model that an alias names; ANY, where the store has lost the run of one."""
    client = mlflow.MlflowClient()
    by_run = {current: "models/doctor"} if current else {}
    lost = []
    for model in _registered_models(client):
        for alias, number in model.aliases.items():
            version = patiently(client.get_model_version, model.name, number)
            use = f"{alias} (version {number})"
            run_id = version.run_id or _written_again(root, version.tags)
            if run_id:
                by_run[run_id] = ", ".join(filter(None, [by_run.get(run_id), use]))
            elif RUN_LOST in version.tags:
                lost.append(use)
    places = {run_id: _folder_of(client, run_id) for run_id in by_run}
    lost += [by_run[run_id] for run_id, place in places.items() if place is None]
    found = {place.parts[-2:]: by_run[run_id] for run_id, place in places.items() if place is not None}
    return found | ({ANY: f"maybe {', '.join(lost)}, whose run MLflow has lost"} if lost else {})


def _registered_models(client: mlflow.MlflowClient) -> Iterator[RegisteredModel]:
    """All of them, page by page: a server may be other people's, too."""
    token: str | None = None
    while token != "":
        page = patiently(client.search_registered_models, page_token=token)
        yield from page
        token = page.token or ""


def _written_again(root: Path, tags: Mapping[str, str]) -> str | None:
    """The run of a doctor whose first one was lost with the database, if its training was recorded once more."""
    run_id = run_of_doctor(root, tags.get("sha256", "")) if RUN_LOST in tags else None
    return run_id if run_id != tags.get(RUN_LOST) else None


def _folder_of(client: mlflow.MlflowClient, run_id: str) -> Path | None:
    """Where a run kept its checkpoints; None if the store has lost the run."""
    try:
        place = patiently(client.get_run, run_id).data.tags.get("checkpoints")
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None
    return Path(place) if place else None
