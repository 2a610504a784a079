"""A handover that travels: the same as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

import numpy as np
import torch
from transformers import PretrainedConfig

from rl.adapters import NamedTensors
from rl.errors import TrainingError
from rl.features import FeatureMaker
from rl.handover import Handover


@dataclass(frozen=True)
class _Packed:
    """A tensor as bytes, which a process beside this one reads without a copy."""

    data: np.ndarray  # uint8
    dtype: torch.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """A policy between two processes."""

    version: int  # of the policy
    name: str  # of this parcel; no other has it
    config: PretrainedConfig
    architecture: str  # name of the model's class
    unknown_ids: range  # rows of the head that are no tokens
    weights: Mapping[str, _Packed]  # by the names of a model without an adapter
    probe_ids: tuple[int, ...]  # a fixed sequence
    probe_logprobs: tuple[float, ...]  # of every token of it but the first, as the trainer computes it, nats
    feature_maker: FeatureMaker | None  # of what the player is told beside tokens

    def handover(self) -> Handover:
        """What an engine takes."""
        return Handover(
            version=self.version,
            model=None,
            config=self.config,
            architecture=self.architecture,
            unknown_ids=self.unknown_ids,
            weights=self._weights,
            identity=lambda: self.name,
            logprobs=self._logprobs,
        )

    def _weights(self) -> NamedTensors:
        for name, packed in self.weights.items():  # a copy of one at a time: the bytes may be somebody else's
            yield name, torch.from_numpy(packed.data.copy()).view(packed.dtype).reshape(packed.shape)

    def _logprobs(self, ids: Sequence[int]) -> torch.Tensor:
        if tuple(ids) != self.probe_ids:
            raise TrainingError(
                f"policy version {self.version} came with log-probabilities of another sequence than the engine probes"
            )
        return torch.tensor(self.probe_logprobs, dtype=torch.float32)


def packed(
    handover: Handover, probe_ids: Sequence[int], feature_maker: FeatureMaker | None = None, *, keep: bool
) -> Parcel | None:
    """A handover as plain data in the host's memory, a copy.

    Args:
        handover: of the policy.
        probe_ids: the sequence that engines will ask about.
        feature_maker: of the policy.
        keep: whether this process is to have it; else it only takes part, as every rank has to.
    """
    logprobs = handover.logprobs(probe_ids)
    weights = {name: _pack(value) for name, value in handover.weights() if keep}
    if not keep:
        return None
    return Parcel(
        version=handover.version,
        name=uuid4().hex,
        config=handover.config,
        architecture=handover.architecture,
        unknown_ids=handover.unknown_ids,
        weights=weights,
        probe_ids=tuple(probe_ids),
        probe_logprobs=tuple(logprobs.tolist()),
        feature_maker=feature_maker.alone(torch.device("cpu")) if feature_maker is not None else None,
    )


def _pack(value: torch.Tensor) -> _Packed:
    data = value.detach().cpu().reshape(-1).view(torch.uint8).numpy().copy()
    return _Packed(data, value.dtype, tuple(value.shape))
