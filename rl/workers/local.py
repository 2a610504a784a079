"""All roles in one process: the live policy, its learner and its engine, which shares their weights or takes them over before each rollout.

Whoever opens a session hands it on; nothing of it is ever pickled.
"""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import torch

from rl.adapters import adapter_weights, add_adapter
from rl.algorithms.base import Algorithm
from rl.chat import ChatFormat
from rl.checkpoint import load_learner_state, save_checkpoint
from rl.config import LoraParams, RolloutParams
from rl.engines.opening import open_engine
from rl.errors import TrainingError
from rl.experience import Scores, Trajectory
from rl.learner import Learner, Sampler
from rl.models import load_model
from rl.rollout import EpisodeSpec, Progress, play


class Session:
    """A policy that can play (engine) and, if an algorithm is given, learn."""

    def __init__(
        self, model: str, dtype: str, rollout: RolloutParams, algorithm: Algorithm | None, seed: int, lora: LoraParams | None = None, temperature: float | None = None
    ) -> None:
        """Load the policy.

        Args:
            model: id or path.
            dtype: torch's name of it.
            rollout: limits and engine.
            algorithm: the learning rule, if it is to learn.
            seed: of what is drawn in learning.
            lora: the adapter, if only one is to learn.
            temperature: of the sampling that it learns from; needed where it is to learn.
        """
        if algorithm is not None and temperature is None:
            raise TrainingError("a session that learns needs the temperature of the sampling that it learns from")
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # torch's stubs; a debugging aid that costs a tenth of a step
        self.model, self.tokenizer = load_model(model, dtype)
        if lora is not None:
            add_adapter(self.model, lora, seed)
        self.model.eval()
        self.chat = ChatFormat(self.tokenizer)
        self.params = rollout
        self.engine = open_engine(self.model, rollout)
        copied = algorithm is not None and "reference" in algorithm.roles and lora is None
        reference = load_model(model, dtype)[0].eval().requires_grad_(False) if copied else None
        self._playing = threading.Lock()
        sampler = Sampler(exact=self.engine.shares_weights and dtype == "float32", staleness=rollout.ahead)
        self._learner = Learner(self.model, algorithm, rollout.prompts, temperature, seed, reference, sampler) if algorithm is not None and temperature is not None else None

    @property
    def learner(self) -> Learner:
        """The learner of a session that was opened with an algorithm."""
        if self._learner is None:
            raise TrainingError("this session was opened without an algorithm, to play only")
        return self._learner

    def hold(self) -> None:
        """Give the engine the policy as it is now."""
        with self._playing:
            self._sync()

    def _sync(self) -> None:
        self.model.eval()
        self.engine.sync(self.model, self._learner.policy_version if self._learner else 0)

    def rollout(self, specs: Sequence[EpisodeSpec], temperature: float, progress: Progress | None = None, *, held: bool = False) -> list[Trajectory]:
        """One rollout phase with a frozen policy: dropout off, no gradient. It is the policy of now, or `held`: that of the last `hold`, whatever is learned meanwhile."""
        with self._playing:
            if not held:
                self._sync()
            return asyncio.run(play(specs, self.engine, self.chat, self.params, temperature, progress))

    def learn(self, trajectories: Sequence[Trajectory], scores: Sequence[Scores], step: int, progress: Progress | None = None) -> dict[str, float]:
        """One training phase."""
        return self.learner.update(trajectories, scores, step, progress)

    def save(self, root: Path, step: int) -> Path:
        """Write checkpoint `step`."""
        return save_checkpoint(root, step, self.model, self.tokenizer, self.learner.state() | {"adapter": adapter_weights(self.model)})

    def restore(self, directory: Path) -> None:
        """Go on from a checkpoint: weights, optimizer and counters."""
        state = load_learner_state(directory)
        adapter = state["adapter"]
        weights = adapter or load_model(str(directory), str(self.model.dtype).removeprefix("torch."))[0].state_dict()
        self.model.load_state_dict(weights, strict=not adapter)  # beside an adapter stand the start weights
        self.learner.load_state(state)
