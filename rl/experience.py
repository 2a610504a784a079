"""Experience: what a rollout phase recorded, on disk, each part once and hashed before the next reads it.

    rollout.parquet   made by the rollout phase: tokens, log-probabilities, mask, turns, events
    scores.parquet    made by reward scoring: components per turn
    (learning reads both and writes nothing here; old log-probabilities equal the recorded ones while engine and learner
    share weights)

A file is written under a temporary name, renamed, and its sha256 kept beside it.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import pandas as pd

from rl.errors import TrainingError


class StopReason(StrEnum):
    """Why an episode is over where its environment does not say: it has endings of its own, which the school only
    keeps.
    """

    ENDED = "ended"  # the environment gave no reason
    OUT_OF_TOKENS = "out_of_tokens"  # no room was left for a turn
    FAILED = "failed"  # the environment broke


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """The token record of one episode. Made by `rl.rollout`, read by scoring and learning.

    `token_ids`, `logprobs` and `loss_mask` have one entry per token of the whole episode; mask 1 marks exactly the
    tokens that the policy sampled, and only there is the log-probability meaningful (0.0 elsewhere). `turns` gives the
    half-open span of every policy turn. `events` has one entry per turn. `privileged` is what only the simulator knows.
    """

    episode_id: str
    case_id: str
    group_id: str
    sample: int
    policy_version: int
    turn_budget: int
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    loss_mask: tuple[int, ...]
    turns: tuple[tuple[int, int], ...]
    texts: tuple[dict[str, str], ...]  # the dialogue as messages
    events: tuple[dict[str, Any], ...]  # as the environment's `Event.to_json` wrote them
    stop_reason: str  # a `StopReason`, or the environment's own
    privileged: dict[str, Any]
    started_s: float  # seconds since the rollout phase began
    ended_s: float

    @property
    def played(self) -> bool:
        """Whether it came to an end that can be judged: it had a turn, and its environment did not fail."""
        return bool(self.events) and self.stop_reason != StopReason.FAILED

    @property
    def opening(self) -> tuple[dict[str, str], ...]:
        """The messages before the policy's first turn; an opening may hold turns in its name."""
        spoken = [place for place, message in enumerate(self.texts) if message["role"] == "assistant"]
        return self.texts[: spoken[len(spoken) - len(self.turns)]] if self.turns else self.texts

    @property
    def sampled_tokens(self) -> int:
        """How many tokens the policy sampled."""
        return sum(self.loss_mask)


def mask_unscored(trajectories: Sequence[Trajectory], scores: Sequence["Scores"]) -> list[Trajectory]:
    """The trajectories, those without a score with no token to learn from: what was not judged teaches nothing."""
    return [
        t if score.turns else replace(t, loss_mask=(0,) * len(t.loss_mask))
        for t, score in zip(trajectories, scores, strict=True)
    ]


@dataclass(frozen=True)
class Scores:
    """Reward components per turn of one trajectory; the reward of a turn is their sum.

    No turns: not scored, because it failed or nobody judged it.
    """

    episode_id: str
    turns: tuple[dict[str, float], ...]

    @property
    def turn_rewards(self) -> list[float]:
        """Reward of each turn."""
        return [sum(turn.values()) for turn in self.turns]

    @property
    def reward(self) -> float:
        """Reward of the episode."""
        return sum(self.turn_rewards)


def write_trajectories(trajectories: Sequence[Trajectory], path: Path) -> str:
    """Write a rollout; returns the file's sha256."""
    return _write([vars(t) for t in trajectories], [f.name for f in fields(Trajectory)], path)


def read_trajectories(path: Path) -> list[Trajectory]:
    """Read a rollout back, checking its hash."""
    return [
        Trajectory(
            **{
                **row,
                **{k: tuple(row[k]) for k in ("token_ids", "logprobs", "loss_mask", "texts", "events")},
                "turns": tuple((a, b) for a, b in row["turns"]),
            }
        )
        for row in _read(path)
    ]


def write_scores(scores: Sequence[Scores], path: Path) -> str:
    """Write scores; returns the file's sha256."""
    return _write([vars(s) for s in scores], [f.name for f in fields(Scores)], path)


def read_scores(path: Path) -> list[Scores]:
    """Read scores back, checking their hash."""
    return [Scores(row["episode_id"], tuple(row["turns"])) for row in _read(path)]


def _write(rows: list[dict[str, Any]], columns: list[str], path: Path) -> str:
    table = pd.DataFrame(
        [{k: json.dumps(v, ensure_ascii=False) for k, v in row.items()} for row in rows], columns=columns
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".partial")
    table.to_parquet(temporary, index=False)
    digest = hashlib.sha256(temporary.read_bytes()).hexdigest()
    path.with_suffix(".sha256").write_text(digest)
    os.replace(temporary, path)
    return digest


def intact(path: Path) -> bool:
    """Whether the file is there and has the hash it was written with."""
    mark = path.with_suffix(".sha256")
    return path.exists() and mark.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == mark.read_text()


def _read(path: Path) -> list[dict[str, Any]]:
    if not intact(path):
        raise TrainingError(
            f"{path} is missing or damaged; delete its folder and run the stage again, it resumes from the last complete step"
        )
    return [{str(k): json.loads(v) for k, v in row.items()} for row in pd.read_parquet(path).to_dict("records")]
