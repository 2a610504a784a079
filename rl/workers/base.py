"""What a session is: a policy that plays and learns, wherever it lives. Whoever runs a training asks for nothing else."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch

from rl.algorithms.adaptation import FoldParams
from rl.chat import ChatFormat
from rl.environment import EpisodeSpec
from rl.experience import Scores, Trajectory
from rl.rollout import Progress


class Session(Protocol):
    """A policy, its learner if it was opened with an algorithm, and its engine.

    Handed on by whoever opened it; nothing of it is ever pickled.
    """

    @property
    def chat(self) -> ChatFormat:
        """The policy's chat format."""
        ...

    @property
    def policy_version(self) -> int:
        """Training phases that the policy has been through."""
        ...

    def hold(self) -> None:
        """Give the engine the policy as it is now."""
        ...

    def rollout(
        self,
        specs: Sequence[EpisodeSpec],
        temperature: float,
        progress: Progress | None = None,
        *,
        held: bool = False,
        to_learn: bool = False,
    ) -> list[Trajectory]:
        """One rollout phase with a frozen policy: that of now, or `held`: that of the last `hold`, whatever is learned
        meanwhile. What is played `to_learn` is played by whoever the algorithm lets act, a teacher perhaps.
        """
        ...

    @property
    def can_rank(self) -> bool:
        """Whether `rank` says what it would say in a dialogue; a student that is told a feature is not told it there."""
        ...

    def rank(self, prefixes: Sequence[Sequence[int]], candidates: Sequence[Sequence[int]]) -> torch.Tensor:
        """Log-probability of each candidate after each prefix, float32 (P, C), nats at temperature 1."""
        ...

    def learn(
        self, trajectories: Sequence[Trajectory], scores: Sequence[Scores], step: int, progress: Progress | None = None
    ) -> dict[str, float]:
        """One training phase; returns its metrics."""
        ...

    def save(self, root: Path, step: int) -> Path:
        """Write checkpoint `step` below `root`, complete or absent."""
        ...

    def restore(self, directory: Path) -> None:
        """Go on from a checkpoint: weights, optimizer and counters."""
        ...

    def reset(self) -> None:
        """Go back to the weights and the learner that it was opened with."""
        ...

    def load(self, directory: Path) -> None:
        """Play with the model saved there from now on; the learner stays what it is."""
        ...

    def fold(
        self, trajectories: Sequence[Trajectory], params: FoldParams, temperature: float, directory: Path
    ) -> dict[str, float]:
        """Teach a copy of the student that plays, on its own trajectories, to act without soft tokens, and write it as
        a model folder of its own; returns metrics.
        """
        ...

    def close(self) -> None:
        """End what it started elsewhere; it is not asked for anything afterwards."""
        ...
