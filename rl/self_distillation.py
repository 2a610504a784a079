"""A policy that is taught by what it was: the teacher has the patient's chart in its prompt, the student has not.

The teacher begins as the policy and follows it as slowly as `tau` says; beside an adapter it is a second one. It reads the
student's own dialogues, the chart before the first thing that the patient said, and its token distributions at the
student's turns are compared with the student's. Charts are read only while somebody learns.
Source: on-policy self-distillation, arXiv:2602.04942, where the teacher is the policy itself (tau 1).

Shapes: S sequences of a micro-batch, N loss positions, D width of a hidden state.
"""

import copy
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import PreTrainedModel

from rl.adapters import NAME, Branch, add_branch, has_adapter, on_branch
from rl.algorithms.adaptation import DistillationParams
from rl.batching import MicroBatch, micro_batches
from rl.charts import chart_text
from rl.chat import ChatFormat
from rl.divergence import at_loss, kl_between
from rl.experience import Trajectory
from rl.parts import POLICY, TEACHER, Adaptation
from rl.policy import Policy

log = logging.getLogger(__name__)
MANY = 0.5  # of a step's episodes: so many without their chart are told of


@dataclass(frozen=True)
class Reading:
    """What a teacher reads of a micro-batch."""

    batch: MicroBatch  # with the loss positions where the teacher is listened to, in the same order
    taught_N: torch.Tensor  # bool; which those are. None of an episode whose chart had no room


class SelfTaughtPolicy(Policy):
    """See the module docstring. Whoever plays is the student."""

    def __init__(
        self, model: PreTrainedModel, params: DistillationParams, chat: ChatFormat, *, compiled: bool = False
    ) -> None:
        """Wrap the model, and make its teacher.

        Args:
            model: the language model; it stays what it is.
            params: of the recipe.
            chat: makes tokens of charts.
            compiled: compile the model's layers.
        """
        beside = has_adapter(model)  # one base, an adapter each
        teacher = None if beside else copy.deepcopy(model).eval()
        super().__init__(model, compiled=compiled)
        self.teacher: PreTrainedModel | None = teacher
        if teacher is None:
            add_branch(model, TEACHER)
        # in a tuple: the weights of branches are the model's
        self._pair: tuple[torch.nn.Module, torch.nn.Module] = (
            (teacher, model) if teacher is not None else (Branch(model, TEACHER), Branch(model, NAME))
        )
        self._pair[0].requires_grad_(False)
        self._params, self._chat = params, chat
        self._openings: dict[str, list[int]] = {}  # of the trajectories of a phase, by episode: what the teacher reads

    @property
    def parts(self) -> dict[str, torch.nn.Module]:
        """The student, and its teacher, which no optimizer knows."""
        return {POLICY: self.model, TEACHER: self._pair[0]}

    @property
    def trunks(self) -> list[Any]:
        """Two, or one beside an adapter."""
        return super().trunks + ([self.teacher.get_decoder()] if self.teacher is not None else [])

    @contextmanager
    def _teaching(self) -> Iterator[PreTrainedModel]:
        """The teacher."""
        if self.teacher is not None:
            yield self.teacher
        else:
            with on_branch(self.model, TEACHER) as model:
                yield model

    @torch.no_grad()
    def _follow(self, share: float) -> None:
        """Let the teacher take over a share of the student."""
        for mean, value in zip(*(module.parameters() for module in self._pair), strict=True):
            mean.lerp_(value, share)

    def ended(self) -> None:
        """After a training phase: the teacher follows."""
        self._follow(self._params.tau)

    def begin(self) -> None:
        """Let the teacher be the policy again."""
        self._follow(1.0)

    def prepare(self, trajectories: Sequence[Trajectory], budget: int) -> dict[str, float]:  # noqa: ARG002  tokens alone
        """Read the charts of trajectories with a turn.

        Returns:
            `distillation/untaught`, the share of them that with their chart are longer than the model can read; reward
            alone teaches there.

        Raises:
            TrainingError: the environment tells no chart of the kind that the recipe names.
        """
        some = [trajectory for trajectory in trajectories if trajectory.sampled_tokens]
        most = self.model.config.get_text_config().max_position_embeddings
        openings = {t.episode_id: opening_with_chart(t, self._params.chart, self._chat) for t in some}
        self._openings = {
            t.episode_id: openings[t.episode_id]
            for t in some
            if len(openings[t.episode_id]) + len(t.token_ids) - t.turns[0][0] <= most
        }
        if not some:
            return {}
        untaught = 1 - len(self._openings) / len(some)
        if untaught > MANY:
            log.warning(
                "with their charts %.0f%% of the episodes are longer than the %d tokens that the model can read, and learn from reward alone; lower rollout.max_episode_tokens",
                100 * untaught,
                most,
            )
        return {"distillation/untaught": untaught}

    def dressed(self, batch: MicroBatch, trajectories: Sequence[Trajectory]) -> MicroBatch:
        """The micro-batch with what the teacher reads."""
        rows, taught = [], []
        for t in trajectories:
            begins = t.turns[0][0]
            opening = self._openings.get(t.episode_id, t.token_ids[:begins])
            first = self._begins(t) if t.episode_id in self._openings else len(t.token_ids)
            mask = [one if place >= first else 0 for place, one in enumerate(t.loss_mask)]
            rows.append(([*opening, *t.token_ids[begins:]], [0] * len(opening) + mask[begins:]))
            taught += [place >= first for place, one in enumerate(t.loss_mask) if one]
        (read,) = micro_batches([ids for ids, _ in rows], [mask for _, mask in rows], 1, None, [range(len(rows))])
        return replace(batch, told=Reading(read, torch.tensor(taught)))

    def _begins(self, trajectory: Trajectory) -> int:
        """The first place where the teacher is listened to."""
        return trajectory.turns[-1 if self._params.turns == "last" else 0][0]

    def lessons(self, batch: MicroBatch, hidden_BTD: torch.Tensor, temperature: float) -> Adaptation:
        """The divergence of the student's token distributions from the teacher's; 0 where nobody listens to it."""
        reading: Reading = batch.told
        with torch.no_grad(), self._teaching() as teacher:
            teacher_ND = at_loss(teacher, reading.batch)
        taught_N = reading.taught_N.to(hidden_BTD.device)
        student_ND = hidden_BTD[batch.row_N, batch.source_N][taught_N]
        heads = self.teacher if self.teacher is not None else self.model
        reverse = self._params.divergence == "reverse"
        found = kl_between(heads, teacher_ND, self.model, student_ND, temperature, reverse=reverse)
        return Adaptation(None, found.new_zeros(len(taught_N)).masked_scatter(taught_N, found))


def opening_with_chart(trajectory: Trajectory, kind: str, chat: ChatFormat) -> list[int]:
    """The tokens before the first turn as a teacher reads them: the chart before what was said to the policy first.

    Args:
        trajectory: with a turn.
        kind: of chart.
        chat: makes tokens.

    Raises:
        TrainingError: its environment tells no such chart.
    """
    opening = list(trajectory.opening)
    first = next(place for place, message in enumerate(opening) if message["role"] == "user")
    chart = chart_text(trajectory.privileged, kind, "distillation.chart")
    opening[first] = {**opening[first], "content": f"{chart} {opening[first]['content']}"}
    return chat.opening_ids(opening)
