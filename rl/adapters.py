"""LoRA adapters: a small trainable product of two matrices beside each chosen weight, which stays frozen
(arXiv:2106.09685).

Switched off, the model is what it was before the training: its own reference, without a second copy.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from transformers import PreTrainedModel

from rl.config import LoraParams
from rl.errors import TrainingError
from rl.ranks import load_weights, whole

NAME = "doctor"
Weights = dict[str, torch.Tensor]
NamedTensors = Iterator[tuple[str, torch.Tensor]]


def add_adapter(model: PreTrainedModel, params: LoraParams, seed: int) -> None:
    """Freeze the weights and put an adapter beside those of the target modules, in place; it changes no output at first
    (the second matrix is zero).

    Raises:
        TrainingError: the model has no module of such a name.
    """
    linear = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    if unknown := sorted(set(params.target_modules) - linear):
        raise TrainingError(
            f"lora.target_modules {unknown} are no linear layers of this model; it has {sorted(linear)}"
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
    layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
    if not layers:
        raise TrainingError("this model has no adapter to switch off")
    for layer in layers:
        layer.enable_adapters(enabled=False)
    try:
        yield model
    finally:
        for layer in layers:
            layer.enable_adapters(enabled=True)


def adapter_weights(model: PreTrainedModel) -> Weights:
    """What is trained, by name; empty without an adapter."""
    return {name: p.detach() for name, p in model.named_parameters() if p.requires_grad} if has_adapter(model) else {}


@torch.no_grad()
def named_weights(model: PreTrainedModel) -> NamedTensors:
    """All weights, whole, an adapter added in, by the names of the model without one: what engines take and checkpoints
    hold. One merged matrix is made at a time.
    """
    layers = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    for name, value in model.state_dict().items():
        owner, _, rest = name.partition(".base_layer.")
        if rest == "weight":
            yield f"{owner}.{rest}", (whole(value) + whole(layers[owner].get_delta_weight(NAME))).to(value.dtype)
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
