"""A policy that is served elsewhere, and plays over messages: they are sent there, the text of a turn comes back.

The server puts tokens together with the chat template that was saved with the model, which renders the dialogue that it
was trained on (`rl.chat_template`). What it sampled is not told, so that such an episode teaches nothing.
"""

import time
from typing import Any

from rl import stoppable
from rl.config import EndpointParams
from rl.environment import EpisodeSpec, Message, Seat
from rl.experience import StopReason, Trajectory
from rl.language_models.endpoint import Endpoint

BYTES_PER_TOKEN = 3  # English has about four in most vocabularies, Chinese three


def rough_count(text: str) -> int:
    """Tokens of a text for a policy whose tokenizer is not at hand: rather too many than too few."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


class ServedPolicy:
    """Plays with the policy behind an endpoint."""

    def __init__(self, params: EndpointParams, seat: Seat) -> None:
        """Nothing is sent yet.

        Args:
            params: where it is served, and how it is sampled.
            seat: makes the environments of episodes.

        Raises:
            EndpointError: the key is not there.
        """
        self._endpoint, self._seat = Endpoint(params), seat

    def play(self, spec: EpisodeSpec) -> Trajectory:
        """One episode, with no token on record; its turns are empty spans.

        Raises:
            EndpointError: the server gives no turn.
        """
        return stoppable.run(self._played(spec))

    async def _played(self, spec: EpisodeSpec) -> Trajectory:
        began, environment = time.monotonic(), self._seat(spec, rough_count)
        messages: list[Message] = list(environment.opening())
        events: list[dict[str, Any]] = []
        while True:
            said = await self._endpoint.generate(messages)
            messages.append({"role": "assistant", "content": said})
            reply = await environment.step(said)
            events.append(reply.event.to_json())
            if reply.text is None:
                break
            messages.append({"role": "user", "content": reply.text})
        return Trajectory(
            episode_id=f"{spec.group_id}/{spec.sample}",
            case_id=spec.case_id,
            group_id=spec.group_id,
            sample=spec.sample,
            policy_version=0,
            turn_budget=spec.turn_budget,
            token_ids=(),
            logprobs=(),
            loss_mask=(),
            turns=((0, 0),) * len(events),
            texts=tuple(messages),
            events=tuple(events),
            stop_reason=reply.stop_reason or StopReason.ENDED,
            privileged=spec.privileged,
            started_s=0.0,
            ended_s=time.monotonic() - began,
        )
