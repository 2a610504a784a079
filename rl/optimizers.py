"""The optimizers of a policy's parts: whose turn it is, how fast, what is skipped, and what a resumed run needs of them."""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from rl.algorithms.base import Algorithm, Pass
from rl.errors import TrainingError
from rl.parts import POLICY
from rl.policy import Policy
from rl.ranks import Ranks, load_optimizer, whole_tree

log = logging.getLogger(__name__)
SKIPS_ALLOWED = 2  # gradient steps in a row with a loss or gradient that is not finite


def gradient_steps_per_rollout(units: int, units_per_gradient_step: int, num_epochs: int) -> int:
    """How many optimizer updates one training phase makes (8192 trajectories / 512 x 1 epoch = 16)."""
    return math.ceil(units / units_per_gradient_step) * num_epochs


class Optimizers:
    """An AdamW for each part that is learned by gradient. Owned by the learner; changes the parts in place."""

    def __init__(self, policy: Policy, algorithm: Algorithm, prompts: int, ranks: Ranks) -> None:
        """Nothing is kept of any weight yet.

        Args:
            policy: whose parts they are.
            algorithm: says which there are, how fast they learn and which wait.
            prompts: cases per rollout step; fixes the planned warm-up.
            ranks: that learn together.
        """
        self._policy, self._algorithm, self._prompts, self._ranks = policy, algorithm, prompts, ranks
        self._rates = {part.name: part.learning_rate for part in algorithm.parts if part.learning_rate is not None}
        self.of = {name: self._adamw(policy.parts[name], rate) for name, rate in self._rates.items()}
        self.updates = dict.fromkeys(self.of, 0)  # of each part; some wait while others learn
        self.gradient_step = self.skipped_in_a_row = 0

    def _adamw(self, part: torch.nn.Module, learning_rate: float) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            part.parameters(),
            lr=learning_rate,
            weight_decay=self._algorithm.optimizer.weight_decay,
            betas=(0.9, 0.98),
            fused=self._policy.model.device.type == "cuda" or None,
        )

    def zero_grad(self) -> None:
        """Give the gradients' memory back."""
        for optimizer in self.of.values():
            optimizer.zero_grad(set_to_none=True)

    def moments_to(self, device: torch.device) -> None:
        """Move what the optimizers keep of every weight."""
        for optimizer in self.of.values():
            for held in optimizer.state.values():
                for name, value in held.items():
                    if torch.is_tensor(value) and value.dim():  # the count of steps stays where it is
                        held[name] = value.to(device)

    def waits(self, part: str, policy_version: int) -> bool:
        """Whether a part stays as it is in the training phase that begins at this version."""
        return any(policy_version < one.waits for one in self._algorithm.parts if one.name == part)

    def step(self, one: Pass, policy_version: int) -> dict[str, float] | None:
        """Update the parts of a pass by the gradients that the ranks found, each part's clipped apart.

        Returns:
            Their norms before they were clipped; None: one is not finite, and nothing was updated.

        Raises:
            TrainingError: that is the third in a row.
        """
        norms = self._clipped(one.parts)
        if not all(map(math.isfinite, norms.values())):
            self._skip(max(norms.values(), key=math.isnan))
            return None
        self.skipped_in_a_row = 0
        for name in one.parts:
            if not self.waits(name, policy_version):
                for group in self.of[name].param_groups:
                    group["lr"] = self._rates[name] * self._warmth(one, self.updates[name])
                self.of[name].step()
                self.updates[name] += 1
        self.gradient_step += 1
        return {f"{name}_grad_norm": norm for name, norm in norms.items()}

    def _clipped(self, parts: Sequence[str]) -> dict[str, float]:
        limit, modules = self._algorithm.optimizer.max_grad_norm, self._policy.parts
        self._ranks.add_gradients(parameter for name in parts for parameter in modules[name].parameters())
        return {name: float(torch.nn.utils.clip_grad_norm_(modules[name].parameters(), limit)) for name in parts}

    def _skip(self, norm: float) -> None:
        self.skipped_in_a_row += 1
        log.warning("gradient step %d skipped: gradient norm is %s", self.gradient_step, norm)
        if self.skipped_in_a_row > SKIPS_ALLOWED:
            raise TrainingError(
                f"{self.skipped_in_a_row} gradient steps in a row had a loss or gradient that is not finite; lower optimizer.learning_rate in the recipe"
            )

    def _warmth(self, one: Pass, updates: int) -> float:
        """Share of the learning rate after so many updates of the part whose rate it is."""
        steps = self.warmup_gradient_steps(one)
        return min(1.0, (updates + 1) / steps) if steps else 1.0

    def warmup_gradient_steps(self, one: Pass) -> int:
        """Over how many gradient steps of a pass rates rise, by the number that is planned."""
        planned = self._algorithm.planned_units(self._prompts)
        return self._algorithm.optimizer.warmup_rollout_steps * gradient_steps_per_rollout(
            planned, one.units, one.epochs
        )

    def rate(self, part: str) -> float:
        """The learning rate that a part was last updated with."""
        return float(self.of[part].param_groups[0]["lr"])

    def reset(self) -> None:
        """Begin anew: no moments, no counts."""
        for optimizer in self.of.values():
            optimizer.state.clear()
        self.updates = dict.fromkeys(self.of, 0)
        self.gradient_step = self.skipped_in_a_row = 0

    def state(self) -> dict[str, Any]:
        """What a resumed run needs: counters, and the moments of every part."""
        counted = {"updates": dict(self.updates), "gradient_step": self.gradient_step}
        moments = {_key(name): whole_tree(optimizer.state_dict()) for name, optimizer in self.of.items()}
        return counted | {"skipped_in_a_row": self.skipped_in_a_row} | moments

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `state()`, or from that of a checkpoint of before there were parts."""
        self.gradient_step, self.skipped_in_a_row = state["gradient_step"], state["skipped_in_a_row"]
        # before parts had names there were two: the policy, which may have waited, and the critic, which never did
        counted = state.get("updates") or {"policy": state["policy_updates"], "critic": state["gradient_step"]}
        self.updates = {name: counted[name] for name in self.updates}
        for name, optimizer in self.of.items():
            load_optimizer(optimizer, state[_key(name)])


def _key(part: str) -> str:
    """Where a part's optimizer is in the state."""
    return "optimizer" if part == POLICY else f"{part}_optimizer"
