"""What is said to torch's compiler, and decoder layers compiled one by one: those of one kind are one program."""

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch

from rl.errors import first_line

# programs that one function may become: precisions, with a gradient and without, one block or many, spans of a cache.
# After torch's own 8 it runs a function as it stands, or stops where that is not allowed.
PROGRAMS = 64
log = logging.getLogger(__name__)


def allow_programs() -> None:
    """Let torch compile a function for as many kinds of input as happen here."""
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, PROGRAMS)


class _Compiler:
    """Compiles the layers of one decoder, until that fails."""

    def __init__(self, compile_forward: Callable[..., Any]) -> None:
        self._compile, self.failed = compile_forward, False

    def choose(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """A layer's forward pass: compiled where it learns, as it is where it plays (with a cache)."""
        compiled = self._compile(plain)

        @functools.wraps(plain)
        def forward(*args: Any, **named: Any) -> Any:
            if self.failed or named.get("past_key_values") is not None:
                return plain(*args, **named)
            try:
                return compiled(*args, **named)
            except torch._dynamo.exc.TorchDynamoException as error:
                self.failed = True
                log.warning("layers cannot be compiled, slower from now on: %s", first_line(error))
                return plain(*args, **named)

        return forward


def compile_layers(decoder: Any, compile_forward: Callable[..., Any] = torch.compile) -> None:
    """Compile the layers of a decoder in place; modules, names of weights and hooks stay.

    What fails while a gradient is computed is an error all the same.
    """
    allow_programs()
    compiler = _Compiler(compile_forward)
    for layer in decoder.layers:
        layer.forward = compiler.choose(layer.forward)
    decoder.compiled_layers = True


def has_compiled_layers(decoder: torch.nn.Module) -> bool:
    """Whether `compile_layers` was called on it."""
    return bool(getattr(decoder, "compiled_layers", False))
