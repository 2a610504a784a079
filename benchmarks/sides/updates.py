"""The update alone: this project's learner, and what a first implementation does: pad all to one length, logits of
every position.

Both take the same made-up experience: episodes with lengths between a half and all of `length`, every second stretch of
16 tokens sampled by the policy.
"""

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers import PreTrainedModel

from benchmarks.engines import algorithm, choose_products
from benchmarks.setting import SEED, Shape, build, device, write_model
from benchmarks.sides.ours import squares
from benchmarks.worker import Figures, finish_gpu, resident_bytes, serve
from rl.experience import Scores, StopReason, Trajectory
from rl.learner import Learner
from rl.models import load_model
from rl.policies import policy_for

STRETCH = 16


@dataclass(frozen=True)
class Load:
    """How much one update has to learn from."""

    length: int  # tokens of the longest episode there can be
    group: int  # episodes of one case
    prompts: int
    micro_batch_tokens: int

    @property
    def episodes(self) -> int:
        """In one update."""
        return self.group * self.prompts


def experience(load: Load, vocabulary: int, step: int) -> list[Trajectory]:
    """Made-up episodes, the same on both sides."""
    rng = random.Random(f"{SEED}/{step}/{load}")
    made = []
    for number in range(load.episodes):
        size = rng.randint(load.length // 2, load.length)
        mask = tuple(int(place // STRETCH % 2) for place in range(size))
        turns = tuple((start, min(start + STRETCH, size)) for start in range(STRETCH, size, 2 * STRETCH))
        ids = tuple(rng.randrange(vocabulary) for _ in range(size))
        group = str(number // load.group)
        events, logprobs = ({"outcome": rng.random()},) * len(turns), (-math.log(vocabulary),) * size
        made.append(
            Trajectory(
                episode_id=f"{group}/{number}",
                case_id=group,
                group_id=group,
                sample=number % load.group,
                policy_version=step,
                turn_budget=len(turns),
                token_ids=ids,
                logprobs=logprobs,
                loss_mask=mask,
                turns=turns,
                texts=(),
                events=events,
                stop_reason=StopReason.ENDED,
                privileged={},
                started_s=0.0,
                ended_s=1.0,
            )
        )
    return made


class _Update:
    """What both sides share."""

    def __init__(self, shape: Shape, load: Load) -> None:
        self.shape, self.load, self.number = shape, load, 0
        self.model = self.made(shape, load.length).to(device())
        self.before = resident_bytes()

    def made(self, shape: Shape, context: int) -> PreTrainedModel:
        return build(shape, context)

    def run(self, channel: Connection) -> None:
        serve(channel, self.step)

    def step(self) -> Figures:
        trajectories = experience(self.load, self.shape.vocabulary, self.number)
        began = time.perf_counter()
        self.update(trajectories)
        finish_gpu()
        seconds = time.perf_counter() - began
        self.number += 1
        lengths = [len(t.token_ids) for t in trajectories]
        sampled = sum(t.sampled_tokens for t in trajectories)
        return {
            "update_s": seconds,
            "tokens": float(sum(lengths)),
            "loss_tokens": float(sampled),
            "model_bytes": float(self.before),
        } | squares(lengths)

    def update(self, trajectories: Sequence[Trajectory]) -> None:
        raise NotImplementedError


class Ours(_Update):
    """`rl.learner.Learner`."""

    def __init__(self, shape: Shape, load: Load) -> None:
        """Args: model shape, how much there is to learn from."""
        super().__init__(shape, load)
        torch.use_deterministic_algorithms(True)  # as `Session` does
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # torch's stubs
        rule = algorithm(load.group, load.episodes, load.micro_batch_tokens)
        self.learner = Learner(policy_for(self.model, rule), rule, load.prompts, 1.0, SEED)

    def made(self, shape: Shape, context: int) -> PreTrainedModel:
        """Loaded as the project loads its models."""
        choose_products()
        with TemporaryDirectory() as folder:
            return load_model(str(write_model(shape, context, Path(folder) / "model")), shape.dtype)[0]

    def update(self, trajectories: Sequence[Trajectory]) -> None:
        """One training phase of one gradient step."""
        self.learner.update(trajectories, [Scores(t.episode_id, t.events) for t in trajectories], self.number)


class Naive(_Update):
    """Episodes in the order they come, all padded to the longest; logits and log-probabilities of every position at
    once.
    """

    def __init__(self, shape: Shape, load: Load) -> None:
        """Args: model shape, how much there is to learn from."""
        super().__init__(shape, load)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6, weight_decay=0.0, betas=(0.9, 0.98))

    def update(self, trajectories: Sequence[Trajectory]) -> None:
        """One gradient step on the token-level clipped loss, in micro-batches of as many padded tokens."""
        load, width = self.load, max(len(t.token_ids) for t in trajectories)
        total = sum(t.sampled_tokens for t in trajectories)
        rows = max(load.micro_batch_tokens // width, 1)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        advantage = _advantages(trajectories, load.group)
        for start in range(0, len(trajectories), rows):
            some = trajectories[start : start + rows]
            token_BT = torch.tensor([[*t.token_ids, *[0] * (width - len(t.token_ids))] for t in some], device=device())
            mask_BT = torch.tensor([[*t.loss_mask, *[0] * (width - len(t.token_ids))] for t in some], device=device())[
                :, 1:
            ]
            logprob_BTV = torch.log_softmax(
                self.model(input_ids=token_BT, use_cache=False).logits[:, :-1].float(), dim=-1
            )
            logprob_BT = logprob_BTV.gather(2, token_BT[:, 1:, None])[..., 0]
            ratio_BT = (
                logprob_BT + math.log(self.shape.vocabulary)
            ).exp()  # as recorded: a fresh model is nearly uniform
            advantage_B1 = torch.tensor(advantage[start : start + rows], device=device())[:, None]
            loss_BT = -torch.minimum(ratio_BT * advantage_B1, ratio_BT.clamp(0.8, 1.28) * advantage_B1)
            ((loss_BT * mask_BT).sum() / total).backward()  # type: ignore[no-untyped-call]  # torch's stubs
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()


def _advantages(trajectories: Sequence[Trajectory], group: int) -> list[float]:
    reward_PG = torch.tensor([sum(event["outcome"] for event in t.events) for t in trajectories]).view(-1, group)
    centred_PG = reward_PG - reward_PG.mean(1, keepdim=True)
    return [float(value) for value in (centred_PG / (reward_PG.std(1, correction=0, keepdim=True) + 1e-6)).flatten()]
