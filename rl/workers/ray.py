"""Workers as Ray actors, one in a bundle of a placement group. The only room that knows Ray."""

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import ray
import transformers
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rl import machine
from rl.chat import ChatFormat
from rl.config import MachinesParams
from rl.errors import TrainingError, first_line
from rl.models import load_tokenizer
from rl.ranks import meeting_place
from rl.workers.group import Opener, WorkerGroup, WorkerLostError
from rl.workers.grouped import GroupSession
from rl.workers.placement import ResourcePool, pools_of, refuse_what_does_not_fit
from rl.workers.roles import Generate, ModelWorker, Opening, OpenModel, OpenSeat, open_player
from rl.workers.trainer import Meeting, open_trainer

log = logging.getLogger(__name__)
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # 15, Ray's own choice, lets busy neighbours starve those who are waited for
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
HOME = Path(__file__).resolve().parents[2]  # what workers import
REACHED_S = 5.0  # for a cluster's address to answer
PLACED_S = 20.0  # for places that fit to be free
LONGEST_REASON = 300  # characters
RETRIES = 3  # of a question to a model whose process died
BESIDE = "beside"  # the thread of a process that answers while the worker is busy
LOOK_S = 1.0  # for an answer of it
GRACE_S = 10.0  # after a worker failed, for the death of another to be seen, which may be why


def open_ray_session(
    opening: Opening, open_seat: OpenSeat, params: MachinesParams, open_patient: OpenModel | None = None
) -> GroupSession:
    """Connect to a cluster, or start one, and open a session on it.

    Raises:
        TrainingError: the cluster does not answer, or the workers do not fit.
    """
    _connect(params.ray.address)
    *pools, models = pools_of(params)
    open_patient = open_patient if models.workers else None
    nodes = ray.nodes()  # type: ignore[no-untyped-call]  # Ray's
    refuse_what_does_not_fit(
        [*pools, *([models] if open_patient else [])], [node["Resources"] for node in nodes if node["Alive"]]
    )
    with ExitStack() as taken:
        for_rollouts, for_trainers = (taken.enter_context(closing(_Places(pool))) for pool in pools)
        patient: Generate | None = None
        if open_patient is not None:
            places = taken.enter_context(closing(_Places(models)))
            patient = taken.enter_context(
                closing(_Models(places, partial(ModelWorker, open_patient, opening.place.device), params))
            ).asked
        opener = partial(open_player, opening, open_seat, patient)
        rollouts = taken.enter_context(closing(RayGroup(for_rollouts, opener, params)))

        def open_trainers(exact: bool) -> WorkerGroup:
            opener = partial(open_trainer, opening, exact, params.ray.sharding, params.ray.timeout_s)
            return RayGroup(for_trainers, opener, params)

        return GroupSession(rollouts, open_trainers, ChatFormat(load_tokenizer(opening.model)), taken, opening.acting)


def _connect(address: str | None) -> None:
    """Raises: TrainingError: nobody answers."""
    if ray.is_initialized():
        return
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    stops = signal.getsignal(signal.SIGTERM)  # Ray would exit at once, past whoever ends a flow in order
    try:
        if address is None:  # a new one, whatever runs here
            ray.init("local", include_dashboard=False, logging_level=logging.WARNING)
            return
        host, _, port = address.rpartition(":")
        if host and port.isdigit():
            socket.create_connection((host, int(port)), REACHED_S).close()
        ray.init(address, logging_level=logging.WARNING)
    except (OSError, RuntimeError, ValueError, RayError) as error:
        first = first_line(error)
        if address is None:
            raise TrainingError(f"no Ray cluster could be started here: {first}") from error
        raise TrainingError(
            f"no Ray cluster answers at machines.ray.address = {address} ({first}); start one with `ray start --head`, "
            "export RAY_AUTH_MODE=token if it asks for a token, or set the address to null for a cluster of the run's own"
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, stops)


class _Places:
    """A placement group for the workers of a role."""

    def __init__(self, pool: ResourcePool) -> None:
        """Wait until they are free.

        Raises:
            TrainingError: they are not.
        """
        self.pool = pool
        self.group: PlacementGroup = placement_group([pool.place] * pool.workers, strategy="PACK")
        try:
            ray.get(self.group.ready(), timeout=PLACED_S)
        except (GetTimeoutError, RayError) as error:
            self.close()
            raise TrainingError(
                f"{pool.workers} places for the role {pool.role} were not free within {PLACED_S:g} s: others use the cluster; wait, or start more machines"
            ) from error

    def options(self, worker: int) -> dict[str, Any]:
        """What makes one of the processes Ray's, in its place."""
        pool = self.pool
        path = os.pathsep.join(filter(None, (str(HOME), os.environ.get("PYTHONPATH"))))
        surroundings = {
            "ANAMNESIS_WORKER": f"{pool.role} {worker}",  # for who looks at processes
            "OMP_NUM_THREADS": str(pool.processors),
            "PYTHONPATH": path,
        }
        return {
            "num_cpus": pool.processors,
            "num_gpus": pool.gpus,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=worker),
            "runtime_env": {"env_vars": surroundings},
        }

    def close(self) -> None:
        """Give them back."""
        remove_placement_group(self.group)


class _Actor:
    """The process of a worker."""

    def __init__(self) -> None:
        self._worker: Any = None
        self._store: object = None  # of the meeting place, as long as this process lives

    def meet(self) -> Meeting:
        """A place on this machine where ranks find each other."""
        host = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]  # Ray's
        self._store, port = meeting_place(host)
        return host, port

    def open(self, opener: Opener, worker: int, size: int, met: Meeting | None, params: MachinesParams) -> None:
        """Make the worker."""
        machine.use(params)
        transformers.utils.logging.disable_progress_bar()
        self._worker = opener(worker, size, met)

    def run(self, method: str, *arguments: Any) -> Any:
        """What a method of the worker gives."""
        return getattr(self._worker, method)(*arguments)

    @ray.method(concurrency_group=BESIDE)
    def look(self, method: str) -> Any:
        """What a method of the worker gives, beside what it is busy with."""
        return getattr(self._worker, method)() if self._worker is not None else None

    def run_to_keep(self, method: str, *arguments: Any) -> tuple[None, Any]:
        """The same behind a None, which says that it is there."""
        return None, self.run(method, *arguments)


class _ModelActor:
    """The process of a model that is asked. Ray starts it anew if it dies, and asks again: it remembers nothing."""

    def __init__(self, opener: Callable[[], ModelWorker], params: MachinesParams) -> None:
        self._opener, self._params = opener, params

    @cached_property
    def _worker(self) -> ModelWorker:
        """Loaded by the first who asks, whichever process this is."""
        machine.use(self._params)
        transformers.utils.logging.disable_progress_bar()
        return self._opener()

    async def open(self) -> None:
        """Load the model."""
        assert self._worker is not None  # noqa: S101  it is loaded by being looked at

    async def generate(self, messages: Sequence[Mapping[str, str]]) -> str:
        """One reply's text."""
        return await self._worker.generate(messages)


class _Models:
    """Workers that answer whoever has what `asked` is."""

    def __init__(self, places: _Places, opener: Callable[[], ModelWorker], params: MachinesParams) -> None:
        """Start the processes, and wait for their models.

        Raises:
            TrainingError: one could not be opened, or was not ready in time.
        """
        name, limit = places.pool.role, params.ray.timeout_s
        restarts = {"max_restarts": -1, "max_task_retries": RETRIES}
        self._actors: list[Any] = [
            ray.remote(_ModelActor).options(**places.options(worker), **restarts).remote(opener, params)
            for worker in range(places.pool.workers)
        ]
        try:
            ray.get([actor.open.remote() for actor in self._actors], timeout=limit)
        except RayError as error:
            self.close()
            late = isinstance(error, GetTimeoutError)
            told = f"it was not within machines.ray.timeout_s = {limit:g} s" if late else _told(error)
            raise TrainingError(f"a {name} could not be opened: {told}") from error
        # before whoever asks is late itself
        self.asked: Generate = _Elsewhere(self._actors, name, limit / 2)

    def close(self) -> None:
        """End them; their places stay."""
        for actor in self._actors:
            ray.kill(actor)


class _Elsewhere:
    """A language model in other processes, which are asked in turn; travels."""

    def __init__(self, actors: Sequence[Any], name: str, limit_s: float) -> None:
        self._actors, self._name, self._limit_s, self._asked = actors, name, limit_s, 0

    async def __call__(self, messages: Sequence[Mapping[str, str]]) -> str:
        """One reply's text.

        Raises:
            TrainingError: a process died again and again, or is late, or the model refuses.
        """
        self._asked += 1
        number = self._asked % len(self._actors)
        try:
            async with asyncio.timeout(self._limit_s):
                said: str = await self._actors[number].generate.remote(messages)
        except TimeoutError as error:
            raise TrainingError(
                f"{self._name} {number} has not answered within half of machines.ray.timeout_s, {self._limit_s:g} s"
            ) from error
        except RayError as error:
            raise TrainingError(f"{self._name} {number}: {_told(error)}") from error
        return said


class _DiedError(WorkerLostError):
    """A process is gone, of which none waits for an answer any more."""


class RayGroup:
    """A `WorkerGroup` of Ray actors. None is ever restarted by Ray: whoever lost one knows what it has to be told."""

    def __init__(self, places: _Places, opener: Opener, params: MachinesParams) -> None:
        """Start the processes and open the workers, all at once; if one dies meanwhile, all once more.

        Args:
            places: where they run.
            opener: makes a worker; sent to each process.
            params: what each takes of its machine.

        Raises:
            WorkerLostError: one died again, or was not ready in time.
            TrainingError: one could not be opened.
        """
        self._places, self._opener, self._params = places, opener, params
        self._name, self.timeout_s = places.pool.role, params.ray.timeout_s
        try:
            self._open()
        except _DiedError as lost:
            log.warning("%s; all of its group are opened anew", lost)
            self._open()

    def _open(self) -> None:
        self._actors = [self._process(worker) for worker in range(self.size)]
        try:
            met = self._wait({0: self._actors[0].meet.remote()}, "meet")[0] if self.size > 1 else None
            self._wait({worker: self._opened(worker, met) for worker in range(self.size)}, "open")
        except TrainingError:
            self.close()
            raise

    @property
    def size(self) -> int:
        """How many there are."""
        return self._places.pool.workers

    def _process(self, worker: int) -> Any:
        process: Any = ray.remote(concurrency_groups={BESIDE: 1})(_Actor)  # type: ignore[call-overload]  # Ray's stubs
        return process.options(**self._places.options(worker), max_restarts=0).remote()

    def _opened(self, worker: int, met: Meeting | None) -> ray.ObjectRef[Any]:
        log.debug("asks %s %d: open", self._name, worker)
        ref: ray.ObjectRef[Any] = self._actors[worker].open.remote(self._opener, worker, self.size, met, self._params)
        return ref

    def start(self, worker: int, method: str, *arguments: Any) -> "_Awaited":
        """Ask one of them, and go on."""
        log.debug("asks %s %d: %s", self._name, worker, method)
        return _Awaited(self, worker, method, self._actors[worker].run.remote(method, *arguments))

    def look(self, method: str) -> list[Any]:
        """What each says at once; None of who is dead or late."""
        asked = [actor.look.remote(method) for actor in self._actors]
        ready, _ = ray.wait(asked, num_returns=len(asked), timeout=LOOK_S)
        found = []
        for ref in asked:
            try:
                found.append(ray.get(ref) if ref in ready else None)
            except RayError:
                found.append(None)
        return found

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """Ask all of them the same; what each gives."""
        log.debug("asks %ss: %s", self._name, method)
        sent = _sent(arguments)
        found = self._wait({w: actor.run.remote(method, *sent) for w, actor in enumerate(self._actors)}, method)
        return [found[worker] for worker in range(self.size)]

    def keep(self, method: str, *arguments: Any) -> Any:
        """Ask all of them the same, and have what the first gives stay where it is."""
        log.debug("asks %ss: %s", self._name, method)
        sent = _sent(arguments)
        pairs = [actor.run_to_keep.options(num_returns=2).remote(method, *sent) for actor in self._actors]
        self._wait({worker: there for worker, (there, _) in enumerate(pairs)}, method)
        return pairs[0][1]

    def revive(self, worker: int) -> None:
        """A fresh worker in the place of one that is lost; for those that need not meet."""
        ray.kill(self._actors[worker])
        self._actors[worker] = self._process(worker)
        self._wait({worker: self._opened(worker, None)}, "open")

    def close(self) -> None:
        """End them; their places stay."""
        for actor in self._actors:
            ray.kill(actor)

    def _wait(self, asked: Mapping[int, ray.ObjectRef[Any]], method: str) -> dict[int, Any]:
        """What each gives, or why the first one that is lost is; only then why the first one failed."""
        waiting = {ref: worker for worker, ref in asked.items()}
        end, found = time.monotonic() + self.timeout_s, dict[int, Any]()
        failed: TrainingError | None = None
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1, timeout=max(0.0, end - time.monotonic()))
            if not ready:
                break
            worker = waiting.pop(ready[0])
            try:
                found[worker] = self.result(ready[0], worker, method, 0.0)
            except WorkerLostError:
                raise
            except TrainingError as error:
                failed, end = failed or error, min(end, time.monotonic() + GRACE_S)
        if failed is not None:
            raise failed
        if waiting:
            raise self._late(min(waiting.values()), method)
        return found

    def result(self, ref: ray.ObjectRef[Any], worker: int, method: str, timeout_s: float) -> Any:
        """What a worker gives.

        Raises:
            WorkerLostError: it died or is late.
            TrainingError: it failed; its own, where it is one.
        """
        try:
            return ray.get(ref, timeout=timeout_s)
        except GetTimeoutError as error:
            raise self._late(worker, method) from error
        except RayTaskError as error:
            cause = error.cause
            if isinstance(cause, TrainingError):
                raise cause from error
            told = f"{type(cause).__name__}: {first_line(cause)}"
            raise TrainingError(f"{self._name} {worker} failed in {method}: {told}") from error
        except RayError as error:
            raise _DiedError(f"{self._name} {worker} died in {method}: {_reason(error)}", worker) from error

    def _late(self, worker: int, method: str) -> WorkerLostError:
        return WorkerLostError(
            f"{self._name} {worker} has not come back from {method} within machines.ray.timeout_s = {self.timeout_s:g} s",
            worker,
        )


class _Awaited:
    """What one worker has been asked for."""

    def __init__(self, group: RayGroup, worker: int, method: str, ref: ray.ObjectRef[Any]) -> None:
        self._group, self._worker, self._method, self._ref = group, worker, method, ref
        self._end = time.monotonic() + group.timeout_s

    def result(self) -> Any:
        """Wait for it."""
        return self._group.result(self._ref, self._worker, self._method, max(0.0, self._end - time.monotonic()))

    def waited(self, seconds: float) -> bool:
        """Whether it is there, or nobody is any more, or it is late, within so many seconds."""
        return bool(ray.wait([self._ref], timeout=seconds)[0]) or time.monotonic() > self._end


def _sent(arguments: Sequence[Any]) -> list[Any]:
    """Each argument once in the object store, for however many read it."""
    return [argument if isinstance(argument, ray.ObjectRef) else ray.put(argument) for argument in arguments]


def _told(error: RayError) -> str:
    """What a process says of its own failure, or why it died."""
    return first_line(error.cause) if isinstance(error, RayTaskError) else _reason(error)


def _reason(error: RayError) -> str:
    """Why a process died, in one line; Ray tells it in many, with guesses."""
    told = " ".join(str(error).split()) or type(error).__name__
    _, _, detail = told.rpartition("Worker exit detail: ")
    return detail.partition(" Some common causes")[0][:LONGEST_REASON]
