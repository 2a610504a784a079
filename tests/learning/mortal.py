"""The toy, whose environment kills its process once, in the middle of a consultation."""

import os
import signal
from functools import partial
from pathlib import Path

from rl.environment import Seat
from tests.learning.toy import HARD, Toy


class Killing(Toy):
    mark: Path

    async def step(self, turn: str):
        if self.turns and self.mark.exists():
            self.mark.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().step(turn)


def seat_that_kills(mark: Path) -> Seat:
    """Once the file `mark` is there, whoever plays next removes it and dies; while `opening` is beside it, whoever opens."""
    opening = mark.with_name("opening")
    if opening.exists():
        opening.unlink()
        os.kill(os.getpid(), signal.SIGKILL)

    def seat(spec, _) -> Killing:
        toy = Killing(HARD, spec.case)
        toy.mark = mark
        return toy

    return seat


def opener(mark: Path):
    return partial(seat_that_kills, mark)
