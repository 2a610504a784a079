"""All roles in one process and on one device: the live policy, its learner and its engine, which shares their weights or
takes them over before each rollout.
"""

import threading
from collections.abc import Sequence
from pathlib import Path

import torch

from rl import stoppable
from rl.algorithms.adaptation import FoldParams
from rl.algorithms.base import Algorithm
from rl.chat import ChatFormat
from rl.config import LoraParams, RolloutParams
from rl.engines.factory import open_engine
from rl.environment import EpisodeSpec, Seat
from rl.errors import TrainingError
from rl.experience import Scores, Trajectory
from rl.learner import Learner
from rl.machine import Place
from rl.parts import POLICY
from rl.phases import Phases
from rl.rollout import Progress, play
from rl.self_check import EXACT
from rl.workers.roles import Opening
from rl.workers.trainer import TrainerWorker


class LocalSession:
    """A `Session` in this process. `model`, `tokenizer` and `engine` are its own; others ask it."""

    def __init__(  # noqa: PLR0913  what a session is opened with
        self,
        model: str,
        place: Place,
        rollout: RolloutParams,
        algorithm: Algorithm | None,
        seed: int,
        lora: LoraParams | None = None,
        temperature: float | None = None,
        seat: Seat | None = None,
    ) -> None:
        """Load the policy.

        Args:
            model: id or path.
            place: where it lies and how it computes. Weights of which all are trained are float32 whatever computes;
                others, as those beside an adapter, are in the precision that computes.
            rollout: limits and engine.
            algorithm: the learning rule, if it is to learn.
            seed: of what is drawn in learning.
            lora: the adapter, if only one is to learn.
            temperature: of the sampling that it learns from; needed where it is to learn.
            seat: makes the environments of episodes; needed where it is to play.
        """
        opening = Opening(
            model=model,
            place=place,
            rollout=rollout,
            algorithm=algorithm,
            seed=seed,
            lora=lora,
            temperature=temperature,
        )
        self._trainer, self._seat, self.params = TrainerWorker(opening), seat, rollout
        self.model, self.tokenizer = self._trainer.model, self._trainer.tokenizer
        self.chat = ChatFormat(self.tokenizer)
        copied = opening.weights != place.compute and rollout.engine.kind == "transformers"
        player = self._trainer.alike() if copied else self.model
        self.engine = open_engine(rollout, player, copy=copied)
        if rollout.ahead and self.engine.shares_weights:
            raise TrainingError("rollout.ahead is 1, and this engine plays with the weights that learn meanwhile")
        # an engine with weights of its own has none yet, and is compared whenever it takes them
        shared = self.engine if self.engine.shares_weights else None
        error = self._trainer.check(shared)
        self._exact = shared is not None and error <= EXACT
        self._opening = opening
        self._trainer.teach(exact=self._exact)
        self._playing = threading.Lock()
        self._phases = Phases(
            self.engine, self._trainer.handover, self.model.device, ahead=bool(rollout.ahead), offload=place.offload
        )

    @property
    def learner(self) -> Learner:
        """The learner of a session that was opened with an algorithm."""
        return self._trainer.learner

    @property
    def policy_version(self) -> int:
        """Training phases that the policy has been through."""
        return self._trainer.version()

    def hold(self) -> None:
        """Give the engine the policy as it is now."""
        with self._playing:
            self._sync()

    def _sync(self) -> None:
        self._trainer.policy.player.eval()
        self._phases.play()

    def rollout(
        self,
        specs: Sequence[EpisodeSpec],
        temperature: float,
        progress: Progress | None = None,
        *,
        held: bool = False,
        to_learn: bool = False,
    ) -> list[Trajectory]:
        """One rollout phase with a frozen policy: dropout off, no gradient.

        It is the policy of now, or `held`: that of the last `hold`, whatever is learned meanwhile. What is played
        `to_learn` is played by whoever the algorithm lets act, a teacher perhaps; all else by the policy alone.
        """
        if self._seat is None:
            raise TrainingError("this session was opened without a seat for its episodes, to learn or rank only")
        with self._playing:
            if to_learn:
                self._trainer.play(self._opening.acting(self.policy_version), [spec.privileged for spec in specs])
            else:
                self._trainer.play(POLICY)
            if not held:
                self._sync()
            maker = self._trainer.feature_maker
            feature = maker.feature(self.chat) if maker is not None else None
            return stoppable.run(
                play(specs, self._seat, self.engine, self.chat, self.params, temperature, progress, feature)
            )

    @property
    def can_rank(self) -> bool:
        """Whether `rank` says what it would say in a dialogue."""
        return self._trainer.can_rank()

    def rank(self, prefixes: Sequence[Sequence[int]], candidates: Sequence[Sequence[int]]) -> torch.Tensor:
        """Log-probability of each candidate after each prefix, float32 (P, C), nats at temperature 1."""
        return self._trainer.rank(prefixes, candidates)

    def learn(
        self, trajectories: Sequence[Trajectory], scores: Sequence[Scores], step: int, progress: Progress | None = None
    ) -> dict[str, float]:
        """One training phase."""
        with self._phases.learning(self.learner):
            return self._trainer.learn(trajectories, scores, step, progress)

    def save(self, root: Path, step: int) -> Path:
        """Write checkpoint `step`."""
        return self._trainer.save(root, step)

    def restore(self, directory: Path) -> None:
        """Go on from a checkpoint: weights, optimizer and counters. The learner has the device meanwhile: moments are read
        to where they are learned with, and wait on the host afterwards where they are to.
        """
        with self._phases.learning(self.learner):
            self._trainer.restore(directory)

    def reset(self) -> None:
        """Go back to the weights and the learner that it was opened with."""
        self._trainer.reset()

    def load(self, directory: Path) -> None:
        """Play with the model saved there from now on; an adapter is part of it and adds nothing any more."""
        self._trainer.load(directory)

    def fold(
        self, trajectories: Sequence[Trajectory], params: FoldParams, temperature: float, directory: Path
    ) -> dict[str, float]:
        """Teach a copy of the student that was loaded to act without soft tokens, and write it."""
        return self._trainer.fold(trajectories, params, temperature, directory)

    def close(self) -> None:
        """Nothing is elsewhere."""
