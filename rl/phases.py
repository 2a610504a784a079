"""Who is resident on the device, and when: playing and learning take turns.

    playing   weights, and the engine: its copy of them if it has one, and its cache
    learning  weights, the optimizer's moments, gradients, activations; the engine sleeps

Nothing else puts an engine to sleep or gives it weights.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from rl.engines.base import Engine
from rl.handover import Handover
from rl.learner import Learner


class Phases:
    """The two phases of a policy and its engine."""

    def __init__(
        self, engine: Engine, handover: Callable[[], Handover], device: torch.device, *, ahead: bool, offload: bool
    ) -> None:
        """Nothing is moved yet.

        Args:
            engine: that plays.
            handover: makes one of the policy as it is now.
            device: that both share.
            ahead: the engine plays on while the policy learns: it stays awake, and both have to fit.
            offload: keep the optimizer's moments on the host while the engine plays.
        """
        self._engine, self._handover, self._device = engine, handover, device
        self._ahead, self._offload = ahead, offload

    def play(self) -> None:
        """Let the engine play with the policy as it is now; a learner's gradients are gone by then."""
        self._release()
        self._engine.take(self._handover())

    @contextmanager
    def learning(self, learner: Learner) -> Iterator[None]:
        """While the block runs, the learner has the device; afterwards, an exception included, the engine still sleeps
        and the learner has freed what only learning needs.
        """
        if not self._ahead:
            self._engine.sleep()
            self._release()
        if self._offload:
            learner.optimizers.moments_to(self._device)
        try:
            yield
        finally:
            learner.optimizers.zero_grad()
            if self._offload:
                learner.optimizers.moments_to(torch.device("cpu"))

    def _release(self) -> None:
        """Give freed blocks back, so that the other one can have them."""
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
