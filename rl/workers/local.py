"""All roles in one process and on one device: the live policy, its learner and its engine, which shares their weights or
takes them over before each rollout.
"""

import copy
import threading
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import PreTrainedModel

from rl import stoppable
from rl.adapters import adapter_weights, add_adapter, load_merged
from rl.algorithms.adaptation import FoldParams
from rl.algorithms.base import Algorithm
from rl.chat import ChatFormat
from rl.checkpoint import load_learner_state, save_checkpoint
from rl.config import LoraParams, RolloutParams
from rl.engines.factory import open_engine
from rl.environment import EpisodeSpec, Seat
from rl.errors import TrainingError
from rl.experience import Scores, Trajectory
from rl.features import ADAPTATION, Predicted, load_adaptation
from rl.flex import prefer_rows, read_rows, reads_rows
from rl.folding import fold
from rl.handover import Handover, handover_of
from rl.learner import Learner, Sampler, policy_for
from rl.machine import Place
from rl.models import load_model, save_model
from rl.parts import POLICY
from rl.phases import Phases
from rl.policy import Policy
from rl.ranking import continuation_logprobs
from rl.ranks import load_weights
from rl.rollout import Progress, play
from rl.self_check import EXACT, refuse_disagreement


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
        if algorithm is not None and temperature is None:
            raise TrainingError("a session that learns needs the temperature of the sampling that it learns from")
        if place.device == "cpu":
            torch.use_deterministic_algorithms(True)
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # torch's stubs; a debugging aid that costs a tenth of a step
        self._source, self._place, self._lora, self._seed = model, place, lora, seed
        self._seat = seat
        self._weights = "float32" if algorithm is not None and lora is None else place.compute
        self.model, self.tokenizer = load_model(model, self._weights, place.device)
        if lora is not None:
            add_adapter(self.model, lora, seed)
        self.model.eval()
        if algorithm is not None:  # else it only plays and ranks
            prefer_rows(self.model, place.compute)
        self.chat = ChatFormat(self.tokenizer)
        self.params = rollout
        copied = self._weights != place.compute and rollout.engine.kind == "transformers"
        player = self._frozen() if copied else self.model
        self.engine = open_engine(rollout, player, copy=copied)
        # an engine with weights of its own has none yet, and is compared whenever it takes them
        shared = self.engine if self.engine.shares_weights else None
        error = refuse_disagreement(model, self.model, rollout, shared)
        self._exact = shared is not None and error <= EXACT
        self._algorithm = algorithm
        self._untaught = copy.deepcopy(algorithm.state()) if algorithm is not None else {}
        frozen = algorithm.frozen_roles if algorithm is not None and lora is None else ()
        self._roles = {role: self._frozen() for role in frozen}
        self._told = self._adaptation_of(Path(model))  # of a student that was loaded with one
        self._loaded = algorithm is None  # else the learner's own policy plays
        self._playing = threading.Lock()
        self._learner = (
            self._new_learner(algorithm, temperature) if algorithm is not None and temperature is not None else None
        )
        self._policy = self._learner.policy if self._learner is not None else Policy(self.model)
        self._phases = Phases(
            self.engine, self._handover, self.model.device, ahead=bool(rollout.ahead), offload=place.offload
        )

    def _frozen(self) -> PreTrainedModel:
        """What the policy begins as, once more, in the precision that computes; read as the policy is, so that the same
        weights give the same log-probabilities.
        """
        model = load_model(self._source, self._place.compute, self._place.device)[0].eval().requires_grad_(False)
        if reads_rows(self.model.get_decoder()):
            read_rows(model)
        return model

    def _adaptation_of(self, folder: Path) -> Predicted | None:
        """What predicts the features of the student in a folder; None of an ordinary model.

        Raises:
            TrainingError: it is to be trained, or played by an engine that takes no vectors.
        """
        if not (folder / ADAPTATION).is_dir():
            return None
        engine = self.params.engine.kind
        told = f"{folder} holds a student with soft tokens, which"
        if self._algorithm is not None and str(folder) == self._source:
            raise TrainingError(f"{told} cannot be trained further; export it with `fold` in recipes/ppo_roa.yaml")
        if engine != "transformers":
            raise TrainingError(
                f"{told} rollout.engine.kind {engine} cannot play; set it to transformers, or export with `fold` in recipes/ppo_roa.yaml"
            )
        return Predicted(load_adaptation(self.model, folder / ADAPTATION))

    def _new_learner(self, algorithm: Algorithm, temperature: float) -> Learner:
        return Learner(
            policy_for(self.model, algorithm, self._place.compute, self.chat, self._seed),
            algorithm,
            self.params.prompts,
            temperature,
            self._seed,
            self._roles,
            Sampler(exact=self._exact, staleness=self.params.ahead),
        )

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
        self._policy.player.eval()
        self._phases.play()

    def _handover(self) -> Handover:
        return handover_of(self._policy, self.policy_version)

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
            self._policy.play(self._acting() if to_learn else POLICY)
            if not held:
                self._sync()
            feature = self._told if self._loaded else self._policy.feature()
            return stoppable.run(
                play(specs, self._seat, self.engine, self.chat, self.params, temperature, progress, feature)
            )

    def _acting(self) -> str:
        """The part that plays what is learned from."""
        return self._algorithm.passes(self.policy_version)[0].parts[0] if self._algorithm is not None else POLICY

    @property
    def ranks(self) -> bool:
        """Whether `rank` says what it would say in a dialogue."""
        self._policy.play(POLICY)
        return (self._told if self._loaded else self._policy.feature()) is None

    def rank(self, prefixes: Sequence[Sequence[int]], candidates: Sequence[Sequence[int]]) -> torch.Tensor:
        """Log-probability of each candidate after each prefix, float32 (P, C), nats at temperature 1."""
        self._policy.play(POLICY)
        self.model.eval()
        return continuation_logprobs(self._policy, prefixes, candidates)

    def learn(
        self, trajectories: Sequence[Trajectory], scores: Sequence[Scores], step: int, progress: Progress | None = None
    ) -> dict[str, float]:
        """One training phase."""
        with self._phases.learning(self.learner):
            return self.learner.update(trajectories, scores, step, progress)

    def save(self, root: Path, step: int) -> Path:
        """Write checkpoint `step`."""
        return save_checkpoint(
            root,
            step,
            self.model,
            self.tokenizer,
            self.learner.state() | {"adapter": adapter_weights(self.model)},
            self._policy.adaptation,
        )

    def restore(self, directory: Path) -> None:
        """Go on from a checkpoint: weights, optimizer and counters."""
        state = load_learner_state(directory)
        adapter = state["adapter"]
        # beside an adapter stand the start weights
        load_weights(self.model, adapter or load_model(str(directory), self._weights)[0].state_dict())
        self.learner.load_state(state)

    def reset(self) -> None:
        """Go back to the weights and the learner that it was opened with."""
        fresh = load_model(self._source, self._weights)[0]
        if self._lora is not None:
            add_adapter(fresh, self._lora, self._seed)
        load_weights(self.model, fresh.state_dict())
        if self._algorithm is not None:
            self._algorithm.load_state(copy.deepcopy(self._untaught))
            self.learner.reset()

    def load(self, directory: Path) -> None:
        """Play with the model saved there from now on; an adapter is part of it and adds nothing any more."""
        load_merged(self.model, load_model(str(directory), self._weights)[0].state_dict())
        self._told, self._loaded = self._adaptation_of(directory), True

    def fold(
        self, trajectories: Sequence[Trajectory], params: FoldParams, temperature: float, directory: Path
    ) -> dict[str, float]:
        """Teach a copy of the student that was loaded to act without soft tokens, and write it."""
        if self._told is None:
            raise TrainingError("this session plays no student with soft tokens, so that there is nothing to fold")
        model, metrics = fold(self.model, self._told.module, trajectories, params, temperature, self._seed)
        save_model(model, self.tokenizer, directory)
        return metrics
