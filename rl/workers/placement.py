"""Which role gets what of the machines, and what does not fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rl.config import MachinesParams
from rl.errors import TrainingError


@dataclass(frozen=True)
class ResourcePool:
    """Equal places for the workers of one role, each on one machine."""

    role: str  # as people call one of its workers
    workers: int
    processors: int  # of each
    gpus: int  # of each

    @property
    def place(self) -> dict[str, float]:
        """What one worker takes, by Ray's names."""
        return {"CPU": float(self.processors), "GPU": float(self.gpus)}


def pools_of(params: MachinesParams) -> tuple[ResourcePool, ResourcePool, ResourcePool]:
    """Those of the rollout workers, of the trainers, and of the workers that play patients."""
    assert isinstance(params.threads, int)  # noqa: S101  the parameters were checked
    each = params.threads, params.ray.gpus_per_worker
    return (
        ResourcePool("rollout worker", params.ray.rollout_workers, *each),
        ResourcePool("trainer", params.ray.trainers, *each),
        ResourcePool("model worker", params.ray.model_workers, *each),
    )


def refuse_what_does_not_fit(pools: Sequence[ResourcePool], machines: Sequence[Mapping[str, float]]) -> None:
    """Compare what roles ask for with what machines have, whatever else runs there.

    Args:
        pools: of the roles.
        machines: what each has, by Ray's names.

    Raises:
        TrainingError: a worker fits on no machine, or all together do not.
    """
    free = [dict(machine) for machine in machines]
    placed: list[str] = []
    for pool in pools:
        if pool.workers and not any(_fits(pool, machine) for machine in machines):
            raise TrainingError(
                f"a {pool.role} takes {_counted(pool.place)}, and no machine has as much ({_all(machines)}); "
                "lower machines.threads or machines.ray.gpus_per_worker, or start a larger machine"
            )
        for number in range(pool.workers):
            machine = next((machine for machine in free if _fits(pool, machine)), None)
            if machine is None:
                beside = f" beside {' and '.join(placed)}" if placed else ""
                raise TrainingError(
                    f"{pool.workers} {pool.role}s of {_counted(pool.place)} each do not fit{beside}: there is room for {number} ({_all(machines)}); "
                    f"lower machines.ray.{_number_of(pool)}, or start more machines"
                )
            for name, amount in pool.place.items():
                machine[name] = machine.get(name, 0.0) - amount
        if pool.workers:
            placed.append(f"{pool.workers} {pool.role}{'s' if pool.workers > 1 else ''}")


def _number_of(pool: ResourcePool) -> str:
    return f"{pool.role.replace(' ', '_')}s"


def _fits(pool: ResourcePool, machine: Mapping[str, float]) -> bool:
    return all(machine.get(name, 0.0) >= amount for name, amount in pool.place.items())


def _counted(resources: Mapping[str, float]) -> str:
    processors, gpus = resources.get("CPU", 0), resources.get("GPU", 0)
    told = f"{processors:g} processor{'s' if processors != 1 else ''}"
    return f"{told} and {gpus:g} GPU{'s' if gpus != 1 else ''}" if gpus else told


def _all(machines: Sequence[Mapping[str, float]]) -> str:
    return "the cluster's machines have " + "; ".join(map(_counted, machines)) if machines else "the cluster has none"
