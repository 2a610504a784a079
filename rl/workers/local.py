"""All roles in one process: the live policy, its learner and its engine, which shares their weights or takes them over
before each rollout.
"""

import asyncio
import copy
import threading
from collections.abc import Sequence
from pathlib import Path

import torch

from rl.adapters import adapter_weights, add_adapter, load_merged
from rl.algorithms.base import Algorithm
from rl.chat import ChatFormat
from rl.checkpoint import load_learner_state, save_checkpoint
from rl.config import LoraParams, RolloutParams
from rl.engines.factory import open_engine
from rl.errors import TrainingError
from rl.experience import Scores, Trajectory
from rl.learner import Learner, Sampler
from rl.models import load_model
from rl.ranking import continuation_logprobs
from rl.rollout import EpisodeSpec, Progress, play
from rl.self_check import EXACT, refuse_disagreement


class LocalSession:
    """A `Session` in this process. `model`, `tokenizer` and `engine` are its own; others ask it."""

    def __init__(
        self,
        model: str,
        dtype: str,
        rollout: RolloutParams,
        algorithm: Algorithm | None,
        seed: int,
        lora: LoraParams | None = None,
        temperature: float | None = None,
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
        self._source, self._dtype, self._lora, self._seed = model, dtype, lora, seed
        self.model, self.tokenizer = load_model(model, dtype)
        if lora is not None:
            add_adapter(self.model, lora, seed)
        self.model.eval()
        self.chat = ChatFormat(self.tokenizer)
        self.params = rollout
        self.engine = open_engine(self.model, rollout)
        # an engine with weights of its own has none yet, and is compared at each sync
        shared = self.engine if self.engine.shares_weights else None
        error = refuse_disagreement(model, self.model, rollout, shared)
        self._exact = shared is not None and error <= EXACT
        self._algorithm = algorithm
        self._untaught = copy.deepcopy(algorithm.state()) if algorithm is not None else {}
        copied = algorithm is not None and "reference" in algorithm.roles and lora is None
        self._reference = load_model(model, dtype)[0].eval().requires_grad_(False) if copied else None
        self._playing = threading.Lock()
        self._learner = (
            self._new_learner(algorithm, temperature) if algorithm is not None and temperature is not None else None
        )

    def _new_learner(self, algorithm: Algorithm, temperature: float) -> Learner:
        sampler = Sampler(exact=self._exact, staleness=self.params.ahead)
        return Learner(self.model, algorithm, self.params.prompts, temperature, self._seed, self._reference, sampler)

    @property
    def learner(self) -> Learner:
        """The learner of a session that was opened with an algorithm."""
        if self._learner is None:
            raise TrainingError("this session was opened without an algorithm, to play only")
        return self._learner

    @property
    def policy_version(self) -> int:
        """Training phases that the policy has been through."""
        return self._learner.policy_version if self._learner is not None else 0

    def hold(self) -> None:
        """Give the engine the policy as it is now."""
        with self._playing:
            self._sync()

    def _sync(self) -> None:
        self.model.eval()
        self.engine.sync(self.model, self.policy_version)

    def rollout(
        self, specs: Sequence[EpisodeSpec], temperature: float, progress: Progress | None = None, *, held: bool = False
    ) -> list[Trajectory]:
        """One rollout phase with a frozen policy: dropout off, no gradient.

        It is the policy of now, or `held`: that of the last `hold`, whatever is learned meanwhile.
        """
        with self._playing:
            if not held:
                self._sync()
            return asyncio.run(play(specs, self.engine, self.chat, self.params, temperature, progress))

    def rank(self, prefixes: Sequence[Sequence[int]], candidates: Sequence[Sequence[int]]) -> torch.Tensor:
        """Log-probability of each candidate after each prefix, float32 (P, C), nats at temperature 1."""
        return continuation_logprobs(self.model.eval(), prefixes, candidates)

    def learn(
        self, trajectories: Sequence[Trajectory], scores: Sequence[Scores], step: int, progress: Progress | None = None
    ) -> dict[str, float]:
        """One training phase."""
        return self.learner.update(trajectories, scores, step, progress)

    def save(self, root: Path, step: int) -> Path:
        """Write checkpoint `step`."""
        return save_checkpoint(
            root, step, self.model, self.tokenizer, self.learner.state() | {"adapter": adapter_weights(self.model)}
        )

    def restore(self, directory: Path) -> None:
        """Go on from a checkpoint: weights, optimizer and counters."""
        state = load_learner_state(directory)
        adapter = state["adapter"]
        weights = adapter or load_model(str(directory), self._dtype)[0].state_dict()
        self.model.load_state_dict(weights, strict=not adapter)  # beside an adapter stand the start weights
        self.learner.load_state(state)

    def reset(self) -> None:
        """Go back to the weights and the learner that it was opened with."""
        fresh = load_model(self._source, self._dtype)[0]
        if self._lora is not None:
            add_adapter(fresh, self._lora, self._seed)
        self.model.load_state_dict(fresh.state_dict())
        if self._algorithm is not None:
            self._algorithm.load_state(copy.deepcopy(self._untaught))
            self._learner = self._new_learner(self._algorithm, self.learner.temperature)

    def load(self, directory: Path) -> None:
        """Play with the model saved there from now on; an adapter is part of it and adds nothing any more."""
        load_merged(self.model, load_model(str(directory), self._dtype)[0].state_dict())
