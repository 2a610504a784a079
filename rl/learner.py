"""The training phase: several gradient steps on one fixed, immutable set of trajectories. Nothing is generated here."""

import logging
import math
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from rl.algorithms.base import Algorithm, TokenBatch
from rl.batching import MicroBatch, micro_batches, token_logprobs
from rl.errors import TrainingError
from rl.experience import Scores, Trajectory

log = logging.getLogger(__name__)
SKIPS_ALLOWED = 2  # gradient steps in a row with a loss or gradient that is not finite


def gradient_steps_per_rollout(trajectories: int, mini_batch_size: int, num_epochs: int) -> int:
    """How many optimizer updates one training phase makes (8192 trajectories / 512 x 1 epoch = 16)."""
    return math.ceil(trajectories / mini_batch_size) * num_epochs


class Learner:
    """Owns the optimizer; changes the model in place."""

    def __init__(self, model: PreTrainedModel, algorithm: Algorithm, prompts: int, temperature: float, seed: int) -> None:
        """Args: the live model, the learning rule, cases per rollout step (fixes the planned warm-up), sampling temperature, shuffling seed."""
        self.model, self.algorithm, self.temperature, self.seed = model, algorithm, temperature, seed
        params = algorithm.optimizer
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=params.learning_rate, weight_decay=params.weight_decay, betas=(0.9, 0.98))
        planned = gradient_steps_per_rollout(prompts * algorithm.group_size, params.mini_batch_size, params.num_epochs)
        self.warmup_gradient_steps = params.warmup_rollout_steps * planned
        self.gradient_step = 0
        self.skipped_in_a_row = 0
        self.policy_version = 0

    def update(self, trajectories: Sequence[Trajectory], scores: Sequence[Scores], step: int) -> dict[str, float]:
        """One training phase.

        Args:
            trajectories: of this rollout step, sampled by the current policy version.
            scores: same order.
            step: the rollout step, part of the shuffling seed.

        Returns:
            Metrics, means over the sampled tokens of the updates applied, unless the name says otherwise.

        Raises:
            TrainingError: a trajectory was sampled by another policy version, or too many updates in a row were not finite.
        """
        for trajectory in trajectories:
            if trajectory.policy_version != self.policy_version:
                raise TrainingError(
                    f"trajectory {trajectory.episode_id} was sampled by policy version {trajectory.policy_version}, the learner is at "
                    f"{self.policy_version}: training off-policy is refused; roll out again"
                )
        advantages, metrics = self.algorithm.advantages(trajectories, scores)
        params = self.algorithm.optimizer
        learnable = [i for i, t in enumerate(trajectories) if t.sampled_tokens]
        totals: dict[str, float] = defaultdict(float)
        steps = tokens = skipped = 0
        self.model.train()
        for epoch in range(params.num_epochs):
            rng = random.Random(f"{self.seed}/{step}/{epoch}")
            order = learnable[:]
            rng.shuffle(order)
            for start in range(0, len(order), params.mini_batch_size):
                chosen = order[start : start + params.mini_batch_size]
                sums, count, norm = self._gradient_step([trajectories[i] for i in chosen], [advantages[i] for i in chosen])
                steps += 1
                if not math.isfinite(norm):
                    skipped += 1
                    continue
                tokens += count
                for name, value in {**sums, "grad_norm": norm}.items():
                    totals[name] += value
        self.model.eval()
        self.policy_version += 1
        grad_norm = totals.pop("grad_norm", 0.0) / max(steps - skipped, 1)
        metrics |= {name: value / max(tokens, 1) for name, value in totals.items()}
        rate = float(self.optimizer.param_groups[0]["lr"])  # the last one used
        return metrics | {"grad_norm": grad_norm, "gradient_steps": float(steps), "skipped_updates": float(skipped), "learning_rate": rate}

    def _gradient_step(self, trajectories: Sequence[Trajectory], advantages: Sequence[Sequence[float]]) -> tuple[dict[str, float], int, float]:
        params = self.algorithm.optimizer
        masks = [t.loss_mask for t in trajectories]
        count = sum(map(sum, masks))
        sums: dict[str, float] = defaultdict(float)
        self.optimizer.zero_grad(set_to_none=True)
        for batch in micro_batches([t.token_ids for t in trajectories], masks, params.micro_batch_tokens):
            tokens = self._token_batch(batch, trajectories, advantages, count)
            loss, parts = self.algorithm.loss(tokens)
            loss.backward()  # type: ignore[no-untyped-call]  # torch's stubs
            for name, value in parts.items():
                sums[name] += value
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), params.max_grad_norm))
        self._apply(norm)
        return sums, count, norm

    def _token_batch(self, batch: MicroBatch, trajectories: Sequence[Trajectory], advantages: Sequence[Sequence[float]], count: int) -> TokenBatch:
        logprob_N, entropy_N = token_logprobs(self.model, batch, self.temperature)
        old, advantage = [], []
        for row, place in zip(batch.row_N.tolist(), (batch.source_N + 1).tolist(), strict=True):
            i = batch.index[row]
            old.append(trajectories[i].logprobs[place])
            advantage.append(advantages[i][place])
        device = logprob_N.device
        return TokenBatch(logprob_N, torch.tensor(old, device=device), torch.tensor(advantage, device=device), entropy_N, count)

    def _apply(self, norm: float) -> None:
        """Update the weights, unless the gradient is not finite: then skip, and stop after the third in a row."""
        if not math.isfinite(norm):
            self.skipped_in_a_row += 1
            log.warning("gradient step %d skipped: gradient norm is %s", self.gradient_step, norm)
            if self.skipped_in_a_row > SKIPS_ALLOWED:
                raise TrainingError(f"{self.skipped_in_a_row} gradient steps in a row had a loss or gradient that is not finite; lower optimizer.learning_rate in the recipe")
            return
        self.skipped_in_a_row = 0
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate()
        self.optimizer.step()
        self.gradient_step += 1

    def _learning_rate(self) -> float:
        share = min(1.0, (self.gradient_step + 1) / self.warmup_gradient_steps) if self.warmup_gradient_steps else 1.0
        return self.algorithm.optimizer.learning_rate * share

    def state(self) -> dict[str, Any]:
        """What a resumed run needs besides the weights."""
        return {"optimizer": self.optimizer.state_dict(), "gradient_step": self.gradient_step, "policy_version": self.policy_version, "skipped_in_a_row": self.skipped_in_a_row}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from `state()`."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.gradient_step, self.policy_version = state["gradient_step"], state["policy_version"]
        self.skipped_in_a_row = state["skipped_in_a_row"]
