"""Matrix products of linear layers by oneDNN, where that is the faster library: float32 on processors with AVX-512 that
are not Intel's.

PyTorch gives them to MKL, which on other makers' processors stays with 256-bit code; oneDNN uses the full width, at the
same precision. Nothing else of a
layer changes: weights, names and what is saved are those of `torch.nn.Linear`.
"""

import re
from pathlib import Path
from typing import Any

import torch
from torch.autograd.function import once_differentiable


def worthwhile() -> bool:
    """Whether this machine gains: a function of the machine alone, so that the same run gives the same bits."""
    cpuinfo = Path("/proc/cpuinfo")
    mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]  # torch's stubs
    if not (mkl and cpuinfo.exists() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return False
    vendor = re.search(r"^vendor_id\s*:\s*(\S+)", cpuinfo.read_text(), re.MULTILINE)
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and vendor is not None and vendor[1] != "GenuineIntel"


def _product(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Product of left (..., K) and right (N, K) transposed, (..., N), plus bias (N,)."""
    out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")
    return out


class _Linear(torch.autograd.Function):
    """y = x w^T + b with its first derivatives."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)  # a frozen layer needs no input again
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        rows = gradient.reshape(-1, gradient.shape[-1])
        return (
            _product(gradient, weight.t()) if of_x else None,
            _product(rows.t(), x.reshape(-1, x.shape[-1]).t()) if of_weight else None,
            rows.sum(0) if of_bias else None,
        )


class FastLinear(torch.nn.Linear):
    """A linear layer with oneDNN's product; on other devices and in other precisions the usual one."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """See `torch.nn.Linear`."""
        if input.device.type != "cpu" or not input.dtype == self.weight.dtype == torch.float32 or not input.numel():
            return super().forward(input)
        if torch.is_grad_enabled():
            out: torch.Tensor = _Linear.apply(input, self.weight, self.bias)  # type: ignore[no-untyped-call]  # torch's stubs
            return out
        return _product(input, self.weight, self.bias)


def speed_up(model: torch.nn.Module) -> None:
    """Give all plain linear layers of a model the faster product, in place."""
    for module in model.modules():
        if type(module) is torch.nn.Linear:
            module.__class__ = FastLinear
