"""The training phase: several gradient steps on one fixed, immutable set of trajectories. Nothing is generated here."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from rl.adapters import adapter_off, has_adapter
from rl.algorithms.advantages import Array
from rl.algorithms.base import Algorithm, Pass, TokenBatch, TokenRecord, TrainingSignal
from rl.algorithms.correction import mismatch
from rl.algorithms.losses import Totals
from rl.batching import MicroBatch, micro_batches, sibling_batches, size_of
from rl.errors import TrainingError
from rl.experience import Scores, Trajectory
from rl.optimizers import Optimizers, gradient_steps_per_rollout
from rl.parts import POLICY
from rl.policy import Policy, PolicyOutput, spread
from rl.ranks import ALONE, Ranks, load_weights, whole_tree
from rl.recomputation import ready_for_gradients
from rl.records import logprobs_of, make_records, values_of

Units = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Sampler:
    """What a learner has to know about whoever samples its experience. Made by the session, read by the learner."""

    # computes log-probabilities with these very weights, in this precision; then the pass for old log-probabilities is
    # skipped
    exact: bool
    staleness: int  # updates that the policy which sampled may be behind the learner


IN_STEP = Sampler(exact=True, staleness=0)


class Learner:
    """Owns the optimizers of the algorithm's parts and changes those in place; the frozen roles are only read."""

    def __init__(  # noqa: PLR0913  all that decides an update
        self,
        policy: Policy,
        algorithm: Algorithm,
        prompts: int,
        temperature: float,
        seed: int,
        frozen: Mapping[str, PreTrainedModel] = MappingProxyType({}),
        sampler: Sampler = IN_STEP,
        ranks: Ranks = ALONE,
    ) -> None:
        """Make what the algorithm's roles ask for.

        Args:
            policy: the live policy, made by `rl.policies.policy_for` with the same algorithm.
            algorithm: the learning rule.
            prompts: cases per rollout step; fixes the planned warm-up.
            temperature: of the sampling.
            seed: of the shuffling.
            frozen: the models of the frozen roles that the algorithm declares; not needed where the policy has an
                adapter, which can be switched off.
            sampler: how the engine relates to the learner.
            ranks: that learn together; each is given the same, and computes its share.

        Raises:
            TrainingError: the algorithm declares a frozen role and no model of it is given.
        """
        if set(algorithm.frozen_roles) - frozen.keys() and not has_adapter(policy.model):
            raise TrainingError(
                f"{type(algorithm).__name__} compares with frozen models ({', '.join(algorithm.frozen_roles)}), and none was given"
            )
        self.policy, self.model, self.critic = policy, policy.model, policy.critic
        self.algorithm, self.temperature, self.seed = algorithm, temperature, seed
        self.frozen = {role: Policy(model) for role, model in frozen.items()}
        self.sampler, self.ranks = sampler, ranks
        for held in self.frozen.values() if ranks.size > 1 else ():
            spread(held, None, ranks)
        self.optimizers = Optimizers(policy, algorithm, prompts, ranks)
        self.policy_version = 0

    def update(
        self,
        trajectories: Sequence[Trajectory],
        scores: Sequence[Scores],
        step: int,
        progress: Callable[[int, int], None] | None = None,
    ) -> dict[str, float]:
        """One training phase.

        Args:
            trajectories: of this rollout step, sampled by the current policy version.
            scores: same order.
            step: the rollout step, part of the shuffling seed.
            progress: called with (done, total) after each gradient step.

        Returns:
            Metrics: means over the updates applied, unless the name says otherwise.

        Raises:
            TrainingError: a trajectory was sampled by a policy version that is too old, or too many updates in a row
                were not finite.
        """
        behind = self._behind(trajectories)
        passes = self.algorithm.passes(self.policy_version)
        plays = self.algorithm.player(self.policy_version)
        self.policy.play(plays)
        prepared = self.policy.prepare(trajectories, self.algorithm.optimizer.micro_batch_tokens)
        only = self._is_one_step(passes, len(trajectories))
        records, metrics = self._records(trajectories, scores, look=not only)
        signal = self.algorithm.signal(records)
        metrics |= signal.metrics | prepared | behind
        applied: dict[str, list[float]] = defaultdict(list)
        steps = skipped = 0
        waits = self.optimizers.waits(plays, self.policy_version)
        self._ready()
        planned = sum(gradient_steps_per_rollout(len(signal.units), one.units, one.epochs) for one in passes)
        for one, units in self._mini_batches(passes, signal, step):
            compare = not steps and self.algorithm.on_policy
            found = self._gradient_step(one, units, trajectories, records, signal, compare=compare, only=only)
            steps += 1
            if progress is not None:
                progress(steps, planned)
            if found is None:
                skipped += 1
                continue
            means, fresh = found
            metrics = fresh | metrics  # a pass over all, if there was one, says it better
            for name, value in means.items():
                applied[name].append(value)
        self.policy.eval()
        self.policy.ended()
        self.optimizers.zero_grad()  # nobody plays beside them
        self.policy_version += 1
        metrics |= {name: sum(values) / len(values) for name, values in applied.items()}
        metrics["grad_norm"] = metrics.pop(f"{plays}_grad_norm", 0.0)
        metrics |= self.algorithm.finish(metrics, len(signal.units))
        rate = 0.0 if waits else self.optimizers.rate(plays)
        counted = {"gradient_steps": float(steps), "skipped_updates": float(skipped), "learning_rate": rate}
        counted["stalled"] = float(signal.silent or steps == skipped)
        return metrics | counted

    def _ready(self) -> None:
        """Prepare what learns, the critic's own trunk included, to compute its activations again where that is asked for."""
        for learned in filter(None, (self.policy.player, self.critic)):
            ready_for_gradients(learned)

    def _mini_batches(
        self, passes: Sequence[Pass], signal: TrainingSignal, step: int
    ) -> Iterator[tuple[Pass, list[tuple[int, ...]]]]:
        """Pass and units of every gradient step, shuffled anew in every epoch; epochs are counted through all passes."""
        epochs = [one for one in passes for _ in range(one.epochs)]
        for epoch, one in enumerate(epochs):
            order = list(signal.units)
            random.Random(f"{self.seed}/{step}/{epoch}").shuffle(order)
            for start in range(0, len(order), one.units):
                yield one, order[start : start + one.units]

    def _behind(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """How many updates the samplers are behind, where they may be; refuses what is too old."""
        for trajectory in trajectories:
            if (
                self.algorithm.on_policy
                and not 0 <= self.policy_version - trajectory.policy_version <= self.sampler.staleness
            ):
                raise TrainingError(
                    f"trajectory {trajectory.episode_id} was sampled by policy version {trajectory.policy_version}, the learner is at "
                    f"{self.policy_version}: training off-policy is refused; roll out again"
                )
        if not self.sampler.staleness or not trajectories:
            return {}
        return {"staleness": self.policy_version - sum(t.policy_version for t in trajectories) / len(trajectories)}

    def _is_one_step(self, passes: Sequence[Pass], trajectories: int) -> bool:
        """Whether a training phase is one gradient step, and nothing before it asks for the policy's log-probabilities:
        then the old ones are those that the step computes, since no weight has moved.
        """
        algorithm, first = self.algorithm, passes[0]
        asked = algorithm.needs_old_logprobs or algorithm.frozen_roles or not algorithm.on_policy
        return not asked and len(passes) == 1 and first.epochs == 1 and first.units >= trajectories

    def _records(
        self, trajectories: Sequence[Trajectory], scores: Sequence[Scores], *, look: bool
    ) -> tuple[list[TokenRecord], dict[str, float]]:
        """What has to be known before the first update, and how far sampler and trainer disagree if it was looked at
        here.

        Args:
            trajectories: of the phase.
            scores: same order.
            look: whether the trainer's own log-probabilities are wanted where the sampler's are not the same.
        """
        budget = self.algorithm.optimizer.micro_batch_tokens
        differs = self.algorithm.on_policy and not self.sampler.exact
        look_again = self.algorithm.needs_old_logprobs or (differs and look)
        old = logprobs_of(self.policy, trajectories, budget, self.temperature, self.ranks) if look_again else None
        frozen = {role: self._frozen_logprobs(role, trajectories) for role in self.algorithm.frozen_roles}
        values = values_of(self.policy, trajectories, budget, self.ranks) if self.critic is not None else None
        records = make_records(trajectories, scores, old, frozen, values)
        if old is None or not records:
            return records, {}
        return records, mismatch(np.concatenate(old), np.concatenate([record.sampler_logprob_A for record in records]))

    def _frozen_logprobs(self, role: str, trajectories: Sequence[Trajectory]) -> list[Array]:
        budget = self.algorithm.optimizer.micro_batch_tokens
        if role in self.frozen:
            return logprobs_of(self.frozen[role], trajectories, budget, self.temperature, self.ranks)
        with adapter_off(self.model):
            return logprobs_of(self.policy, trajectories, budget, self.temperature, self.ranks)

    def _gradient_step(
        self,
        one: Pass,
        units: Units,
        trajectories: Sequence[Trajectory],
        records: Sequence[TokenRecord],
        signal: TrainingSignal,
        *,
        compare: bool,
        only: bool,
    ) -> tuple[dict[str, float], dict[str, float]] | None:
        """One optimizer update; returns means over the mini-batch, and if asked (the policy is still the sampler's) how
        far sampler and trainer disagree. None: it was not finite, and was skipped. The `only` one of its phase is
        compared with itself.
        """
        chosen = [i for unit in units for i in unit]
        place = {i: k for k, i in enumerate(chosen)}
        together = [tuple(place[i] for i in unit) for unit in units]
        masks = [trajectories[i].loss_mask for i in chosen]
        total = Totals(sum(map(sum, masks)), len(chosen), len(units))
        means: dict[str, float] = defaultdict(float)
        seen: list[tuple[Array, Array]] = []
        self.optimizers.zero_grad()
        batches = self._batches([trajectories[i] for i in chosen], together)
        for batch, counts in self.ranks.deal(batches, size_of):
            tokens = self._token_batch(one, batch, chosen, together, records, signal, total)
            if only and not self.sampler.exact:
                tokens = replace(tokens, old_logprob_N=tokens.logprob_N.detach())
            loss, shares = one.loss(tokens)
            (loss if counts else 0.0 * loss).backward()  # type: ignore[no-untyped-call]  # torch's stubs
            if not counts:
                continue
            for name, value in shares.items():
                means[name] += value
            if compare:
                sampler_N = np.concatenate([records[chosen[i]].sampler_logprob_A for i in batch.index])
                seen.append((tokens.logprob_N.detach().double().cpu().numpy(), sampler_N))
        norms = self.optimizers.step(one, self.policy_version)
        if norms is None:
            return None
        seen, means = self.ranks.gather(seen), self.ranks.add(means)
        return means | norms, mismatch(*(np.concatenate(side) for side in zip(*seen, strict=True))) if seen else {}

    def _batches(self, trajectories: Sequence[Trajectory], together: Units) -> Iterator[MicroBatch]:
        budget = self.algorithm.optimizer.micro_batch_tokens
        tokens, masks = [t.token_ids for t in trajectories], [t.loss_mask for t in trajectories]
        families = [t.group_id for t in trajectories] if self.policy.apart else None
        cut = (
            sibling_batches(tokens, masks, budget, together)
            if self.critic is None
            else micro_batches(tokens, masks, budget, None, together, families)
        )
        return (self.policy.dressed(batch, [trajectories[i] for i in batch.index]) for batch in cut)

    def _token_batch(
        self,
        one: Pass,
        batch: MicroBatch,
        chosen: Sequence[int],
        together: Units,
        records: Sequence[TokenRecord],
        signal: TrainingSignal,
        total: Totals,
    ) -> TokenBatch:
        seen: PolicyOutput = self.policy(
            batch,
            self.temperature,
            values=self.critic is not None,
            entropy_gradient=self.algorithm.entropy_gradient,
            learning=one.parts,
        )
        nothing_N = torch.zeros(len(batch.row_N), device=self.model.device)  # of a pass that does not look
        logprob_N = seen.logprob_N if seen.logprob_N is not None else nothing_N
        entropy_N = seen.entropy_N if seen.entropy_N is not None else nothing_N
        value_N = seen.value_BT[batch.row_N, batch.source_N] if seen.value_BT is not None else None

        def gather(parts: Sequence[Array]) -> torch.Tensor:
            return torch.from_numpy(np.concatenate(parts)).to(logprob_N.device, torch.float32)

        unit_of = {i: number for number, unit in enumerate(together) for i in unit}
        unit_S = torch.unique(torch.tensor([unit_of[i] for i in batch.index]), return_inverse=True)[1].to(
            logprob_N.device
        )
        index = [chosen[i] for i in batch.index]
        some = [records[i] for i in index]
        return TokenBatch(
            sequence_N=batch.sequence_N.to(logprob_N.device),
            unit_S=unit_S,
            logprob_N=logprob_N,
            entropy_N=entropy_N,
            value_N=value_N,
            old_logprob_N=gather([r.old_logprob_A for r in some]),
            frozen_logprob_N={
                role: gather([r.frozen_logprob_A[role] for r in some]) for role in self.algorithm.frozen_roles
            },
            old_value_N=gather([r.value_A for r in some if r.value_A is not None]) if self.critic is not None else None,
            advantage_N=gather([signal.advantage[i] for i in index]),
            weight_N=gather([signal.weight[i] for i in index]),
            target_N=gather([signal.target[i] for i in index]) if signal.target is not None else None,
            adaptation=seen.adaptation,
            total=total,
        )

    def reset(self) -> None:
        """Begin anew with the policy as it is now: counters, moments and the other parts as they were made."""
        self.optimizers.reset()
        self.policy.begin()
        self.policy_version = 0

    def state(self) -> dict[str, Any]:
        """What a resumed run needs besides the policy's weights: of every part weights and optimizer, and the counters."""
        others = {name: whole_tree(module.state_dict()) for name, module in self._others().items()}
        counted = {"policy_version": self.policy_version, "algorithm": self.algorithm.state()}
        return counted | others | self.optimizers.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from `state()`, or from that of a checkpoint of before there were parts."""
        self.policy_version = state["policy_version"]
        self.algorithm.load_state(state["algorithm"])
        for name, module in self._others().items():
            load_weights(module, state[name])
        self.optimizers.load_state(state)

    def _others(self) -> dict[str, torch.nn.Module]:
        """The parts beside the policy, whose weights are a model folder of their own."""
        return {part.name: self.policy.parts[part.name] for part in self.algorithm.parts if part.name != POLICY}
