"""A student that acts by soft tokens teaches a copy of itself to act without them: an ordinary model folder."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import torch
from transformers import PreTrainedModel

from rl.adapters import add_adapter, has_adapter, load_merged, named_weights, without_adapters
from rl.algorithms.adaptation import FoldParams
from rl.batching import MicroBatch, micro_batches
from rl.config import LoraParams
from rl.divergence import at_loss, kl_between
from rl.errors import TrainingError
from rl.experience import Trajectory
from rl.features import AdaptModule, dialogues, soft_places, with_vectors


def fold(
    student: PreTrainedModel,
    adapt: AdaptModule,
    trajectories: Sequence[Trajectory],
    params: FoldParams,
    temperature: float,
    seed: int,
    lora: LoraParams | None = None,
) -> tuple[PreTrainedModel, dict[str, float]]:
    """Teach a copy by KL(student || copy) over the whole vocabulary at every action token of the student's own
    trajectories; the copy reads the same dialogues without their soft tokens.

    Args:
        student: in eval mode; with the adapter of an earlier training, that one adds nothing any more.
        adapt: predicts its features.
        trajectories: that it played.
        params: of the recipe.
        temperature: of the sampling.
        seed: of the order.
        lora: the adapter, if the copy learns by one; it is added in at the end.

    Returns:
        The copy, and its KL over the trajectories before and after (`fold/kl_before`, `fold/kl_after`, nats a token).

    Raises:
        TrainingError: nothing was sampled in the trajectories, or the copy says nothing any more that is a number.
    """
    some = [trajectory for trajectory in trajectories if trajectory.sampled_tokens]
    if not some:
        raise TrainingError("the student sampled nothing, so that there is nothing to fold; look at its rollouts")
    model = _pupil(student, lora, seed)
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=params.learning_rate, weight_decay=0.0, betas=(0.9, 0.98))

    def kl(chosen: Sequence[Trajectory], *, learn: bool) -> float:
        tokens, total = sum(trajectory.sampled_tokens for trajectory in chosen), 0.0
        for told, plain in _pairs(chosen, adapt, params.micro_batch_tokens):
            with torch.no_grad():
                wanted_ND = at_loss(student, told)
            with torch.set_grad_enabled(learn):
                loss = kl_between(student, wanted_ND, model, at_loss(model, plain), temperature).sum() / tokens
            if learn:
                loss.backward()  # type: ignore[no-untyped-call]  # torch's stubs
            total += loss.item()
        return total

    before, rng = kl(some, learn=False), random.Random(seed)
    starts = [start for _ in range(params.num_epochs) for start in range(0, len(some), params.mini_batch_size)]
    for step, start in enumerate(starts):
        if not start:
            rng.shuffle(some)
        optimizer.zero_grad(set_to_none=True)
        kl(some[start : start + params.mini_batch_size], learn=True)
        optimizer.param_groups[0]["lr"] = params.learning_rate * (1 - step / len(starts))
        torch.nn.utils.clip_grad_norm_(learned, params.max_grad_norm)
        optimizer.step()
    after = _a_number(kl(some, learn=False))
    return _graduated(model), {"fold/kl_before": before, "fold/kl_after": after}


def _a_number(kl: float) -> float:
    if not math.isfinite(kl):
        raise TrainingError(
            f"the KL of the folded copy to the student became {kl}; lower fold.learning_rate in the recipe"
        )
    return kl


def _pupil(student: PreTrainedModel, lora: LoraParams | None, seed: int) -> PreTrainedModel:
    """A copy of which all weights learn, or an adapter."""
    model: PreTrainedModel = without_adapters(student).requires_grad_(True)
    if lora is not None:
        add_adapter(model, lora, seed)
    return model


def _graduated(model: PreTrainedModel) -> PreTrainedModel:
    """An ordinary model, an adapter added in."""
    if has_adapter(model):
        weights = dict(named_weights(model))
        model = without_adapters(model)
        load_merged(model, weights)
    return model.eval()


def _pairs(trajectories: Sequence[Trajectory], adapt: AdaptModule, budget: int) -> list[tuple[MicroBatch, MicroBatch]]:
    """Micro-batches of trajectories with the student's vectors, and of the same without placeholders: the same action
    tokens in the same order.
    """
    found = []
    tokens, masks = [t.token_ids for t in trajectories], [t.loss_mask for t in trajectories]
    for batch in micro_batches(tokens, masks, budget, None, None, [t.episode_id for t in trajectories]):
        mine = [trajectories[i] for i in batch.index]
        width, places = batch.token_BT.shape[1], [soft_places(t, adapt.tokens) for t in mine]
        with torch.no_grad():
            (dialogue,) = dialogues(mine, adapt.tokens, 0)
            vector_KMW = adapt(dialogue)
        place_F = torch.tensor([row * width + place for row, at in enumerate(places) for place in at])
        kept = [[k for k in range(len(t.token_ids)) if k not in set(at)] for t, at in zip(mine, places, strict=True)]
        rows = [
            ([t.token_ids[k] for k in row], [t.loss_mask[k] for k in row]) for t, row in zip(mine, kept, strict=True)
        ]
        (plain,) = micro_batches([ids for ids, _ in rows], [mask for _, mask in rows], 1, None, [range(len(rows))])
        found.append((with_vectors(batch, place_F, vector_KMW), replace(plain, index=batch.index)))
    return found
