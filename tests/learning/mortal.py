"""The toy, whose environment kills its process once, in the middle of a consultation; or asks a language model."""

import asyncio
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

from rl.config import LocalModelParams
from rl.environment import Seat
from rl.language_models.local import LocalModel
from rl.workers.roles import Generate
from tests.learning.toy import HARD, Toy


class Killing(Toy):
    mark: Path

    async def step(self, turn: str):
        if self.turns and self.mark.exists():
            self.mark.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().step(turn)


def seat_that_kills(mark: Path, _: object) -> Seat:
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


class Asking(Toy):
    """What it says is what a language model answers, and then what the toy says."""

    generate: Generate
    takes_s: float

    async def step(self, turn: str):
        reply = await super().step(turn)
        await asyncio.sleep(self.takes_s)
        if reply.text is None:
            return reply
        said = await self.generate([{"role": "user", "content": f"{turn} {self.colour}"}])
        return replace(reply, text=f"{said} {reply.text}".strip())


def seat_that_asks(generate: Generate) -> Seat:
    """Of all who sit there."""

    def seat(spec, _) -> Asking:
        toy = Asking(HARD, spec.case)
        toy.generate, toy.takes_s = generate, 0.4 * spec.sample
        return toy

    return seat


def open_patient(folder: Path) -> Generate:
    """A policy of the toy, which answers."""
    params = LocalModelParams(
        model=str(folder), device="cpu", dtype="float32", slots=16, context=64, temperature=1.0, max_tokens=2
    )
    return LocalModel(params, 0).generate
