"""Who learns: the live policy with its critic and learner, one rank of several. A plain class; it knows nothing of how it is
reached.
"""

import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import PreTrainedModel

from rl.adapters import adapter_weights, add_adapter, load_merged
from rl.algorithms.adaptation import FoldParams
from rl.chat import ChatFormat
from rl.checkpoint import load_learner_state, save_checkpoint
from rl.config import Sharding
from rl.engines.base import Engine
from rl.engines.logprob_check import probe_ids
from rl.errors import TrainingError
from rl.experience import Scores, Trajectory
from rl.features import ADAPTATION, AdaptModule, FeatureMaker, load_adaptation
from rl.flex import prefer_rows, read_rows, reads_rows
from rl.folding import fold
from rl.handover import Handover, handover_of
from rl.learner import Learner, Sampler
from rl.machine import compute_alike
from rl.models import load_model, save_model
from rl.parts import POLICY
from rl.policies import policy_for
from rl.policy import Policy
from rl.ranking import continuation_logprobs
from rl.ranks import ALONE, Ranks, join, load_weights, whole_tree
from rl.rollout import Progress
from rl.self_check import refuse_disagreement
from rl.workers.parcel import Parcel, packed
from rl.workers.roles import Opening

Meeting = tuple[str, int]
"""Host and port of where ranks find each other."""


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
        state = load_learner_state(directory)
        adapter = state["adapter"]
        if adapter and self._loaded:  # another model's weights stand beside it; else those of the start do
            load_merged(self.model, load_model(self._opening.model, self._opening.weights)[0].state_dict())
        load_weights(self.model, adapter or load_model(str(directory), self._opening.weights)[0].state_dict())
        self.learner.load_state(state)
        self._loaded = False

    def reset(self) -> None:
        """Go back to the weights and the learner that it was opened with."""
        opening = self._opening
        self._adapt, self._loaded = self._adaptation_of(Path(opening.model)), opening.algorithm is None
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
