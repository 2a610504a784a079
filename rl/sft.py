"""Supervised fine-tuning: next-token loss on chosen tokens of recorded dialogues."""

import logging
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from rl.batching import computed_tokens, micro_batches
from rl.branches import Branch
from rl.config import SFTParams
from rl.errors import TrainingError
from rl.halfway import Halfway
from rl.machine import compute_alike
from rl.policy import Policy
from rl.recomputation import ready_for_gradients

log = logging.getLogger(__name__)
SHOWN = 50  # gradient steps in the loss of a report


@dataclass(frozen=True)
class Example:
    """One dialogue: token ids, loss mask, and alternative endings that share its beginning."""

    token_ids: Sequence[int]
    loss_mask: Sequence[int]
    branches: tuple[Branch, ...] = ()

    @property
    def loss_weight(self) -> float:
        """Sum of the weights in the loss over all tokens, branches included; 1 for each masked token of the dialogue."""
        return sum(self.loss_mask) + sum(sum(b.loss_weight) for b in self.branches)

    @property
    def tokens(self) -> int:
        """How many tokens are computed, branches included."""
        return computed_tokens(self.token_ids, self.branches)


@dataclass(frozen=True)
class SFTPoint:
    """One gradient step."""

    step: int
    steps: int
    loss: float  # mean over the last steps
    tokens_per_second: float


def train_supervised(
    policy: Policy,
    examples: Sequence[Example],
    params: SFTParams,
    report: Callable[[SFTPoint], None] | None = None,
    halfway: Halfway | None = None,
) -> float:
    """Train in place; returns the weighted mean loss (nats per token) of the last tenth of the steps.

    The loss of a gradient step is the weighted mean over all its tokens, however it is cut into micro-batches.
    The learning rate rises linearly, then falls to zero as a cosine. There is no dropout. With `halfway` it goes on where
    an earlier process was stopped.

    Raises:
        TrainingError: no examples, or the loss is not finite.
    """
    if not examples:
        raise TrainingError("no examples to train on; raise the number of training cases or dialogues in params.yaml")
    compute_alike(policy.model.device.type)
    optimizers = _optimizers(policy, params)
    rng = random.Random(params.seed)
    batches = [b for _ in range(params.epochs) for b in _shuffled(len(examples), params.batch_size, rng)]
    warmup = max(1, int(params.warmup_share * len(batches)))
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(
            o, lambda s: min(1.0, (s + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * s / len(batches)))
        )
        for o in optimizers
    ]
    ready_for_gradients(policy)
    losses = [] if halfway is None else halfway.begin(policy.model, optimizers, schedules)
    started, tokens = time.monotonic(), 0
    for step, batch in enumerate(batches[len(losses) :], len(losses) + 1):
        losses.append(_step(policy, optimizers, [examples[i] for i in batch], params))
        for schedule in schedules:
            schedule.step()
        tokens += sum(examples[i].tokens for i in batch)
        if not math.isfinite(losses[-1]):
            raise TrainingError(
                f"supervised loss became {losses[-1]} at gradient step {step}; lower the learning_rate of this training in params.yaml"
            )
        if halfway is not None:
            halfway.keep(policy.model, optimizers, schedules, losses)
        if report is not None:
            report(
                SFTPoint(
                    step,
                    len(batches),
                    sum(losses[-SHOWN:]) / len(losses[-SHOWN:]),
                    tokens / (time.monotonic() - started),
                )
            )
    tail = losses[-max(1, len(losses) // 10) :]
    return sum(tail) / len(tail)


def _shuffled(count: int, size: int, rng: random.Random) -> list[list[int]]:
    order = list(range(count))
    rng.shuffle(order)
    return [order[i : i + size] for i in range(0, count, size)]


def _optimizers(policy: Policy, params: SFTParams) -> list[torch.optim.Optimizer]:
    """AdamW over everything, or Muon (orthogonalised momentum, its update scaled to AdamW's size: one learning rate
    fits both) over the matrices of the layers.
    """
    matrices = (
        [p for name, p in policy.named_parameters() if p.ndim == 2 and "layers." in name]
        if params.optimizer == "muon"
        else []
    )
    chosen = {id(p) for p in matrices}
    others = [p for p in policy.parameters() if id(p) not in chosen]
    adamw = torch.optim.AdamW(others, lr=params.learning_rate, weight_decay=params.weight_decay, betas=(0.9, 0.98))
    if not matrices:
        return [adamw]
    return [
        adamw,
        torch.optim.Muon(
            matrices, lr=params.learning_rate, weight_decay=params.weight_decay, adjust_lr_fn="match_rms_adamw"
        ),
    ]


def _step(
    policy: Policy, optimizers: Sequence[torch.optim.Optimizer], examples: Sequence[Example], params: SFTParams
) -> float:
    branches = [e.branches for e in examples] if any(e.branches for e in examples) else None
    weight = sum(e.loss_weight for e in examples)
    total = 0.0
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    for batch in micro_batches(
        [e.token_ids for e in examples], [e.loss_mask for e in examples], params.micro_batch_tokens, branches
    ):
        logprob_N = policy.logprobs(batch, temperature=1.0)
        loss = -(batch.weight_N.to(logprob_N.device) * logprob_N).sum() / weight
        loss.backward()  # type: ignore[no-untyped-call]  # torch's stubs
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), params.max_grad_norm)
    for optimizer in optimizers:
        optimizer.step()
    return total
