"""Soft tokens: vectors that a policy reads before what is new at every turn, in places that carry no loss.

A trajectory holds placeholders there, tokens of mask 0, so that positions, credit and records stay what they are. Where
they lie follows from the turns alone; what their ids are does not matter.

Shapes: K turns, M soft tokens a turn, F = K M, W width of an embedding, S sequences.
"""

import asyncio
import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from rl.adapters import adapter_off, without_adapters
from rl.batching import MicroBatch, hidden_states, micro_batches
from rl.chat import ChatFormat
from rl.environment import EpisodeSpec
from rl.errors import TrainingError, first_line
from rl.experience import Trajectory
from rl.packing import SoftTokens

ADAPTATION = "adaptation"  # the folder beside a student's weights
CONFIG, WEIGHTS = "config.json", "model.safetensors"  # in it
TOKENS_AT_ONCE = 16384  # padded, of dialogues whose features are predicted together
START_SCALE = 0.1  # of a head's first weights: a feature begins as the placeholder's embedding, near enough


class Feature(Protocol):
    """What whoever plays is told beside tokens, for one rollout. Asked by `rl.rollout` before every turn."""

    @property
    def tokens(self) -> int:
        """M."""
        ...

    @property
    def placeholder(self) -> int:
        """Id that stands in a trajectory where the vectors were read."""
        ...

    async def __call__(self, spec: EpisodeSpec, dialogue: Sequence[int]) -> torch.Tensor:
        """The vectors (M, W) for the turn that follows the dialogue, given as tokens without placeholders."""
        ...


class FeatureMaker(Protocol):
    """A module that makes features, and can travel to where they are played with."""

    def feature(self, chat: ChatFormat) -> Feature:
        """For one rollout, in which its weights stay what they are."""
        ...

    def alone(self, device: torch.device) -> "FeatureMaker":
        """A copy there with all that it needs, which shares nothing with whoever learns."""
        ...


def soft_places(trajectory: Trajectory, tokens: int) -> list[int]:
    """Places of the placeholders: `tokens` of them before what was new at each turn."""
    begins = [0, *(end for _, end in trajectory.turns)][: len(trajectory.turns)]
    return [place for begin in begins for place in range(begin, begin + tokens)]


def dialogue_of(trajectory: Trajectory, tokens: int) -> tuple[list[int], list[int]]:
    """The tokens without placeholders, and where among them each turn begins."""
    soft = set(soft_places(trajectory, tokens))
    ids = [token for place, token in enumerate(trajectory.token_ids) if place not in soft]
    return ids, [start - tokens * (turn + 1) for turn, (start, _) in enumerate(trajectory.turns)]


def dialogues(trajectories: Sequence[Trajectory], tokens: int, budget: int) -> list[MicroBatch]:
    """Dialogues in micro-batches, with one position for each turn: its source is where the turn is predicted from.

    Args:
        trajectories: with a turn each.
        tokens: M.
        budget: padded tokens of a micro-batch; 0: all are one, in their order.
    """
    ids, starts = zip(*(dialogue_of(trajectory, tokens) for trajectory in trajectories), strict=True)
    masks = [
        [int(place in begun) for place in range(len(row))] for row, begun in zip(ids, map(set, starts), strict=True)
    ]
    if budget:
        return list(micro_batches(ids, masks, budget))
    return list(micro_batches(ids, masks, 1, None, [range(len(ids))]))


def with_vectors(batch: MicroBatch, place_F: torch.Tensor, vector_KMW: torch.Tensor) -> MicroBatch:
    """A micro-batch that reads these vectors."""
    return replace(batch, soft=SoftTokens(place_F, vector_KMW.flatten(0, 1)))


class FeatureHead(torch.nn.Module):
    """Makes soft tokens as long as a token's embedding is: a decoder normalises what it reads, so that a feature could
    otherwise be small, near to any prediction, and tell as much.
    """

    scale: torch.Tensor  # root of the mean square of an embedding's numbers
    start_W: torch.Tensor  # of unit mean square

    def __init__(self, model: PreTrainedModel, placeholder: int, tokens: int, width: int) -> None:
        """Begins near the placeholder's own embedding, whatever it reads.

        Args:
            model: the policy.
            placeholder: whose embedding it begins as.
            tokens: M.
            width: of what it reads.
        """
        super().__init__()
        table_VW = model.get_input_embeddings().weight.detach().float()
        start_W = table_VW[placeholder]
        self.register_buffer("scale", table_VW.square().mean().sqrt())
        self.register_buffer("start_W", torch.nn.functional.rms_norm(start_W, start_W.shape))
        self.linear = torch.nn.Linear(width, max(tokens, 1) * len(start_W), device=model.device)
        with torch.no_grad():
            self.linear.weight *= START_SCALE
            self.linear.bias.zero_()

    def forward(self, hidden_KX: torch.Tensor) -> torch.Tensor:
        """Vectors (K, M, W), float32."""
        moved_KMW = self.start_W + self.linear(hidden_KX.float()).unflatten(-1, (-1, len(self.start_W)))
        unit_KMW = torch.nn.functional.rms_norm(moved_KMW, moved_KMW.shape[-1:])
        vector_KMW: torch.Tensor = self.scale * unit_KMW
        return vector_KMW


class AdaptModule(torch.nn.Module):
    """Dialogue -> feature: the first layers of the policy, begun as its copy, and a head. It sees nothing else."""

    def __init__(self, model: PreTrainedModel, placeholder: int, tokens: int, layers: int) -> None:
        """Copy the layers.

        Args:
            model: the policy.
            placeholder: id in the place of soft tokens.
            tokens: M.
            layers: how many of the policy's.
        """
        super().__init__()
        self.tokens, self.placeholder = tokens, placeholder
        self.layers = layers
        self.trunk = first_layers(without_adapters(model.get_decoder()), layers)
        self.head = FeatureHead(model, placeholder, tokens, model.get_input_embeddings().weight.shape[1])

    def forward(self, dialogue: MicroBatch) -> torch.Tensor:
        """Predictions (K, M, W) for the turns of `dialogues`."""
        hidden_BTW = self.read(dialogue)
        predicted_KMW: torch.Tensor = self.head(hidden_BTW[dialogue.row_N, dialogue.source_N])
        return predicted_KMW

    def read(self, dialogue: MicroBatch) -> torch.Tensor:
        """Last hidden states of its layers."""
        return hidden_states(self.trunk, dialogue, everywhere=False)

    def feature(self, chat: ChatFormat) -> Feature:  # noqa: ARG002  it reads tokens
        """See `FeatureMaker`."""
        return Predicted(self)

    def alone(self, device: torch.device) -> "AdaptModule":
        """See `FeatureMaker`."""
        return copy.deepcopy(self).to(device).eval().requires_grad_(False)


class AdaptHead(AdaptModule):
    """The same beside adapters: its layers are the frozen base's own, and its head alone is learned."""

    def __init__(self, model: PreTrainedModel, placeholder: int, tokens: int, layers: int) -> None:
        """See `AdaptModule`; nothing is copied."""
        torch.nn.Module.__init__(self)
        self.tokens, self.placeholder, self.layers = tokens, placeholder, layers
        decoder: Any = copy.copy(model.get_decoder())
        # the model's own stays whole; the configuration is one, since how layers attend is switched there
        decoder._modules = decoder._modules | {"layers": decoder.layers[:layers]}
        self._base, self._trunk = (model,), (decoder,)  # in tuples, so that they are no parts of it
        self.head = FeatureHead(model, placeholder, tokens, model.get_input_embeddings().weight.shape[1])

    def read(self, dialogue: MicroBatch) -> torch.Tensor:
        """See `AdaptModule`."""
        with torch.no_grad(), adapter_off(self._base[0]):
            return hidden_states(self._trunk[0], dialogue, everywhere=False)

    def alone(self, device: torch.device) -> AdaptModule:
        """With layers of its own, copies of the base's."""
        found = AdaptModule.__new__(AdaptModule)
        torch.nn.Module.__init__(found)
        found.tokens, found.placeholder, found.layers = self.tokens, self.placeholder, self.layers
        found.trunk, found.head = without_adapters(self._trunk[0]), copy.deepcopy(self.head)
        return found.to(device).eval().requires_grad_(False)


def first_layers(decoder: Any, layers: int) -> torch.nn.Module:
    """End a decoder, in place, after so many layers, its last norm included."""
    decoder.layers = decoder.layers[:layers]
    decoder.config.num_hidden_layers = len(decoder.layers)
    if getattr(decoder.config, "layer_types", None):
        decoder.config.layer_types = decoder.config.layer_types[: len(decoder.layers)]
    return decoder  # type: ignore[no-any-return]  # a decoder


def save_adaptation(module: AdaptModule, directory: Path) -> None:
    """Write what predicts a student's features into a new folder."""
    directory.mkdir()
    shape = {"tokens": module.tokens, "placeholder": module.placeholder, "layers": module.layers}
    (directory / CONFIG).write_text(json.dumps(shape, indent=1))
    weights = module.alone(torch.device("cpu")).state_dict()
    save_file({name: value.contiguous() for name, value in weights.items()}, directory / WEIGHTS)


def load_adaptation(model: PreTrainedModel, directory: Path) -> AdaptModule:
    """Read it back, beside the student that was saved with it.

    Raises:
        TrainingError: it is damaged, or of another model.
    """
    try:
        shape = json.loads((directory / CONFIG).read_text())
        module = AdaptModule(model, shape["placeholder"], shape["tokens"], shape["layers"])
        module.load_state_dict(load_file(directory / WEIGHTS))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise TrainingError(
            f"{directory} is damaged or of another model ({first_line(error)}); restore it or run the stage that made it again"
        ) from error
    return module.to(model.device).eval().requires_grad_(False)


@dataclass(frozen=True)
class Predicted:
    """The feature of a student: predicted from the dialogue alone. For one rollout; turns that begin together are predicted
    together.
    """

    module: AdaptModule
    waiting: dict[tuple[int, ...], asyncio.Future[torch.Tensor]] = field(default_factory=dict)  # by their dialogue

    @property
    def tokens(self) -> int:
        """M."""
        return self.module.tokens

    @property
    def placeholder(self) -> int:
        """Id in the place of soft tokens."""
        return self.module.placeholder

    async def __call__(self, spec: EpisodeSpec, dialogue: Sequence[int]) -> torch.Tensor:  # noqa: ARG002  it is told no case
        """See `Feature`. All who ask before the event loop comes round again are answered at once."""
        loop, said = asyncio.get_running_loop(), tuple(dialogue)
        if not self.waiting:
            loop.call_soon(self._answer)
        if said not in self.waiting:  # siblings begin alike
            self.waiting[said] = loop.create_future()
        return await asyncio.shield(self.waiting[said])

    def _answer(self) -> None:
        asked, answers = zip(*self.waiting.items(), strict=True)
        self.waiting.clear()
        try:
            found = self.predicted(asked)
        except Exception as error:  # noqa: BLE001  whoever waits raises it
            for answer in answers:
                answer.set_exception(error)
        else:
            for answer, vector_MW in zip(answers, found, strict=True):
                answer.set_result(vector_MW)

    @torch.no_grad()
    def predicted(self, asked: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """The vectors (M, W) for the turn that follows each dialogue."""
        rows, masks = [[*said, 0] for said in asked], [[0] * len(said) + [1] for said in asked]
        found: dict[int, torch.Tensor] = {}
        for batch in micro_batches(rows, masks, TOKENS_AT_ONCE):
            found |= zip(batch.index, self.module(batch), strict=True)
        return [found[row] for row in range(len(asked))]
