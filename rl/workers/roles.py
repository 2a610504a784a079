"""What processes are made of: who learns, and who plays. Plain classes; they know nothing of how they are reached."""

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import torch
from transformers import PreTrainedModel

from rl import stoppable
from rl.adapters import adapter_weights, add_adapter, load_merged
from rl.algorithms.adaptation import FoldParams
from rl.algorithms.base import Algorithm
from rl.chat import ChatFormat
from rl.checkpoint import load_learner_state, save_checkpoint
from rl.config import LoraParams, RolloutParams, Sharding, TransformersParams
from rl.engines.base import Engine
from rl.engines.factory import open_engine
from rl.engines.logprob_check import probe_ids
from rl.environment import EpisodeSpec, Seat
from rl.errors import TrainingError
from rl.experience import Scores, Trajectory
from rl.features import ADAPTATION, AdaptModule, FeatureMaker, load_adaptation
from rl.flex import prefer_rows, read_rows, reads_rows
from rl.folding import fold
from rl.handover import Handover, handover_of
from rl.learner import Learner, Sampler
from rl.machine import Place, compute_alike
from rl.models import load_model, load_tokenizer, save_model
from rl.parts import POLICY
from rl.policies import policy_for
from rl.policy import Policy
from rl.ranking import continuation_logprobs
from rl.ranks import ALONE, Ranks, join, load_weights, whole_tree
from rl.rollout import Progress, play
from rl.self_check import EXACT, refuse_disagreement
from rl.workers.parcel import Parcel, packed

Generate = Callable[[Sequence[Mapping[str, str]]], Awaitable[str]]
"""A language model: messages in, one reply's text out."""
OpenSeat = Callable[[Generate | None], Seat]
"""Makes the seat in the process that plays, given who plays patients elsewhere, if anybody does; travels there itself, so it
is a function by name, or a partial of one."""
OpenModel = Callable[[], Generate]
"""Loads a language model in the process that answers with it; travels as well."""
Meeting = tuple[str, int]
"""Host and port of where ranks find each other."""


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What a session is opened with; plain data, the same for all its workers."""

    model: str  # id or path
    place: Place  # where a model lies and how it computes
    rollout: RolloutParams  # limits and engine
    algorithm: Algorithm | None  # the learning rule, if it is to learn
    seed: int  # of what is drawn in learning
    lora: LoraParams | None  # the adapter, if only one is to learn
    temperature: float | None  # of the sampling that it learns from; needed where it is to learn

    @property
    def weights(self) -> str:
        """Precision of the weights: float32 if all of them are trained, whatever computes."""
        return "float32" if self.algorithm is not None and self.lora is None else self.place.compute

    def acting(self, policy_version: int) -> str:
        """The part that plays what is learned from."""
        return self.algorithm.player(policy_version) if self.algorithm is not None else POLICY

    def frozen(self) -> PreTrainedModel:
        """What the policy begins as, once more, in the precision that computes."""
        return load_model(self.model, self.place.compute, self.place.device)[0].eval().requires_grad_(False)


class TrainerWorker:
    """The live policy, its critic, the models that it is compared with, and their learner; of several, one rank."""

    def __init__(self, opening: Opening, ranks: Ranks = ALONE) -> None:
        """Load the policy; `teach` makes the learner.

        Args:
            opening: what the session is opened with.
            ranks: that learn together.
        """
        if opening.algorithm is not None and opening.temperature is None:
            raise TrainingError("a session that learns needs the temperature of the sampling that it learns from")
        compute_alike(opening.place.device)
        self._opening, self._ranks = opening, ranks
        self.model, self.tokenizer = load_model(opening.model, opening.weights, opening.place.device)
        if opening.lora is not None:
            add_adapter(self.model, opening.lora, opening.seed)
        self.model.eval()
        if opening.algorithm is not None:  # else it only plays and ranks
            prefer_rows(self.model, opening.place.compute)
        self.policy = Policy(self.model)
        self._adapt = self._adaptation_of(Path(opening.model))  # of a student that was loaded with one
        self._loaded = opening.algorithm is None  # else the learner's own policy plays
        self._learner: Learner | None = None
        self._untaught = copy.deepcopy(opening.algorithm.state()) if opening.algorithm is not None else {}

    def _adaptation_of(self, folder: Path) -> AdaptModule | None:
        """What predicts the features of the student in a folder; None of an ordinary model.

        Raises:
            TrainingError: it is to be trained, or played by an engine that takes no vectors.
        """
        if not (folder / ADAPTATION).is_dir():
            return None
        engine = self._opening.rollout.engine.kind
        told = f"{folder} holds a student with soft tokens, which"
        if self._opening.algorithm is not None and str(folder) == self._opening.model:
            raise TrainingError(f"{told} cannot be trained further; export it with `fold` in recipes/ppo_roa.yaml")
        if engine != "transformers":
            raise TrainingError(
                f"{told} rollout.engine.kind {engine} cannot play; set it to transformers, or export with `fold` in recipes/ppo_roa.yaml"
            )
        return load_adaptation(self.model, folder / ADAPTATION)

    def play(self, part: str, privileged: Sequence[object] = ()) -> None:
        """Let a part of the policy be who plays, and meet the episodes that are about to be learned from."""
        self.policy.play(part)
        if privileged:
            self.policy.meet(privileged)

    @property
    def feature_maker(self) -> FeatureMaker | None:
        """Makes what whoever plays is told beside tokens."""
        return self._adapt if self._loaded else self.policy.feature_maker

    def can_rank(self) -> bool:
        """Whether `rank` says what the policy would say in a dialogue."""
        self.policy.play(POLICY)
        return self.feature_maker is None

    def alike(self) -> PreTrainedModel:
        """What the policy begins as, read as the policy is, so that the same weights give the same
        log-probabilities.
        """
        model = self._opening.frozen()
        if reads_rows(self.model.get_decoder()):
            read_rows(model)
        return model

    def check(self, engine: Engine | None = None) -> float:
        """How far an engine that plays with its weights, or one made for it, is from the trainer, nats.

        Raises:
            TrainingError: too far.
        """
        return refuse_disagreement(self._opening.model, self.model, self._opening.rollout, engine)

    def teach(self, *, exact: bool) -> None:
        """Make the learner, if there is an algorithm.

        Args:
            exact: see `rl.learner.Sampler`.
        """
        opening, algorithm = self._opening, self._opening.algorithm
        if algorithm is None or opening.temperature is None:
            return
        roles = algorithm.frozen_roles if opening.lora is None else ()
        self._learner = Learner(
            policy_for(
                self.model, algorithm, opening.place.compute, self._ranks, ChatFormat(self.tokenizer), opening.seed
            ),
            algorithm,
            opening.rollout.prompts,
            opening.temperature,
            opening.seed,
            {role: self.alike() for role in roles},
            Sampler(exact=exact, staleness=opening.rollout.ahead),
            self._ranks,
        )
        self.policy = self._learner.policy

    @property
    def learner(self) -> Learner:
        """The learner of a session that was opened with an algorithm."""
        if self._learner is None:
            raise TrainingError("this session was opened without an algorithm, to play only")
        return self._learner

    def version(self) -> int:
        """Training phases that the policy has been through."""
        return self._learner.policy_version if self._learner is not None else 0

    def handover(self) -> Handover:
        """Of the policy as it is now, for an engine in this process."""
        return handover_of(self.policy, self.version())

    def pack(self, part: str = POLICY, privileged: Sequence[object] = ()) -> Parcel | None:
        """A part of the policy as it is now (see `play`), for engines in other processes; rank 0 gives it, the others
        help.
        """
        self.play(part, privileged)
        self.policy.player.eval()
        ids = probe_ids(self.model.config, self._opening.rollout.max_episode_tokens)
        return packed(self.handover(), ids, self.feature_maker, keep=self._ranks.rank == 0)

    def rank(self, prefixes: Sequence[Sequence[int]], candidates: Sequence[Sequence[int]]) -> torch.Tensor:
        """Log-probability of each candidate after each prefix, float32 (P, C), nats at temperature 1."""
        self.play(POLICY)
        self.model.eval()
        return continuation_logprobs(self.policy, prefixes, candidates)

    def learn(
        self, trajectories: Sequence[Trajectory], scores: Sequence[Scores], step: int, progress: Progress | None = None
    ) -> dict[str, float]:
        """One training phase; returns its metrics, the same on all ranks."""
        return self.learner.update(trajectories, scores, step, progress)

    def save(self, root: Path, step: int) -> Path:
        """Write checkpoint `step`: rank 0 does, with what the others hold."""
        state = self.learner.state() | {"adapter": whole_tree(adapter_weights(self.model))}
        writes = self._ranks.rank == 0
        return save_checkpoint(root, step, self.model, self.tokenizer, state, self.policy.adaptation, writes=writes)

    def restore(self, directory: Path) -> None:
        """Go on from a checkpoint, saved by however many ranks: weights, optimizer and counters."""
        self._loaded = False
        state = load_learner_state(directory)
        adapter = state["adapter"]
        # beside an adapter stand the start weights
        load_weights(self.model, adapter or load_model(str(directory), self._opening.weights)[0].state_dict())
        self.learner.load_state(state)

    def reset(self) -> None:
        """Go back to the weights and the learner that it was opened with."""
        opening = self._opening
        self._loaded = opening.algorithm is None
        fresh = load_model(opening.model, opening.weights)[0]
        if opening.lora is not None:
            add_adapter(fresh, opening.lora, opening.seed)
        load_weights(self.model, fresh.state_dict())
        if opening.algorithm is not None:
            opening.algorithm.load_state(copy.deepcopy(self._untaught))
            self.learner.reset()

    def load(self, directory: Path) -> None:
        """Play with the model saved there from now on; an adapter is part of it and adds nothing any more."""
        load_merged(self.model, load_model(str(directory), self._opening.weights)[0].state_dict())
        self._adapt, self._loaded = self._adaptation_of(directory), True

    def fold(
        self, trajectories: Sequence[Trajectory], params: FoldParams, temperature: float, directory: Path
    ) -> dict[str, float]:
        """Teach a copy of the student that was loaded to act without soft tokens; every rank does, rank 0 writes it."""
        if self._adapt is None:
            raise TrainingError("this session plays no student with soft tokens, so that there is nothing to fold")
        opening = self._opening
        model, metrics = fold(self.model, self._adapt, trajectories, params, temperature, opening.seed, opening.lora)
        if self._ranks.rank == 0:
            save_model(model, self.tokenizer, directory)
        return metrics


def open_trainer(
    opening: Opening, exact: bool, sharding: Sharding, timeout_s: float, rank: int, size: int, met: Meeting | None
) -> TrainerWorker:
    """A trainer that is ready to learn; of several, the others have to be opened meanwhile.

    Args:
        opening: what the session is opened with.
        exact: see `rl.learner.Sampler`.
        sharding: see `rl.ranks.Ranks`.
        timeout_s: how long one waits for the others, at most.
        rank: of this one.
        size: how many there are.
        met: where they find each other; needed for several.
    """
    device = opening.place.device
    ranks = join(*met, rank, size, device, timeout_s, sharding) if met is not None and size > 1 else ALONE
    trainer = TrainerWorker(opening, ranks)
    trainer.check()
    trainer.teach(exact=exact)
    return trainer


class RolloutWorker:
    """Plays episodes with an engine whose weights are its own; every policy comes as a parcel."""

    def __init__(self, opening: Opening, open_seat: OpenSeat, patient: Generate | None = None) -> None:
        """Load what the engine begins with.

        Args:
            opening: what the session is opened with.
            open_seat: makes the seat; called here, once.
            patient: who plays patients elsewhere.

        Raises:
            TrainingError: the engine and the model do not agree.
        """
        compute_alike(opening.place.device)
        self._opening, self._seat = opening, open_seat(patient)
        self._feature_maker: FeatureMaker | None = None
        self._played = 0
        self._chat = ChatFormat(load_tokenizer(opening.model))
        own = isinstance(opening.rollout.engine, TransformersParams)
        model = opening.frozen() if own else None
        if model is not None and opening.algorithm is not None:
            prefer_rows(model, opening.place.compute)
        self.engine = open_engine(opening.rollout, model, copy=True)
        # an engine of another kind has no weights yet, and is compared whenever it takes them
        error = refuse_disagreement(opening.model, model, opening.rollout, self.engine) if model is not None else inf
        same = opening.weights == opening.place.compute and opening.lora is None and not opening.rollout.ahead
        self._exact = same and error <= EXACT

    def exact(self) -> bool:
        """Whether its log-probabilities are the trainer's: of the same weights, in the same precision and arithmetic."""
        return self._exact

    def take(self, parcel: Parcel) -> tuple[int, float]:
        """Play with this policy from now on; returns its version, and how far the log-probabilities of a fixed sequence
        are from the trainer's, nats.

        Raises:
            TrainingError: too far.
        """
        self.engine.take(parcel.handover())
        maker, device = parcel.feature_maker, torch.device(self._opening.place.device)
        self._feature_maker = maker.alone(device) if maker is not None else None
        return self.engine.policy_version, self.engine.probe_error

    def play(self, specs: Sequence[EpisodeSpec], temperature: float) -> list[Trajectory]:
        """Play episodes with the policy of the last parcel; see `rl.rollout.play`."""
        feature = self._feature_maker.feature(self._chat) if self._feature_maker is not None else None
        self._played, rollout = 0, self._opening.rollout
        return stoppable.run(
            play(specs, self._seat, self.engine, self._chat, rollout, temperature, self._count, feature)
        )

    def _count(self, played: int, _: int) -> None:
        self._played = played

    def played(self) -> int:
        """Episodes of its share that are over."""
        return self._played


def open_player(opening: Opening, open_seat: OpenSeat, patient: Generate | None, *_: object) -> RolloutWorker:
    """A rollout worker; which of them it is changes nothing."""
    return RolloutWorker(opening, open_seat, patient)


class ModelWorker:
    """A frozen language model that many ask, a patient; it remembers nothing, so that a fresh one says the same."""

    def __init__(self, open_model: OpenModel) -> None:
        """Load it."""
        self._generate = open_model()

    async def generate(self, messages: Sequence[Mapping[str, str]]) -> str:
        """One reply's text; those that are asked for together are made together."""
        return await self._generate(messages)
