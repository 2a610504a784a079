"""This project: `Session`, `play` and `Learner` as the pipeline uses them, on a patient with nothing to compute."""

import os
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

from benchmarks.engines import ForcedEngine, algorithm, open_session, rollout_params
from benchmarks.patient import Patient
from benchmarks.setting import SEED, Task, context_of, device
from benchmarks.worker import Figures, serve
from rl.environment import EpisodeSpec
from rl.experience import Scores, Trajectory

TEMPERATURE = 1.0


class Ours:
    """Steps of rollout, scoring and one gradient step; or of the rollout alone."""

    def __init__(self, engine: str, task: Task, *, learns: bool, slots: int | None = None) -> None:
        """Args: engine by name, what to play with what, whether it learns, episodes in the engine at once (None: all)."""
        if device() == "cuda":
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # the project asks for deterministic algorithms
        self.played, self.variant, self.number, self.learns = task.played, task.variant, 0, learns
        played = task.played
        params = rollout_params(
            engine,
            prompts=played.prompts,
            response_length=played.longest,
            max_episode_tokens=context_of(played),
            slots=slots or played.episodes,
            max_failed_share=0.0,
        )
        rule = algorithm(played.samples, played.episodes, task.micro_batch_tokens)
        self.session = open_session(
            engine,
            task.model,
            task.shape.dtype,
            params,
            rule,
            TEMPERATURE,
            lambda spec, _: Patient(spec.case, spec.turn_budget),
        )
        self.engine = ForcedEngine(self.session.engine, self._length)
        self.session.engine = self.engine  # type: ignore[assignment]

    def _length(self, session: str, turn: int) -> int:
        group, sample = session.split("/")
        return self.played.length(self.variant, self.number, int(group.split(".")[1]), int(sample), turn)

    def _specs(self) -> list[EpisodeSpec]:
        turns = self.played.turns
        return [
            EpisodeSpec(
                case_id=f"{prompt}",
                group_id=f"{self.number}.{prompt}",
                sample=sample,
                turn_budget=turns,
                noise=(SEED, self.number),
                case=prompt,
                privileged={},
            )
            for prompt in range(self.played.prompts)
            for sample in range(self.played.samples)
        ]

    def run(self, channel: Connection) -> None:
        """Step whenever asked to."""
        serve(channel, self.step)

    def step(self) -> Figures:
        """One step; seconds of its phases and what was played."""
        self.number += 1
        self.engine.take_s = 0.0
        began = time.perf_counter()
        trajectories = self.session.rollout(self._specs(), TEMPERATURE)
        played = time.perf_counter()
        figures = counts(trajectories) | {"rollout_s": played - began}
        if self.learns:
            self.session.learn(trajectories, [Scores(t.episode_id, t.events) for t in trajectories], self.number)
            figures |= {"update_s": time.perf_counter() - played, "sync_s": self.engine.take_s}
        return figures


def counts(trajectories: Sequence[Trajectory]) -> Figures:
    """What was played."""
    lengths = [len(t.token_ids) for t in trajectories]
    return {
        "episodes": float(len(trajectories)),
        "sampled_tokens": float(sum(t.sampled_tokens for t in trajectories)),
        "tokens": float(sum(lengths)),
    } | squares(lengths)


def squares(lengths: Sequence[int]) -> Figures:
    """Sum of squared lengths: what attention costs."""
    return {"squared_tokens": float(sum(length**2 for length in lengths))}
