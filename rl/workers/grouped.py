"""A session made of groups of workers: trainers hold the policy together, rollout workers play copies of it."""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rl.algorithms.adaptation import FoldParams
from rl.chat import ChatFormat
from rl.environment import EpisodeSpec
from rl.errors import TrainingError
from rl.experience import Scores, Trajectory
from rl.parts import POLICY
from rl.rollout import Progress
from rl.workers.group import Pending, WorkerGroup, WorkerLostError, dealt_by_group

log = logging.getLogger(__name__)
NEW_TRAINERS = 2  # groups of trainers in the place of lost ones in one step, at most
LOOK_EVERY_S = 1.0  # at how much is played
LOST = -1  # version of a policy whose trainers are lost


class GroupSession:
    """A `Session` whose workers are elsewhere.

    A rollout worker that is lost is replaced once in a step, and its share is played again: the same tokens, by their
    noise keys. Trainers that are lost take the policy with them; `restore` and `reset` open new ones.
    """

    def __init__(
        self,
        rollouts: WorkerGroup,
        open_trainers: Callable[[bool], WorkerGroup],
        chat: ChatFormat,
        taken: ExitStack,
        acting: Callable[[int], str] = lambda _: POLICY,
    ) -> None:
        """Open the trainers, last: their number and place are what others wait for.

        Args:
            rollouts: of `RolloutWorker`.
            open_trainers: makes the group of `TrainerWorker`, told whether the rollout workers are exact.
            chat: the policy's chat format.
            taken: what has been taken for the session besides, to be given back at its close; it is the session's once
                that is open.
            acting: which part of a policy plays what is learned from, by the policy's version.
        """
        self._rollouts, self._chat, self._acting = rollouts, chat, acting
        self._open_trainers, self._exact = open_trainers, all(rollouts.call("exact"))
        self._trainers: WorkerGroup | None = self._open_trainers(self._exact)
        self._version = self._held_version = 0
        self._held: Any = None  # the parcel that the rollout workers play with
        self._playing = threading.Lock()
        self._held_part = ""  # which part of the policy as it is now they play; none: an older one
        self._furthest = self._new_trainers = 0
        self._revived = False  # whether a rollout worker was replaced in this step
        self._taken = taken.pop_all()

    @property
    def chat(self) -> ChatFormat:
        """The policy's chat format."""
        return self._chat

    @property
    def policy_version(self) -> int:
        """Training phases that the policy has been through; below 0 while its trainers are lost."""
        return self._version if self._trainers is not None else LOST

    def hold(self) -> None:
        """Give the rollout workers the policy as it is now."""
        with self._playing:
            self._hold(POLICY)

    def _hold(self, part: str, specs: Sequence[EpisodeSpec] = ()) -> None:
        """Give them a part of the policy, which meets the episodes that are to be learned from first if it is another."""
        if self._held_part == part and self._trainers is not None:
            return
        met = [spec.privileged for spec in specs] if part != POLICY else []
        parcel = self._on_trainers("pack", part, met, keep=True)
        self._held_part, self._held, self._held_version = "", None, self._version
        taken = self._on_rollouts("take", [(parcel,)] * self._rollouts.size)
        for worker, version in enumerate(version for version, _ in taken):
            self._refuse_stale(worker, version)
        log.debug("largest difference of a log-probability after the handover: %.2g", max(error for _, error in taken))
        self._held, self._held_part = parcel, part

    def _refuse_stale(self, worker: int, version: int) -> None:
        if version != self._held_version:
            raise TrainingError(
                f"rollout worker {worker} plays policy version {version} instead of {self._held_version}: it did not take the weights it was sent; run again, it resumes"
            )

    def rollout(
        self,
        specs: Sequence[EpisodeSpec],
        temperature: float,
        progress: Progress | None = None,
        *,
        held: bool = False,
        to_learn: bool = False,
    ) -> list[Trajectory]:
        """One rollout phase: whole groups of episodes are dealt to the workers, each with `rollout.slots` of its own.

        Raises:
            TrainingError: a worker played another policy than it was given, or died again.
        """
        with self._playing:
            if not held:
                self._hold(self._acting(self._version) if to_learn else POLICY, specs)
            hands = dealt_by_group([spec.group_id for spec in specs], self._rollouts.size)
            shares = [([specs[place] for place in hand], temperature) for hand in hands]
            played: dict[int, Trajectory] = {}
            told = partial(self._tell_played, progress, len(specs)) if progress is not None else None
            for worker, trajectories in enumerate(self._on_rollouts("play", shares, told)):
                for trajectory in trajectories:
                    self._refuse_stale(worker, trajectory.policy_version)
                played |= dict(zip(hands[worker], trajectories, strict=True))
            if progress is not None:
                progress(len(played), len(specs))
            return [played[place] for place in range(len(specs))]

    def _tell_played(self, progress: Progress, total: int, pending: Pending) -> None:
        """Tell how many episodes are over, until one worker's are."""
        played = 0
        while not pending.waited(LOOK_EVERY_S):
            played = max(played, sum(one or 0 for one in self._rollouts.look("played")))
            progress(min(played, total - 1), total)  # the last one is told with the trajectories

    def _on_rollouts(
        self, method: str, shares: Sequence[tuple[Any, ...]], watch: Callable[[Pending], None] | None = None
    ) -> list[Any]:
        """Ask each for its share, and watch while it is busy; of one that is lost, a fresh one does it."""
        pending = [self._rollouts.start(worker, method, *share) for worker, share in enumerate(shares)]
        found = []
        for worker, one in enumerate(pending):
            try:
                found.append(self._done(one, watch))
            except WorkerLostError as lost:
                self._revive(lost)
                found.append(self._again(worker, method, shares[worker], watch))
        return found

    def _done(self, one: Pending, watch: Callable[[Pending], None] | None) -> Any:
        if watch is not None:
            watch(one)
        return one.result()

    def _again(self, worker: int, method: str, share: tuple[Any, ...], watch: Callable[[Pending], None] | None) -> Any:
        try:
            return self._done(self._rollouts.start(worker, method, *share), watch)
        except WorkerLostError as lost:
            raise self._lost_again(lost) from lost

    def _lost_again(self, lost: WorkerLostError) -> TrainingError:
        return TrainingError(f"{lost}, after another one in the same step; run again, it resumes")

    def _revive(self, lost: WorkerLostError) -> None:
        if self._revived:
            raise self._lost_again(lost) from lost
        log.warning("%s; a fresh one plays its share again", lost)
        self._revived = True
        self._rollouts.revive(lost.worker)
        if self._held is not None:
            self._rollouts.start(lost.worker, "take", self._held).result()

    @property
    def can_rank(self) -> bool:
        """Whether `rank` says what it would say in a dialogue."""
        return bool(self._on_trainers("can_rank")[0])

    def rank(self, prefixes: Sequence[Sequence[int]], candidates: Sequence[Sequence[int]]) -> torch.Tensor:
        """Log-probability of each candidate after each prefix, float32 (P, C), nats at temperature 1."""
        found: torch.Tensor = self._on_trainers("rank", prefixes, candidates)[0]
        return found

    def learn(
        self, trajectories: Sequence[Trajectory], scores: Sequence[Scores], step: int, progress: Progress | None = None
    ) -> dict[str, float]:
        """One training phase.

        Raises:
            WorkerLostError: a trainer is lost, and with it the policy.
            TrainingError: the ranks do not agree.
        """
        self._held_part = ""
        metrics: list[dict[str, float]] = self._on_trainers("learn", trajectories, scores, step)
        if len({repr(found) for found in metrics}) > 1:
            raise TrainingError(
                f"the trainers' metrics of step {step} differ: their weights do too; run again, it resumes"
            )
        self._version += 1
        if self._version > self._furthest:  # not what is only learned again
            self._furthest, self._new_trainers, self._revived = self._version, 0, False
        if progress is not None:
            updates = int(metrics[0]["gradient_steps"])
            progress(updates, updates)
        return metrics[0]

    def save(self, root: Path, step: int) -> Path:
        """Write checkpoint `step` into a folder that all trainers' machines share."""
        directory: Path = self._on_trainers("save", root.resolve(), step)[0]
        return directory

    def restore(self, directory: Path) -> None:
        """Go on from a checkpoint, with new trainers if they are lost."""
        self._renew()
        self._on_trainers("restore", directory.resolve())
        self._version = self._on_trainers("version")[0]

    def reset(self) -> None:
        """Go back to the weights and the learner that it was opened with, with new trainers if they are lost."""
        if not self._renew():
            self._on_trainers("reset")
        self._version = 0

    def load(self, directory: Path) -> None:
        """Play with the model saved there from now on; the learner stays what it is."""
        self._held_part = ""
        self._on_trainers("load", directory.resolve())

    def fold(
        self, trajectories: Sequence[Trajectory], params: FoldParams, temperature: float, directory: Path
    ) -> dict[str, float]:
        """Teach a copy of the student that was loaded to act without soft tokens, and write it."""
        found: dict[str, float] = self._on_trainers("fold", trajectories, params, temperature, directory.resolve())[0]
        return found

    def close(self) -> None:
        """End all workers, and give their places back."""
        if self._trainers is not None:
            self._trainers.close()
        self._taken.close()

    def _on_trainers(self, method: str, *arguments: Any, keep: bool = False) -> Any:
        """Ask all; if one is lost, the others wait for it in vain, and all are."""
        if self._trainers is None:
            raise TrainingError("the trainers are lost, and with them the policy; restore a checkpoint first")
        try:
            return (self._trainers.keep if keep else self._trainers.call)(method, *arguments)
        except WorkerLostError:
            self._trainers.close()
            self._trainers = None
            raise

    def _renew(self) -> bool:
        """New trainers in the place of lost ones; whether there are."""
        self._held_part = ""
        if self._trainers is not None:
            return False
        if self._new_trainers == NEW_TRAINERS:
            raise TrainingError(
                f"trainers were lost {NEW_TRAINERS + 1} times in one step (the warnings above say how); run again, it resumes from the last checkpoint"
            )
        self._new_trainers += 1
        self._trainers = self._open_trainers(self._exact)
        return True
