"""The processes that learn together: so far one. The only room that knows torch.distributed."""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor

T = TypeVar("T")


def mesh_of_one(device: str) -> DeviceMesh:
    """A device mesh of this process alone, made without a port or an address.

    Args:
        device: torch's name of the kind.
    """
    if not dist.is_initialized():
        store = dist.HashStore()  # type: ignore[attr-defined]  # torch's stubs
        backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
    return init_device_mesh(device, (1,))


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The full tensor, gathered if it is held in shards."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def whole_tree(tree: T) -> T:
    """A tree of dicts, lists and tuples with every sharded tensor gathered."""
    if isinstance(tree, torch.Tensor):
        return whole(tree)  # type: ignore[return-value]  # a tensor stays one
    if isinstance(tree, Mapping):
        return {key: whole_tree(value) for key, value in tree.items()}  # type: ignore[return-value]  # as are the others
    if isinstance(tree, list | tuple):
        return type(tree)(whole_tree(value) for value in tree)
    return tree


@torch.no_grad()
def assign(target: torch.Tensor, value: torch.Tensor) -> None:
    """Give a tensor, sharded or not, the numbers of a full one, in place."""
    if isinstance(target, DTensor):
        value = distribute_tensor(value.to(target.device, target.dtype), target.device_mesh, target.placements)
    target.copy_(value)


def load_weights(module: torch.nn.Module, weights: Mapping[str, torch.Tensor]) -> tuple[list[str], list[str]]:
    """Give a module, sharded or not, full tensors by name, in place.

    Returns:
        Names that the module has and the weights lack, and the other way round.
    """
    held = module.state_dict(keep_vars=True)
    for name in held.keys() & weights.keys():
        assign(held[name], weights[name])
    return sorted(held.keys() - weights.keys()), sorted(weights.keys() - held.keys())


def load_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Give an optimizer a state of full tensors, sharded as its parameters are."""
    optimizer.load_state_dict(dict(state))
    for parameter, held in optimizer.state.items():
        if isinstance(parameter, DTensor):
            for name, value in held.items():
                if torch.is_tensor(value) and value.shape == parameter.shape and not isinstance(value, DTensor):
                    held[name] = distribute_tensor(
                        value.to(parameter.device), parameter.device_mesh, parameter.placements
                    )
