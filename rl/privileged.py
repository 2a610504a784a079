"""A teacher that has read the chart and a student that has not, as one policy.

    encoder_priv   chart -> feature, a few soft tokens
    actor          the teacher: dialogue and feature -> turn
    policy         the student, actor_adapt: dialogue and predicted feature -> turn
    adapt_module   dialogue -> feature;   adapt_ema: its moving average, which tells the student when it plays
    critic         sees the chart, by an encoder of its own

Only the encoders read charts, and only while a teacher plays or somebody learns. Beside an adapter all stand on one frozen
base: teacher, student and critic have an adapter each, and of what reads or predicts features the heads alone are learned.
Source: regularised online adaptation, arXiv:2210.10044, of a robot's actions; here of a dialogue's turns.

Shapes: S sequences of a micro-batch, K their turns, M soft tokens a turn, W width of an embedding, N loss positions.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from transformers import PreTrainedModel

from rl.adapters import NAME, Branch, add_branch, has_adapter, on_branch, switch_to
from rl.algorithms.adaptation import AdaptationParams, FeatureParams
from rl.batching import MicroBatch
from rl.charts import Chart, ChartCritic, ChartEncoder, Told
from rl.chat import ChatFormat
from rl.divergence import at_loss, kl_between
from rl.experience import Trajectory
from rl.features import AdaptHead, AdaptModule, FeatureMaker, dialogues, soft_places, with_vectors
from rl.parts import ACTOR, ADAPT, CRITIC, EMA, ENCODER, POLICY, Adaptation
from rl.policy import Policy, PolicyOutput

ADAPTERS = {POLICY: NAME, ACTOR: ACTOR}
"""Which adapter of one base is whose."""


class PrivilegedPolicy(Policy):
    """See the module docstring. Who plays is told by `play`; the student does at first."""

    def __init__(
        self, model: PreTrainedModel, feature: FeatureParams, adaptation: AdaptationParams, chat: ChatFormat, seed: int
    ) -> None:
        """Make all parts of the policy that begins.

        Args:
            model: the student; the teacher begins as its copy.
            feature: of the recipe.
            adaptation: of the recipe.
            chat: makes tokens of charts; what a user's words begin with stands in the place of soft tokens.
            seed: of the first weights of what is no copy.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            placeholder = chat.opening_ids([{"role": "user", "content": ""}])[0]
            super().__init__(model, ChartCritic(model, feature, placeholder))
            self._beside = has_adapter(model)  # one base, an adapter each
            self._branches: dict[str, Branch] = {}  # no parts of it: their weights are the model's
            if self._beside:
                add_branch(model, ACTOR)
                self._branches = {part: Branch(model, name) for part, name in ADAPTERS.items()}
            self.actor: PreTrainedModel = model if self._beside else copy.deepcopy(model)
            self.encoder_priv = ChartEncoder(model, feature, placeholder)
            predicting = AdaptHead if self._beside else AdaptModule
            self.adapt_module, self.adapt_ema = (
                predicting(model, placeholder, feature.tokens, adaptation.layers) for _ in range(2)
            )
            self.adapt_ema.load_state_dict(self.adapt_module.state_dict())
            self.adapt_ema.requires_grad_(False)
        self._feature, self._adaptation, self._chat, self._seed = feature, adaptation, chat, seed
        self._plays = POLICY
        self._predicted: dict[str, torch.Tensor] = {}  # of the trajectories of a phase, by episode
        self._charts: dict[str, Chart] = {}

    @property
    def parts(self) -> dict[str, torch.nn.Module]:
        """The modules that algorithms name, the student first."""
        assert self.critic is not None  # noqa: S101  it is made with one
        return {
            POLICY: self._branches.get(POLICY, self.model),
            ACTOR: self._branches.get(ACTOR, self.actor),
            ENCODER: self.encoder_priv,
            ADAPT: self.adapt_module,
            EMA: self.adapt_ema,
            CRITIC: self.critic,
        }

    @property
    def player(self) -> PreTrainedModel:
        """Whoever plays."""
        return self.actor if self._plays == ACTOR else self.model

    @property
    def adapter(self) -> str:
        """The student's or the teacher's."""
        return ADAPTERS[self._plays]

    @property
    def apart(self) -> bool:
        """Whether equal tokens are read differently in different groups."""
        return self._feature.tokens > 0

    @property
    def adaptation(self) -> AdaptModule | None:
        """What predicts the student's features."""
        return self.adapt_ema if self._feature.tokens else None

    def begin(self) -> None:
        """Let all but the student be again what they were made as."""
        fresh = PrivilegedPolicy(self.model, self._feature, self._adaptation, self._chat, self._seed)
        for name, module in self.parts.items():
            if name != POLICY:
                module.load_state_dict(fresh.parts[name].state_dict())

    def play(self, part: str) -> None:
        """Who plays, and is learned from, from now on: the teacher (`actor`) or the student (`policy`)."""
        self._plays = part
        if self._beside:
            switch_to(self.model, ADAPTERS[part])

    @contextmanager
    def _asked(self, part: str) -> Iterator[PreTrainedModel]:
        """The teacher, or the student, whoever plays."""
        if not self._beside:
            yield self.actor if part == ACTOR else self.model
            return
        with on_branch(self.model, ADAPTERS[part]) as model:
            yield model

    def meet(self, privileged: Sequence[object]) -> None:
        """Of the first episodes: both encoders take their charts for what others differ from. It stays so."""
        assert isinstance(self.critic, ChartCritic)  # noqa: S101  it is made with one
        if self._feature.tokens and not self.encoder_priv.centre_W.any():
            charts = [self.chart(one) for one in privileged]
            self.encoder_priv.centre(charts)
            self.critic.encoder.centre(charts)

    @property
    def feature_maker(self) -> FeatureMaker | None:
        """Of whoever plays; the student is never told a chart."""
        if not self._feature.tokens:
            return None
        return self.encoder_priv if self._plays == ACTOR else self.adapt_ema

    def chart(self, privileged: object) -> Chart:
        """See `ChartEncoder.chart`."""
        return self.encoder_priv.chart(privileged, self._chat)

    @torch.no_grad()
    def prepare(self, trajectories: Sequence[Trajectory], budget: int) -> dict[str, float]:
        """Read the charts of trajectories with a turn, and predict their features, before the first update: the teacher
        is drawn towards them, and the student plays by them.

        Returns:
            `adaptation/variance` of the encoder's features over trajectories, in squared lengths of a vector.
        """
        some = [trajectory for trajectory in trajectories if trajectory.sampled_tokens]
        self._predicted, self._charts = {}, {}
        if not self._feature.tokens or not some:
            return {}
        self.meet([trajectory.privileged for trajectory in trajectories])  # where they were played before a restart
        module = (self.adapt_module if self._plays == ACTOR else self.adapt_ema).eval()
        for batch in dialogues(some, self._feature.tokens, budget):
            predicted_KMW, sizes = module(batch), [len(some[i].turns) for i in batch.index]
            names = [some[i].episode_id for i in batch.index]
            self._predicted |= dict(zip(names, torch.split(predicted_KMW, sizes), strict=True))
        self._charts = {trajectory.episode_id: self.chart(trajectory.privileged) for trajectory in some}
        vector_SMW = self.encoder_priv([self._charts[trajectory.episode_id] for trajectory in some])
        spread = (vector_SMW - vector_SMW.mean(0)).square().mean() / self.adapt_module.head.scale.square()
        return {"adaptation/variance": float(spread)}

    def dressed(self, batch: MicroBatch, trajectories: Sequence[Trajectory]) -> MicroBatch:
        """The micro-batch with what the modules read of its sequences; trajectories in their order, prepared."""
        tokens = self._feature.tokens
        charts = tuple(self._charts[trajectory.episode_id] for trajectory in trajectories) if tokens else ()
        width = batch.token_BT.shape[1]
        places = [row * width + place for row, t in enumerate(trajectories) for place in soft_places(t, tokens)]
        predicted = [self._predicted[trajectory.episode_id] for trajectory in trajectories] if tokens else []
        told = Told(
            place_F=torch.tensor(places, dtype=torch.long),
            sequence_K=torch.tensor([row for row, t in enumerate(trajectories) for _ in t.turns]),
            charts=charts,
            trajectories=trajectories,
            predicted_KMW=torch.cat(predicted) if predicted else torch.zeros(0),
        )
        return replace(batch, told=told)

    def forward(
        self,
        batch: MicroBatch,
        temperature: float,
        *,
        logprobs: bool = True,
        values: bool = False,
        entropy_gradient: bool = False,
        learning: Sequence[str] = (),
    ) -> PolicyOutput:
        """As `Policy`, of whoever plays with its feature; of the adaptation where adapt_module is among the learning."""
        told: Told | None = batch.told
        if told is None:  # plain tokens, as of a probe
            return super().forward(
                batch, temperature, logprobs=logprobs, values=values, entropy_gradient=entropy_gradient
            )
        if ADAPT in learning:
            return PolicyOutput(None, None, None, self._adapted(batch, told, temperature, teach=POLICY in learning))
        adaptation = None
        if self._feature.tokens:
            vector_KMW = told.predicted_KMW
            if self._plays == ACTOR:
                vector_KMW = self.encoder_priv(told.charts)[told.sequence_K]
                adaptation = Adaptation(self._error(vector_KMW, told.predicted_KMW, told), None)
            batch = with_vectors(batch, told.place_F, vector_KMW)
        seen = super().forward(batch, temperature, logprobs=logprobs, values=values, entropy_gradient=entropy_gradient)
        return replace(seen, adaptation=adaptation)

    def _error(self, one_KMW: torch.Tensor, other_KMW: torch.Tensor, told: Told) -> torch.Tensor:
        """Squared error in squared lengths of a vector, mean over the turns of each sequence, (S,)."""
        error_K = (one_KMW - other_KMW).square().flatten(1).mean(1) / self.adapt_module.head.scale.square()
        sequence_K = told.sequence_K.to(error_K.device)
        turns_S = torch.bincount(sequence_K)
        return torch.zeros(len(turns_S), device=error_K.device).index_add(0, sequence_K, error_K) / turns_S

    def _adapted(self, batch: MicroBatch, told: Told, temperature: float, *, teach: bool) -> Adaptation:
        """The error of adapt_module's prediction, and, to `teach` the student, the teacher's KL to it; no gradient
        reaches the teacher or its feature, and none the prediction through the student.
        """
        teacher, student, error_S = batch, batch, None
        if self._feature.tokens:
            with torch.no_grad():
                vector_KMW = self.encoder_priv(told.charts)[told.sequence_K]
            (dialogue,) = dialogues(told.trajectories, self._feature.tokens, 0)
            predicted_KMW = self.adapt_module(dialogue)
            error_S = self._error(predicted_KMW, vector_KMW, told)
            teacher = with_vectors(batch, told.place_F, vector_KMW)
            student = with_vectors(batch, told.place_F, predicted_KMW.detach())
        if not teach:
            return Adaptation(error_S, None)
        with torch.no_grad(), self._asked(ACTOR) as actor:
            teacher_ND = at_loss(actor, teacher)
        with self._asked(POLICY) as model:
            student_ND = at_loss(model, student)
        kl_N = kl_between(self.actor, teacher_ND, self.model, student_ND, temperature)
        return Adaptation(error_S, kl_N)

    @torch.no_grad()
    def ended(self) -> None:
        """After a training phase: adapt_ema moves towards adapt_module."""
        for mean, value in zip(self.adapt_ema.parameters(), self.adapt_module.parameters(), strict=True):
            mean.lerp_(value, self._adaptation.tau)
