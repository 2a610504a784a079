"""What processes are made of: with what they are opened, who plays, and who answers. Plain classes; they know nothing of how they
are reached.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import torch
from transformers import PreTrainedModel

from rl import stoppable
from rl.algorithms.base import Algorithm
from rl.chat import ChatFormat
from rl.config import LoraParams, RolloutParams, TransformersParams
from rl.engines.factory import open_engine
from rl.environment import EpisodeSpec, Seat
from rl.experience import Trajectory
from rl.features import FeatureMaker
from rl.flex import prefer_rows
from rl.machine import Place, compute_alike
from rl.models import load_model, load_tokenizer
from rl.parts import POLICY
from rl.rollout import play
from rl.self_check import EXACT, refuse_disagreement
from rl.workers.parcel import Parcel

Generate = Callable[[Sequence[Mapping[str, str]]], Awaitable[str]]
"""A language model: messages in, one reply's text out."""
OpenSeat = Callable[[Generate | None], Seat]
"""Makes the seat in the process that plays, given who plays patients elsewhere, if anybody does; travels there itself, so it
is a function by name, or a partial of one."""
OpenModel = Callable[[], Generate]
"""Loads a language model in the process that answers with it; travels as well."""


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

    def __init__(self, open_model: OpenModel, device: str) -> None:
        """Load it.

        Args:
            open_model: does.
            device: where whoever asks computes; the same arithmetic holds for both.
        """
        compute_alike(device)
        self._generate = open_model()

    async def generate(self, messages: Sequence[Mapping[str, str]]) -> str:
        """One reply's text; those that are asked for together are made together."""
        return await self._generate(messages)
