"""The rollout phase: environments x engine -> trajectories.

Episodes are independent coroutines: none waits for another's turn. The policy is frozen throughout. What breaks inside
one episode (an environment that fails) ends that episode as data, with no token to learn from; a broken engine ends the
phase.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rl.chat import ChatFormat
from rl.config import RolloutParams
from rl.engines.base import Engine, Finish, Request, Sampling, noise_key
from rl.environment import Environment, EpisodeSpec, Message, Seat
from rl.errors import TrainingError
from rl.experience import StopReason, Trajectory
from rl.features import Feature

log = logging.getLogger(__name__)


Progress = Callable[[int, int], None]


async def play(  # noqa: PLR0913  what a rollout is made of
    specs: Sequence[EpisodeSpec],
    seat: Seat,
    engine: Engine,
    chat: ChatFormat,
    params: RolloutParams,
    temperature: float,
    progress: Progress | None = None,
    feature: Feature | None = None,
) -> list[Trajectory]:
    """Play all episodes, at most `params.slots` at once; a finished one makes room for the next.

    Args:
        specs: the episodes.
        seat: makes their environments.
        engine: generates turns.
        chat: the policy's chat format.
        params: limits.
        temperature: 0 = greedy (evaluation only).
        progress: called with (done, total) after each episode.
        feature: what the policy is told beside tokens, if anything.

    Returns:
        One trajectory per spec, in the order of the specs.

    Raises:
        TrainingError: two specs of the same group and sample: they would share noise, identity and engine session. Or
            the engine's.
    """
    names = Counter(f"{spec.group_id}/{spec.sample}" for spec in specs)
    if len(names) < len(specs):
        raise TrainingError(
            f"episode {names.most_common(1)[0][0]} is asked for twice in one rollout; give each group an id of its own and number its samples"
        )
    began = time.monotonic()
    queue = iter(enumerate(specs))
    result: dict[int, Trajectory] = {}

    async def one_after_another() -> None:
        for i, spec in queue:
            episode = Episode(spec, seat(spec, chat.count), engine, chat, params, temperature, began, feature)
            try:
                while episode.stop_reason is None:
                    await episode.turn()
            finally:
                episode.leave()
            result[i] = episode.trajectory()
            if progress is not None:
                progress(len(result), len(specs))

    await asyncio.gather(*(one_after_another() for _ in range(min(params.slots, len(specs)))))
    await engine.close()
    return [result[i] for i in range(len(specs))]


def refuse_if_many_unplayed(trajectories: Sequence[Trajectory], params: RolloutParams) -> None:
    """Stop a run whose episodes do not come about, and say it in one line where only some do not: those whose opening
    left no room for a turn count as failed, like those whose environment broke.

    Raises:
        TrainingError: their share exceeds `max_failed_share`.
    """
    unbegun = [trajectory for trajectory in trajectories if not trajectory.turns]
    if unbegun:
        longest = max(len(trajectory.token_ids) for trajectory in unbegun)
        told = (
            f"{len(unbegun)} of {len(trajectories)} episodes had no room for a turn: an opening takes up to {longest} tokens and a turn rollout.response_length = "
            f"{params.response_length}, but rollout.max_episode_tokens is {params.max_episode_tokens}; set it to {needed_tokens(longest, params)} or more"
        )
        failed = sum(trajectory.stop_reason == StopReason.FAILED for trajectory in trajectories)
        if len(unbegun) + failed > params.max_failed_share * len(trajectories):
            raise TrainingError(f"{told} (rollout.max_failed_share is {params.max_failed_share:g})")
        log.warning("%s", told)
    refuse_if_many_failed(trajectories, params)


def needed_tokens(opening: int, params: RolloutParams) -> int:
    """`max_episode_tokens` that leave room for one turn after an opening, and for the end of a turn that is cut."""
    return opening + params.response_length + 1


def refuse_if_many_failed(trajectories: Sequence[Trajectory], params: RolloutParams) -> None:
    """Stop a run whose environments break.

    Raises:
        TrainingError: the share of failed episodes exceeds `max_failed_share`.
    """
    failed = sum(trajectory.stop_reason == StopReason.FAILED for trajectory in trajectories)
    if failed > params.max_failed_share * len(trajectories):
        raise TrainingError(
            f"{failed} of {len(trajectories)} episodes failed, more than rollout.max_failed_share = {params.max_failed_share:g}; "
            "the warnings above say why (a patient's endpoint that is down?); mend it and run again, it resumes from the last complete step"
        )


class Episode:
    """One episode, played turn by turn, and its growing token record."""

    def __init__(  # noqa: PLR0913  what an episode is made of
        self,
        spec: EpisodeSpec,
        environment: Environment,
        engine: Engine,
        chat: ChatFormat,
        params: RolloutParams,
        temperature: float,
        began: float | None = None,
        feature: Feature | None = None,
    ) -> None:
        """Open the episode; nothing is sampled yet.

        Args:
            spec: the episode.
            environment: of this episode alone.
            engine: generates turns.
            chat: the policy's chat format.
            params: limits.
            temperature: 0 = greedy.
            began: monotonic clock that its times count from; None: now.
            feature: what the policy is told beside tokens, if anything.
        """
        self.spec, self.environment, self.engine, self.chat, self.params = spec, environment, engine, chat, params
        self.temperature, self.feature = temperature, feature
        self._soft = [feature.placeholder] * feature.tokens if feature is not None else []
        self._dialogue: list[int] = []  # the tokens alone, as a feature reads them
        self.session = f"{spec.group_id}/{spec.sample}"
        self.began = time.monotonic() if began is None else began
        self.started_s = time.monotonic() - self.began
        self.ended_s = self.started_s
        self.ids: list[int] = []
        self.mask: list[int] = []
        self.logprobs: list[float] = []
        self.turns: list[tuple[int, int]] = []
        self.events: list[dict[str, Any]] = []
        self.version = engine.policy_version
        self.stop_reason: str | None = None
        self.messages: list[Message] = list(environment.opening())
        self._new = chat.opening_ids(self.messages)  # what the policy has not read yet

    async def turn(self) -> None:
        """The policy's next turn and the environment's reply; sets `stop_reason` if the episode is over with it.

        Raises:
            RuntimeError: it was over before.
        """
        if self.stop_reason is not None:
            raise RuntimeError(f"episode {self.session} is over: {self.stop_reason}")
        self.stop_reason = await self._turn()
        self.ended_s = time.monotonic() - self.began

    async def _turn(self) -> str | None:
        if self._room(self._new) < self.params.response_length:
            if not self.turns:
                new = [*self._soft, *self._new]
                self._append(new, [0.0] * len(new), 0)  # how long it is says what would do
            return StopReason.OUT_OF_TOKENS
        said = await self._sampled(self._new)
        try:
            reply = await self.environment.step(said)
        except Exception as error:  # noqa: BLE001  the edge of the environment: its failure becomes data
            log.warning("episode %s: the environment failed: %s", self.session, error)
            self.mask = [0] * len(self.mask)
            return StopReason.FAILED
        self.events.append(reply.event.to_json())
        if reply.text is None:
            return reply.stop_reason or StopReason.ENDED
        self.messages.append({"role": "user", "content": reply.text})
        self._new = self.chat.reply_ids(reply.text)
        return None

    def leave(self) -> None:
        """Give the engine's place back; whoever plays an episode does so at its end, however it ends."""
        self.engine.release(self.session)

    def trajectory(self) -> Trajectory:
        """What was played, once it is over."""
        if self.stop_reason is None:
            raise RuntimeError(f"episode {self.session} is not over")
        spec = self.spec
        return Trajectory(
            episode_id=self.session,
            case_id=spec.case_id,
            group_id=spec.group_id,
            sample=spec.sample,
            policy_version=self.version,
            turn_budget=spec.turn_budget,
            token_ids=tuple(self.ids),
            logprobs=tuple(self.logprobs),
            loss_mask=tuple(self.mask),
            turns=tuple(self.turns),
            texts=tuple(self.messages),
            events=tuple(self.events),
            stop_reason=self.stop_reason,
            privileged=spec.privileged,
            started_s=self.started_s,
            ended_s=self.ended_s,
        )

    def _room(self, new: list[int]) -> int:
        """Tokens left for a turn after feeding what is new (one more may be needed to close a cut turn)."""
        return self.params.max_episode_tokens - len(self.ids) - len(self._soft) - len(new) - 1

    async def _sampled(self, new: list[int]) -> str:
        """Feed what is new, sample one turn, record it exactly as sampled."""
        if self.ids and self.ids[-1] != self.chat.end_id:
            new = [self.chat.end_id, *new]  # the token limit cut the last turn: close it, unsampled
        self._append([*self._soft, *new], [0.0] * (len(self._soft) + len(new)), 0)
        self._dialogue += new
        vectors = await self.feature(self.spec, self._dialogue) if self.feature is not None else None
        sampling = Sampling(self.temperature, self.params.response_length, self.chat.end_id)
        key = noise_key(*self.spec.noise, self.spec.group_id, self.spec.sample, len(self.turns))
        completion = await self.engine.generate(Request(self.session, tuple(new), key, sampling, vectors))
        self.version = min(self.version, completion.policy_version)
        self.turns.append((len(self.ids), len(self.ids) + len(completion.token_ids)))
        self._append(list(completion.token_ids), list(completion.logprobs), 1)
        self._dialogue += completion.token_ids
        text = self.chat.text(completion.token_ids)
        if completion.finish is Finish.LENGTH:
            log.debug(
                "episode %s: turn %d was cut at %d tokens", self.session, len(self.turns), self.params.response_length
            )
        self.messages.append({"role": "assistant", "content": text})
        return text

    def _append(self, ids: list[int], logprobs: list[float], mask: int) -> None:
        self.ids += ids
        self.logprobs += logprobs
        self.mask += [mask] * len(ids)
