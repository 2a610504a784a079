"""LoRA adapters: a small trainable product of two matrices beside each chosen weight, which stays frozen
(arXiv:2106.09685).

Switched off, the model is what it was before the training: its own reference, without a second copy. Several beside one
frozen base are several models for the memory of one; which of them computes is switched.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from transformers import PreTrainedModel

from rl.config import LoraParams
from rl.errors import TrainingError
from rl.ranks import load_weights, whole

NAME = "doctor"
M = TypeVar("M", bound=torch.nn.Module)
Weights = dict[str, torch.Tensor]
NamedTensors = Iterator[tuple[str, torch.Tensor]]


def add_adapter(model: PreTrainedModel, params: LoraParams, seed: int) -> None:
    """Freeze the weights and put an adapter beside those of the target modules, in place; it changes no output at first
    (the second matrix is zero).

    Raises:
        TrainingError: the model has no module of such a name, or it is a head that is the table of embeddings as well.
    """
    linear = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    if unknown := sorted(set(params.target_modules) - linear):
        raise TrainingError(
            f"lora.target_modules {unknown} are no linear layers of this model; it has {sorted(linear)}"
        )
    head = model.get_output_embeddings()
    name = next((name.rpartition(".")[2] for name, module in model.named_modules() if module is head), None)
    if name in params.target_modules and head.weight is model.get_input_embeddings().weight:
        raise TrainingError(
            f"lora.target_modules has {name}, whose weight is this model's table of embeddings, too (tie_word_embeddings); "
            "an adapter of one of them alone cannot be added in when the model is saved: leave it out"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(
            LoraConfig(r=params.rank, lora_alpha=params.alpha, target_modules=list(params.target_modules)),
            model,
            adapter_name=NAME,
        )
    for parameter in model.parameters():
        if parameter.requires_grad:  # beside a base in bfloat16 too: its updates would round to nothing there
            parameter.data = parameter.data.float()


def has_adapter(model: torch.nn.Module) -> bool:
    """Whether `add_adapter` was called on it."""
    return any(isinstance(module, LoraLayer) for module in model.modules())


@contextmanager
def adapter_off(model: PreTrainedModel) -> Iterator[PreTrainedModel]:
    """The model as it was before the training, while the block runs.

    Raises:
        TrainingError: it has no adapter.
    """
    layers = _layers(model)
    if not layers:
        raise TrainingError("this model has no adapter to switch off")
    before = [layer._disable_adapters for layer in layers]
    for layer in layers:  # peft's own switch would freeze the adapter's weights, too
        layer._disable_adapters = True
    try:
        yield model
    finally:
        for layer, off in zip(layers, before, strict=True):
            layer._disable_adapters = off


def add_branch(model: PreTrainedModel, name: str) -> None:
    """One more adapter beside the first, which is from now on what that is now; it computes where `on_branch` or
    `switch_to` say so.

    Args:
        model: with an adapter.
        name: of the new one; one of this name begins anew.
    """
    for layer in _layers(model):
        if name not in layer.lora_A:
            rank, alpha, active = layer.r[NAME], layer.lora_alpha[NAME], list(layer.active_adapters)
            with torch.random.fork_rng(devices=[]):  # its first weights are the other's
                layer.update_layer(name, rank, lora_alpha=alpha, config=LoraConfig(r=rank, lora_alpha=alpha))
            layer._active_adapter = active
        for parts in (layer.lora_A, layer.lora_B):
            parts[name].load_state_dict(parts[NAME].state_dict())
            parts.requires_grad_(True)  # peft froze those that do not compute
            parts[name].float()


def switch_to(model: PreTrainedModel, name: str = NAME) -> None:
    """Let the adapter of this name compute from now on."""
    for layer in _layers(model):
        layer._active_adapter = [name]


@contextmanager
def on_branch(model: PreTrainedModel, name: str) -> Iterator[PreTrainedModel]:
    """The model with the adapter of this name, while the block runs."""
    before = [list(layer.active_adapters) for layer in _layers(model)]
    switch_to(model, name)
    try:
        yield model
    finally:
        for layer, active in zip(_layers(model), before, strict=True):
            layer._active_adapter = active


class Branch(torch.nn.Module):
    """The weights of one adapter, as a module of their own: what an optimizer learns and a checkpoint keeps."""

    def __init__(self, model: PreTrainedModel, name: str) -> None:
        """They stay where they are.

        Args:
            model: with the adapter.
            name: of it.
        """
        super().__init__()
        for number, layer in enumerate(_layers(model)):
            self.add_module(f"{number}_A", layer.lora_A[name])
            self.add_module(f"{number}_B", layer.lora_B[name])


def without_adapters(module: M) -> M:
    """A copy of a model, or of a part of it, as it was before there were adapters."""
    found = copy.deepcopy(module)
    for name, layer in list(found.named_modules()):
        if isinstance(layer, LoraLayer):
            owner, _, last = name.rpartition(".")
            setattr(found.get_submodule(owner), last, layer.get_base_layer())
    if hasattr(found, "peft_config"):
        del found.peft_config
    return found


def _layers(model: torch.nn.Module) -> list[LoraLayer]:
    return [module for module in model.modules() if isinstance(module, LoraLayer)]


def adapter_weights(model: PreTrainedModel) -> Weights:
    """What of a doctor's adapter is trained, by name; empty without one."""
    if not has_adapter(model):
        return {}
    return {name: p.detach() for name, p in model.named_parameters() if f".{NAME}." in name and p.requires_grad}


@torch.no_grad()
def named_weights(model: PreTrainedModel, adapter: str = NAME) -> NamedTensors:
    """All weights, whole, an adapter added in, by the names of the model without one: what engines take and checkpoints
    hold. One merged matrix is made at a time.

    Args:
        model: with any number of adapters.
        adapter: the one of several that is added.
    """
    layers = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    for name, value in model.state_dict().items():
        owner, _, rest = name.partition(".base_layer.")
        if rest == "weight":
            yield f"{owner}.{rest}", (whole(value) + whole(layers[owner].get_delta_weight(adapter))).to(value.dtype)
        elif rest:
            yield f"{owner}.{rest}", whole(value)
        elif ".lora_" not in name:
            yield name, whole(value)


@torch.no_grad()
def load_merged(model: PreTrainedModel, weights: Weights) -> None:
    """Give the model weights by the names of one without an adapter; its own adapter, if it has one, then adds nothing."""
    layers = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    owned = {f"{name}.{part}": f"{name}.base_layer.{part}" for name in layers for part in ("weight", "bias")}
    missing, unknown = load_weights(model, {owned.get(name, name): value for name, value in weights.items()})
    if unknown or any(".lora_" not in name for name in missing):
        raise TrainingError(
            f"these are weights of another model: unknown {unknown[:3]}, missing {[name for name in missing if '.lora_' not in name][:3]}"
        )
    for layer in layers.values():
        layer.lora_B[NAME].weight.zero_()
