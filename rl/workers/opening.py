"""Where a session is opened: in this process, or on the machines of a cluster."""

from importlib.util import find_spec

from rl.config import MachinesParams
from rl.environment import Seat
from rl.errors import TrainingError
from rl.workers.base import Session
from rl.workers.local import LocalSession
from rl.workers.roles import Opening, OpenModel, OpenSeat


def open_session(
    opening: Opening,
    machines: MachinesParams,
    seat: Seat,
    open_seat: OpenSeat,
    open_patient: OpenModel | None = None,
) -> Session:
    """A session, as `machines.backend` says.

    Args:
        opening: what it is opened with.
        machines: where.
        seat: makes environments, if they are played in this process.
        open_seat: makes the seat of another process; travels there.
        open_patient: loads the language model that plays patients, for workers of its own; None: it needs none.

    Raises:
        TrainingError: the backend is ray, and Ray is not installed; or as the sessions do.
    """
    if machines.backend == "local":
        return LocalSession(
            opening.model,
            opening.place,
            opening.rollout,
            opening.algorithm,
            opening.seed,
            opening.lora,
            opening.temperature,
            seat,
        )
    if find_spec("ray") is None:
        raise TrainingError(
            "machines.backend is ray, but Ray is not installed; install it with pip install -e '.[ray]' -c constraints.txt, or set backend to local"
        )
    from rl.workers.ray import open_ray_session  # where it is not installed, all else runs

    return open_ray_session(opening, open_seat, machines, open_patient)
