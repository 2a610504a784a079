"""The processes that learn together, each a rank: who computes which micro-batch, and how what they found becomes one.
The only room that knows torch.distributed.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from rl.config import Sharding

K = TypeVar("K")
T = TypeVar("T")
MEETING_S = 60.0  # how long a meeting place waits for the first who ask


class Ranks:
    """The processes that learn together. All make the same calls in the same order; ALONE asks nobody."""

    def __init__(self, rank: int = 0, size: int = 1, sharding: Sharding = "shard") -> None:
        """Name this process; `join` makes ranks that can speak to each other.

        Args:
            rank: of this process, 0 to size - 1.
            size: how many there are.
            sharding: whether each holds a part of every weight, or all of it.
        """
        self.rank, self.size, self.sharding = rank, size, sharding

    def mesh(self, device: str) -> DeviceMesh:
        """What FSDP2 spreads weights over; of one process it is made without a port or an address.

        Args:
            device: torch's name of the kind.
        """
        if self.size == 1:
            if not dist.is_initialized():
                store = dist.HashStore()  # type: ignore[attr-defined]  # torch's stubs
                dist.init_process_group(_backend(device), store=store, rank=0, world_size=1)
            return init_device_mesh(device, (1,))
        if self.sharding == "replicate":
            return init_device_mesh(device, (self.size, 1), mesh_dim_names=("replicate", "shard"))
        return init_device_mesh(device, (self.size,))

    def share(
        self,
        root: torch.nn.Module,
        layers: Iterable[torch.nn.Module],
        in_float32: Iterable[torch.nn.Module],
        dtype: torch.dtype | None,
        device: str,
    ) -> None:
        """Give a module's weights to FSDP2, in place: gathered layer by layer while the module is called.

        Args:
            root: the module that is called.
            layers: of it, each gathered alone.
            in_float32: other parts of it, which compute so whatever the rest does.
            dtype: that computes; None: the weights' own.
            device: torch's name of the kind.
        """
        warnings.filterwarnings(
            "ignore", message="FSDP2-wrapped module .* returned a view tensor"
        )  # nobody writes into it
        precision, mesh = MixedPrecisionPolicy(dtype, torch.float32), self.mesh(device)
        for part in in_float32:
            fully_shard(part, mesh=mesh)
        for layer in layers:
            fully_shard(layer, mesh=mesh, mp_policy=precision)
        fully_shard(root, mesh=mesh, mp_policy=precision)
        if self.size > 1:
            for module in root.modules():
                if isinstance(module, FSDPModule):
                    module.set_gradient_divide_factor(1.0)
                    module.set_force_sum_reduction_for_comms(True)  # gloo knows no other

    def deal(self, items: Iterable[T], cost: Callable[[T], int]) -> Iterator[tuple[T, bool]]:
        """What this rank computes, and whether it counts.

        All ranks give the same items. The costliest goes first, to whoever has least so far. Every forward and backward
        is a common one, so who has fewer items repeats the cheapest of all, which then does not count.

        Args:
            items: in order.
            cost: of an item.
        """
        if self.size == 1:
            yield from ((item, True) for item in items)
            return
        dealt = list(items)
        costs = [cost(item) for item in dealt]
        load, hands = [0] * self.size, [[] for _ in range(self.size)]  # type: list[int], list[list[int]]
        for place in sorted(range(len(dealt)), key=lambda place: (-costs[place], place)):
            idlest = min(range(self.size), key=lambda rank: (load[rank], rank))
            load[idlest] += costs[place]
            hands[idlest].append(place)
        mine = sorted(hands[self.rank])
        yield from ((dealt[place], True) for place in mine)
        for _ in range(max(map(len, hands)) - len(mine)):
            yield dealt[min(range(len(dealt)), key=lambda place: (costs[place], place))], False

    def gather(self, found: list[T]) -> list[T]:
        """What all ranks found, those of rank 0 first."""
        if self.size == 1:
            return found
        parts: list[list[T]] = [[] for _ in range(self.size)]
        dist.all_gather_object(parts, found)
        return [one for part in parts for one in part]

    def merge(self, found: Mapping[K, T]) -> dict[K, T]:
        """What all ranks found by key; of one that several have, the last rank's."""
        return dict(self.gather(list(found.items())))

    def add(self, values: Mapping[str, float]) -> dict[str, float]:
        """Sums over the ranks, by name; a name that a rank lacks adds nothing."""
        if self.size == 1:
            return dict(values)
        total: dict[str, float] = {}
        for name, value in self.gather(list(values.items())):
            total[name] = total.get(name, 0.0) + float(value)
        return total

    @torch.no_grad()
    def add_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Sums over the ranks, in place, of the gradients of weights that every rank holds whole; those of others FSDP2
        has added.
        """
        held = [one for one in parameters if not isinstance(one, DTensor)] if self.size > 1 else []
        if not held:
            return
        found = torch.tensor([float(one.grad is not None) for one in held])
        dist.all_reduce(found)
        for one, anywhere in zip(held, found.tolist(), strict=True):
            if anywhere:
                one.grad = torch.zeros_like(one) if one.grad is None else one.grad
                dist.all_reduce(one.grad)


ALONE = Ranks()


def meeting_place(host: str) -> tuple[object, int]:
    """Where ranks find each other, open as long as the first of what is returned is held; the second is its port.

    Args:
        host: address of this machine that the others reach.
    """
    wait = timedelta(seconds=MEETING_S)
    store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=wait)  # type: ignore[attr-defined]  # torch's stubs
    return store, store.port


def join(host: str, port: int, rank: int, size: int, device: str, timeout_s: float, sharding: Sharding) -> Ranks:
    """Become one of the ranks; returns once all have.

    Args:
        host: of the meeting place.
        port: of it.
        rank: of this process.
        size: how many there are.
        device: torch's name of the kind that computes.
        timeout_s: how long one waits for the others, at most, before it fails.
        sharding: see `Ranks`.
    """
    wait = timedelta(seconds=timeout_s)
    store = dist.TCPStore(host, port, is_master=False, timeout=wait)  # type: ignore[attr-defined]  # torch's stubs
    dist.init_process_group(_backend(device), store=store, rank=rank, world_size=size, timeout=wait)
    return Ranks(rank, size, sharding)


def _backend(device: str) -> str:
    return "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The full tensor, gathered if it is held in shards."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def whole_tree(tree: T) -> T:
    """A tree of dicts, lists and tuples with every sharded tensor gathered in the host's memory of rank 0; the other
    ranks take part, and get placeholders.
    """
    if isinstance(tree, DTensor):
        return tree.full_tensor().to("cpu" if dist.get_rank() == 0 else "meta")  # type: ignore[return-value]  # a tensor stays one
    if isinstance(tree, torch.Tensor):
        return tree
    if isinstance(tree, Mapping):
        return {key: whole_tree(value) for key, value in tree.items()}  # type: ignore[return-value]  # as are the others
    if isinstance(tree, list | tuple):
        return type(tree)(whole_tree(value) for value in tree)
    return tree


@torch.no_grad()
def assign(target: torch.Tensor, value: torch.Tensor) -> None:
    """Give a tensor, sharded or not, the numbers of a full one, in place."""
    if isinstance(target, DTensor):
        value = _spread(value.to(target.dtype), target)
    target.copy_(value)


def _spread(value: torch.Tensor, like: DTensor) -> DTensor:
    """A full tensor, which every rank has, held as another one is."""
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def load_weights(module: torch.nn.Module, weights: Mapping[str, torch.Tensor]) -> tuple[list[str], list[str]]:
    """Give a module, sharded or not, full tensors by name, in place.

    Returns:
        Names that the module has and the weights lack, and the other way round.
    """
    held = module.state_dict(keep_vars=True)
    for name, target in held.items():
        if name in weights:
            assign(target, weights[name])
    return sorted(held.keys() - weights.keys()), sorted(weights.keys() - held.keys())


def load_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Give an optimizer a state of full tensors, sharded as its parameters are."""
    optimizer.load_state_dict(dict(state))
    for parameter, held in optimizer.state.items():
        if isinstance(parameter, DTensor):
            for name, value in held.items():
                if torch.is_tensor(value) and value.shape == parameter.shape and not isinstance(value, DTensor):
                    held[name] = _spread(value, parameter)
