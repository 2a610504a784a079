"""The MLflow store of a project: where it is, how it is made, and patience while another process writes to it.

With `tracking.traces` and `tracking.runs`, which build on this, the only door to MLflow.
"""

import json
import logging
import os
import re
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import ParamSpec, TypeVar
from urllib.parse import unquote, urlsplit

# MLflow reads these when it is imported: no usage statistics leave this machine.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "true")
# Its own patience with a server, by default 120 s a request and seven tries, would hold up what it is only to record.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")

import mlflow
import requests
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from tracking.errors import AwayError, TrackingError, without_password
from tracking.ledger import ledgers, restore

log = logging.getLogger(__name__)
for _told in ("mlflow.store.db.utils", "alembic"):  # how its tables are made is nobody's business here
    logging.getLogger(_told).setLevel(logging.WARNING)

P = ParamSpec("P")
T = TypeVar("T")

EXPERIMENT = "anamnesis"
DESCRIPTION = """Language-model doctors trained by reinforcement in simulated consultations.

One run per training, one point per rollout step. `reward/` what the reward measured, `rollout/` the consultations, `learn/` the
updates, `validation/` held-out cases, `time/` where the time went. Traces: sample consultations, one span per doctor turn.
Models: every saved checkpoint. The registry's `@challenger` is the latest doctor, `@champion` the one in use.

[The runs with what tells them apart]({page})."""
# How the table of runs begins. MLflow keeps such a choice in the browser that made it, but for one that is shared: that is a tag, and part of an address.
VIEW = "trainings"
SHOWN = "tags.stage = 'train_doctor'"  # evaluations have a page of their own
COLUMNS = [
    *(f"params.`{name}`" for name in ("algorithm.name", "reward.preset", "train_doctor.steps", "seed")),
    *(f"metrics.`{name}`" for name in ("reward/mean", "validation/accuracy", "rollout/turns")),
    *(f"metrics.`{name}`" for name in ("test/accuracy", "test/turns", "test/red_flags_missed")),
    *("attributes.`Models`", "attributes.`Dataset`"),
]
TRANSFER_S = 600  # of silence after a file of a model was sent
REACH_S = 5.0  # within which a tracking server has to answer at the start
REFUSED = re.compile(r"failed with error code (401|403)\b")
JOURNALS = ("-wal", "-shm", "-journal")  # ends of the names of what SQLite keeps beside a database
PAUSES_S = (0.1, 0.3, 1.0, 3.0)  # between tries while the store is locked; each try waits up to 20 s by itself


def patiently(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Make a call on the store, a few times while another process keeps the database locked.

    Raises:
        TrackingError: it stayed locked, or it is a server that refuses this user.
        AwayError: it is a server, and that does not answer. Any other error passes through.
    """
    pauses = list(PAUSES_S)
    while True:
        try:
            return call(*args, **kwargs)
        except (MlflowException, requests.RequestException, sqlite3.OperationalError) as error:
            if _is_away(error):
                raise AwayError(_unanswered(mlflow.get_tracking_uri())) from error
            if refused := REFUSED.search(str(error)):
                raise TrackingError(_refusal(mlflow.get_tracking_uri(), refused[1])) from error
            if "is locked" not in str(error):
                raise
            if not pauses:
                raise TrackingError(
                    f"the MLflow store {without_password(mlflow.get_tracking_uri())} stayed locked through {len(PAUSES_S) + 1} tries; "
                    "stop the other writer (a second training, a database browser), and keep mlruns/ off network disks"
                ) from error
        log.warning("the MLflow store is locked, trying again in %.1f s", pauses[0])
        time.sleep(pauses.pop(0))


@contextmanager
def transferring() -> Iterator[None]:
    """Inside, a server may take minutes to answer: it puts a model of many gigabytes into its place first."""
    before = os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"]
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = str(max(int(before), TRANSFER_S))
    try:
        yield
    finally:
        os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = before


def _is_away(error: BaseException | None) -> bool:
    """Whether a server could not be reached, was too slow, or is one that another server before it cannot reach."""
    told = str(error)
    if "failed with error code 5" in told or "too many 50" in told:
        return True
    while error is not None and not isinstance(error, requests.ConnectionError | requests.Timeout):
        error = error.__cause__ or error.__context__
    return error is not None


def _unanswered(uri: str) -> str:
    return f"the MLflow server {without_password(uri)} (MLFLOW_TRACKING_URI) does not answer; start it, or name another"


def _refusal(uri: str, status: str) -> str:
    mend = {
        "401": "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, to what it knows",
        "403": "ask for permission, or for this address among its --allowed-hosts",
    }
    return f"the MLflow server {without_password(uri)} (MLFLOW_TRACKING_URI) refuses this with HTTP {status}; {mend[status]}"


def _without_login(uri: str) -> str:
    """A server's address whose user and password went into MLflow's variables: it prints the address after each run."""
    parts = urlsplit(uri)
    if not parts.password or parts.scheme not in ("http", "https"):
        return uri
    os.environ["MLFLOW_TRACKING_USERNAME"] = unquote(parts.username or "")
    os.environ["MLFLOW_TRACKING_PASSWORD"] = unquote(parts.password)
    return without_password(uri)


def _reach(uri: str) -> None:
    """Any answer will do: not every tracking server has this page.

    Raises:
        AwayError: there was none.
    """
    try:
        with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=REACH_S):
            pass
    except urllib.error.HTTPError:
        pass
    except (OSError, HTTPException) as error:
        raise AwayError(_unanswered(uri)) from error


def home(root: Path) -> Path:
    """The project that owns the store: $ANAMNESIS_HOME, else $DVC_ROOT (the parent's in `dvc exp run --temp`), else
    `root`.
    """
    return Path(os.environ.get("ANAMNESIS_HOME") or os.environ.get("DVC_ROOT") or root).resolve()


def setup(root: Path) -> str:
    """Point MLflow at the project's store and make what is missing there. May be called any number of times.

    $MLFLOW_TRACKING_URI wins if set; a relative SQLite path in it is meant from the project's home. `root` is the
    working tree, maybe a temporary copy of the project. Returns the id of the experiment.
    """
    given = os.environ.get("MLFLOW_TRACKING_URI")
    uri = _without_login(given or "sqlite:///mlruns/mlflow.db")
    local = uri.startswith("sqlite:///")
    database = home(root) / uri.removeprefix("sqlite:///")
    mlflow.set_tracking_uri(f"sqlite:///{database}" if local else uri)
    if given is None:
        # MLflow exports it, and then it would win over the next call's root
        os.environ.pop("MLFLOW_TRACKING_URI", None)
    if uri.startswith(("http://", "https://")):
        _reach(uri)
        return patiently(_experiment, None)  # a tracking server knows its own place for artifacts
    if not local:
        return _elsewhere(uri)
    database.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(database.with_suffix(".lock"), timeout=60)) as turn:
        patiently(turn.execute, "BEGIN EXCLUSIVE")  # two processes that make MLflow's tables at once break both
        try:
            own = database == home(root) / "mlruns" / "mlflow.db"
            _make(database, ledgers(home(root)) if own else [])
            _write_ahead(database)
            return patiently(_experiment, (home(root) / "mlruns" / "artifacts").as_uri())
        except (MlflowException, SQLAlchemyError, sqlite3.DatabaseError) as error:
            raise TrackingError(
                f"{database} cannot be used as MLflow's store ({str(error).splitlines()[0]}); "
                "move it away (and its -wal, if there is one) and a new one is made, or bring back a copy of it"
            ) from error


def _elsewhere(uri: str) -> str:
    """The experiment's id in a store that is neither a server nor a file of ours.

    Raises:
        TrackingError: MLflow can use none such.
    """
    try:
        return patiently(_experiment, None)
    except (MlflowException, SQLAlchemyError, ImportError) as error:
        raise TrackingError(
            f"MLFLOW_TRACKING_URI {without_password(uri)} cannot be used as MLflow's store "
            f"({without_password(str(error).strip().splitlines()[0])}); name an address such as http://127.0.0.1:5000, or unset it"
        ) from error


def _make(database: Path, kept: Sequence[Path]) -> None:
    """Make MLflow's tables beside a database that is not there, and in them what is kept of a lost registry, then move it
    to its place: MLflow makes them in many steps, and could not go on with a part of them.
    """
    if database.exists() and database.stat().st_size:
        return
    for left in database.parent.glob(f"{database.stem}.*partial*"):  # with the journals of a killed run
        left.unlink()
    for end in JOURNALS:  # of the database that was lost: SQLite would play them into the new one
        database.with_name(f"{database.name}{end}").unlink(missing_ok=True)
    # MLflow keeps a database that it has opened by its name
    unfinished = database.with_suffix(f".{time.time_ns()}.partial")
    client = mlflow.MlflowClient(f"sqlite:///{unfinished}", f"sqlite:///{unfinished}")
    client.get_experiment_by_name(EXPERIMENT)
    made = [restore(path, client) for path in kept]
    unfinished.replace(database)
    if kept or any(path.is_dir() for path in (database.parent / "artifacts").glob("*")):
        again = f" Made again: {'; '.join(made)}." if made else ""
        log.warning(
            "%s was not there, but what it told of is: a new one is made, without the runs of before.%s",
            database,
            again,
        )


def _write_ahead(database: Path) -> None:
    """Let readers (the UI) and the writer work at the same time; points are also written four times faster."""
    with closing(sqlite3.connect(database, timeout=20)) as connection:
        (mode,) = patiently(connection.execute, "PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        log.warning(
            "%s cannot use a write-ahead log (journal mode %s): the MLflow UI and a training may block each other",
            database,
            mode,
        )


def runs_place(experiment: str) -> str:
    """Where MLflow's pages show the runs of an experiment, behind the server's address and `#/`."""
    return f"experiments/{experiment}/runs?viewStateShareKey={VIEW}"


def _experiment(artifacts: str | None) -> str:
    client = mlflow.MlflowClient()
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is None:
        try:
            client.create_experiment(EXPERIMENT, artifact_location=artifacts)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another process was faster
                raise
        found = client.get_experiment_by_name(EXPERIMENT)
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    told = {
        "mlflow.note.content": DESCRIPTION.format(page=f"#/{runs_place(found.experiment_id)}"),
        f"mlflow.sharedViewState.{VIEW}": json.dumps(
            {"selectedColumns": COLUMNS, "columnOrder": COLUMNS, "searchFilter": SHOWN}
        ),
    }
    for name in told.keys() - found.tags.keys():  # people may have chosen others
        with suppress(MlflowException):  # somebody else's experiment, which this user may only read
            client.set_experiment_tag(found.experiment_id, name, told[name])
    return str(found.experiment_id)
