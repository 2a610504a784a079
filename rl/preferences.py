"""Preference pairs from a file, as experience that an offline algorithm can read.

One JSON object a line: `prompt`, `chosen`, `rejected`, each a text or a list of messages (`role`, `content`); `chosen`
and `rejected` begin with an assistant message and may go on as a dialogue. Only their assistant messages carry loss.
"""

import json
import reprlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl.chat import ChatFormat
from rl.environment import Message
from rl.errors import TrainingError
from rl.experience import Scores, StopReason, Trajectory


@dataclass(frozen=True)
class Preferences:
    """Pairs of a file, chosen before rejected. Made by `read_preferences`, read by the training phase."""

    trajectories: tuple[Trajectory, ...]
    scores: tuple[Scores, ...]

    def share(self, step: int, steps: int) -> tuple[list[Trajectory], list[Scores]]:
        """The pairs of rollout step `step` (from 1) of `steps`: equal parts, all of them once."""
        pairs = len(self.trajectories) // 2
        start, end = (2 * (pairs * k // steps) for k in (step - 1, step))
        return list(self.trajectories[start:end]), list(self.scores[start:end])


def read_preferences(path: Path, chat: ChatFormat) -> Preferences:
    """Read all pairs of a JSONL file.

    Raises:
        TrainingError: not JSON, a missing key, not a dialogue; the message names file, line and fix. Or no pairs.
    """
    trajectories: list[Trajectory] = []
    scores: list[Scores] = []
    for number, line in _lines(path):
        try:
            row = json.loads(line.decode("utf-8-sig"))
            prompt = _messages(row["prompt"], "user")
            sides = [_messages(row[key], "assistant") for key in ("chosen", "rejected")]
            pair = [
                _trajectory(chat, f"{path.name}:{number}", sample, prompt, side) for sample, side in enumerate(sides)
            ]
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise TrainingError(
                f"{path}, line {number}: {what}; give prompt, chosen and rejected, each a text or a list of messages with role and content"
            ) from error
        trajectories += pair
        scores += [Scores(t.episode_id, ({"preferred": reward},)) for t, reward in zip(pair, (1.0, 0.0), strict=True)]
    if not trajectories:
        raise TrainingError(f"{path} holds no preference pairs")
    return Preferences(tuple(trajectories), tuple(scores))


def count_pairs(path: Path) -> int:
    """How many pairs `read_preferences` will find, without reading them."""
    return sum(1 for _ in _lines(path))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that hold a pair, with their numbers from 1."""
    yield from ((number, line) for number, line in enumerate(path.read_bytes().split(b"\n"), 1) if line.strip())


def _messages(value: Any, role: str) -> list[Message]:
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    messages: list[Message] = [{"role": m["role"], "content": m["content"]} for m in value]
    if not all(isinstance(text, str) for message in messages for text in message.values()):
        raise ValueError(f"role and content are text: found {reprlib.repr(messages)}")
    if not messages or messages[-1 if role == "user" else 0]["role"] != role:
        raise ValueError(
            f"a prompt ends with a user message, an answer begins with an assistant message: found {reprlib.repr(messages)}"
        )
    return messages


def _trajectory(chat: ChatFormat, group: str, sample: int, prompt: list[Message], answer: list[Message]) -> Trajectory:
    while answer[-1]["role"] != "assistant":
        answer = answer[:-1]
    _refuse_out_of_turn([*prompt, *answer])
    ids, mask = chat.dialogue_ids([*prompt, *answer])
    spans = _spans(mask)[sum(message["role"] == "assistant" for message in prompt) :]
    mask = [0] * len(ids)
    for start, end in spans:
        mask[start:end] = [1] * (end - start)
    unknown = (0.0,) * len(ids)
    events: tuple[dict[str, Any], ...] = ({},) * len(spans)
    return Trajectory(
        episode_id=f"{group}/{sample}",
        case_id=group,
        group_id=group,
        sample=sample,
        policy_version=0,
        turn_budget=len(spans),
        token_ids=tuple(ids),
        logprobs=unknown,
        loss_mask=tuple(mask),
        turns=tuple(spans),
        texts=tuple(prompt + answer),
        events=events,
        stop_reason=StopReason.ENDED,
        privileged={},
        started_s=0.0,
        ended_s=0.0,
    )


def _refuse_out_of_turn(messages: list[Message]) -> None:
    """From the first assistant message on, assistant and user take turns: nothing else has tokens of its own there."""
    roles = [message["role"] for message in messages]
    said = roles[roles.index("assistant") :]
    if any(role != ("assistant", "user")[place % 2] for place, role in enumerate(said)):
        raise ValueError(f"assistant and user do not take turns: found {', '.join(roles)}")


def _spans(mask: list[int]) -> list[tuple[int, int]]:
    """Half-open runs of ones."""
    edges = [
        place
        for place in range(len(mask) + 1)
        if (mask[place] if place < len(mask) else 0) != (mask[place - 1] if place else 0)
    ]
    return list(zip(edges[::2], edges[1::2], strict=True))
