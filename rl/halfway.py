"""Where supervised trainings stand that were stopped: kept now and then, and gone on with, to the same weights bit for bit."""

import logging
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from rl.files import file_hash, replace_folder
from rl.ranks import load_optimizer, load_weights, whole_tree

log = logging.getLogger(__name__)
EVERY_S = 120.0  # at least, between two writes
SHARE = 0.05  # of the time may go into keeping
STATE, SEAL = "state.pt", "sha256"


class Halfway:
    """Supervised trainings of one model, one after the other, in a folder that belongs to exactly this work."""

    def __init__(self, folder: Path) -> None:
        """Look for what an earlier process kept.

        Args:
            folder: complete or absent; what is damaged is as good as absent.
        """
        self._folder = folder
        self._found = self._read()
        self._losses: list[list[float]] = []  # by training
        self._due = time.monotonic() + EVERY_S

    def begin(self, model: torch.nn.Module, optimizers: Sequence[Optimizer], schedules: Sequence[Any]) -> list[float]:
        """Begin the next training, or go on with it: the losses of the gradient steps that were done.

        Args:
            model: brought to where it was when the last training that was begun was kept.
            optimizers: of this training, brought there, too.
            schedules: theirs.
        """
        number = len(self._losses)
        done: list[float] = (
            [] if self._found is None or number >= len(self._found["losses"]) else self._found["losses"][number]
        )
        self._losses.append(list(done))
        if self._found is not None and number == len(self._found["losses"]) - 1:
            load_weights(model, self._found["model"])
            for optimizer, state in zip(optimizers, self._found["optimizers"], strict=True):
                load_optimizer(optimizer, state)
            for schedule, state in zip(schedules, self._found["schedules"], strict=True):
                schedule.load_state_dict(state)
            self._found = None
            log.info("going on after gradient step %d, kept in %s", len(done), self._folder)
        return done

    def keep(
        self,
        model: torch.nn.Module,
        optimizers: Sequence[Optimizer],
        schedules: Sequence[Any],
        losses: Sequence[float],
    ) -> None:
        """Write where the training stands, if it is time to."""
        self._losses[-1] = list(losses)
        began = time.monotonic()
        if began < self._due:
            return
        temporary = self._folder.with_name(f".{self._folder.name}.partial")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        state = {
            "losses": self._losses,
            "model": model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in optimizers],
            "schedules": [schedule.state_dict() for schedule in schedules],
        }
        torch.save(whole_tree(state), temporary / STATE)
        (temporary / SEAL).write_text(file_hash(temporary / STATE))
        replace_folder(temporary, self._folder)
        now = time.monotonic()
        self._due = now + max(EVERY_S, (now - began) / SHARE)

    def _read(self) -> dict[str, Any] | None:
        if not self._folder.exists():
            return None
        try:
            if (self._folder / SEAL).read_text() != file_hash(self._folder / STATE):
                raise OSError("it is not what was written")
        except OSError as error:
            log.warning("%s cannot be gone on from (%s); it begins anew", self._folder, error)
            return None
        found: dict[str, Any] = torch.load(self._folder / STATE, map_location="cpu", weights_only=True)
        return found
