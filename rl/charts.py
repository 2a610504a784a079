"""Charts, and who reads them: the encoder of a teacher, and the critic.

Shapes: S sequences of a micro-batch, C different charts, K turns, M soft tokens a turn, F = K M, W width of an embedding.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from transformers import PreTrainedModel

from rl.adapters import Branch, add_branch, has_adapter, on_branch
from rl.algorithms.adaptation import FeatureParams
from rl.batching import MicroBatch, hidden_states
from rl.chat import ChatFormat
from rl.critic import Critic
from rl.environment import EpisodeSpec
from rl.errors import TrainingError
from rl.experience import Trajectory
from rl.features import FeatureHead, with_vectors
from rl.parts import CRITIC

Chart = tuple[int, ...]  # as tokens


def chart_text(privileged: object, kind: str, key: str) -> str:
    """The chart of a kind that an environment tells of an episode.

    Args:
        privileged: what only the simulator knows of it.
        kind: which chart.
        key: of the recipe, that names the kind.

    Raises:
        TrainingError: the environment tells no such chart.
    """
    charts = privileged.get("chart", {}) if isinstance(privileged, dict) else {}
    if kind not in charts:
        known = ", ".join(charts) or "none"
        raise TrainingError(f"{key} is {kind!r} in the recipe, and these cases tell no such chart; they tell: {known}")
    return str(charts[kind])


@dataclass(frozen=True)
class Told:
    """What the modules read of a micro-batch beside its tokens."""

    place_F: torch.Tensor  # padded places of the soft tokens
    sequence_K: torch.Tensor  # which sequence each turn is of
    charts: tuple[Chart, ...]  # of each sequence
    trajectories: Sequence[Trajectory]  # the sequences
    predicted_KMW: torch.Tensor  # before the first update, by who is asked in this phase


class ChartEncoder(torch.nn.Module):
    """Chart -> feature: how the mean of its tokens' embeddings differs from that of other charts, and two layers.

    Charts are long and much alike, so that their means are nearly one vector. What is left when the centre is taken away
    is made as long as any. The embeddings stay what the policy began with, and so the centre stays one.
    """

    centre_W: torch.Tensor  # of the charts of the first rollout that is learned from; 0 before

    def __init__(self, model: PreTrainedModel, params: FeatureParams, placeholder: int) -> None:
        """Its two layers alone are learned; beside an adapter the table is the base's own, which stays too.

        Args:
            model: the policy.
            params: of the recipe.
            placeholder: id in the place of soft tokens.
        """
        super().__init__()
        self.tokens, self.placeholder, self.kind = params.tokens, placeholder, params.chart
        table = model.get_input_embeddings()
        if not has_adapter(model):
            self.table = table = copy.deepcopy(table).float().requires_grad_(False)
        self._table = (table,)  # in a tuple: what is the base's is no part of it
        self.register_buffer("centre_W", torch.zeros(table.weight.shape[1], device=model.device))
        self.first = torch.nn.Linear(table.weight.shape[1], params.hidden, device=model.device)
        self.head = FeatureHead(model, placeholder, params.tokens, params.hidden)

    def forward(self, charts: Sequence[Chart]) -> torch.Tensor:
        """Vectors (S, M, W); equal charts are read once."""
        different = list(dict.fromkeys(charts))
        apart_CW = self._means(different) - self.centre_W
        unit_CW = torch.nn.functional.layer_norm(apart_CW, apart_CW.shape[1:])
        vector_CMW = self.head(torch.tanh(self.first(unit_CW)))
        which_S = torch.tensor([different.index(chart) for chart in charts], device=vector_CMW.device)
        vector_SMW: torch.Tensor = vector_CMW[which_S]
        return vector_SMW

    def chart(self, privileged: object, chat: ChatFormat) -> Chart:
        """The tokens of the chart that the recipe names.

        Raises:
            TrainingError: the environment does not tell it.
        """
        return tuple(chat.content_ids(chart_text(privileged, self.kind, "feature.chart")))

    def feature(self, chat: ChatFormat) -> "OfCharts":
        """See `FeatureMaker`."""
        return OfCharts(self, chat)

    def alone(self, device: torch.device) -> "ChartEncoder":
        """See `FeatureMaker`; the table is its own."""
        found = copy.deepcopy(self)
        found.table = found._table[0]
        return found.to(device).eval().requires_grad_(False)

    @torch.no_grad()
    def centre(self, charts: Sequence[Chart]) -> None:
        """Let these charts be what others differ from, each once."""
        self.centre_W.copy_(self._means(sorted(set(charts))).mean(0))

    def _means(self, charts: Sequence[Chart]) -> torch.Tensor:
        table, device = self._table[0], self.first.weight.device
        return torch.stack([table(torch.tensor(chart, device=device)).float().mean(0) for chart in charts])


class ChartCritic(Critic):
    """A critic that reads the chart where the policy reads its feature."""

    def __init__(self, model: PreTrainedModel, params: FeatureParams, placeholder: int) -> None:
        """As `Critic` with a trunk of its own, or with an adapter of its own beside the policy's.

        Args:
            model: the policy.
            params: of the recipe.
            placeholder: id in the place of soft tokens.
        """
        super().__init__(model, shared=has_adapter(model))
        self.encoder = ChartEncoder(model, params, placeholder)
        self._base: tuple[PreTrainedModel, ...] = ()
        if has_adapter(model):
            self._base = (model,)  # no part of it
            add_branch(model, CRITIC)
            self.branch = Branch(model, CRITIC)

    @property
    def reads_policy(self) -> bool:
        """It never does."""
        return False

    def forward(self, batch: MicroBatch, policy_hidden_BTD: torch.Tensor | None) -> torch.Tensor:
        """See `Critic`."""
        if batch.told is not None and batch.soft is not None:
            told: Told = batch.told
            batch = with_vectors(batch, told.place_F, self.encoder(told.charts)[told.sequence_K])
        if self._base:
            with on_branch(self._base[0], CRITIC) as model:
                policy_hidden_BTD = hidden_states(model.get_decoder(), batch)
        return super().forward(batch, policy_hidden_BTD)


@dataclass(frozen=True)
class OfCharts:
    """The feature of a teacher: what the chart says. For one rollout, in which the encoder stays what it is."""

    encoder: ChartEncoder
    chat: ChatFormat
    known: dict[Chart, torch.Tensor] = field(default_factory=dict)  # all turns and samples of a case have one

    @property
    def tokens(self) -> int:
        """M."""
        return self.encoder.tokens

    @property
    def placeholder(self) -> int:
        """Id in the place of soft tokens."""
        return self.encoder.placeholder

    async def __call__(self, spec: EpisodeSpec, dialogue: Sequence[int]) -> torch.Tensor:  # noqa: ARG002  the chart says it
        """See `Feature`."""
        chart = self.encoder.chart(spec.privileged, self.chat)
        if chart not in self.known:
            with torch.no_grad():
                self.known[chart] = self.encoder([chart])[0]
        return self.known[chart]
