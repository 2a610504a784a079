"""Do trainer, engine and the model's own forward pass agree? Looked at on two random dialogues when a session opens.

The engine plays two short turns of each; the trainer reads them again in each of its ways (padded, packed into a row,
as siblings behind one opening). A kind of model whose arithmetic one of them does not know shows as a difference.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedModel

from rl import stoppable
from rl.batching import MicroBatch, micro_batches, sibling_batches, token_logprobs
from rl.config import RolloutParams
from rl.engines.base import Engine, Request, Sampling
from rl.engines.transformers import TransformersEngine
from rl.errors import TrainingError, first_line
from rl.flex import reads_rows
from rl.logits import known_ids
from rl.packing import packable
from rl.windows import shortest_window

log = logging.getLogger(__name__)
EXACT = 1e-4  # nats, in float32; a forgotten window or scale makes .8 and more
ROUNDED = 0.5  # nats, in 16 bits: bfloat16 has steps of .125 between 16 and 32, where the largest logits are
OPENING, REPLY, TURNS = 40, 4, (4, 3)  # tokens; a turn of the first dialogue and of the second
REST = 2 * TURNS[0] + REPLY  # tokens behind the opening, at most
BEYOND = 8  # tokens of an opening that is longer than the window
LONGEST = 1024  # tokens; a longer window would take too long to fill
Reading = Callable[..., Iterator[MicroBatch]]


@dataclass
class _Dialogue:
    """What the engine made of a random opening; two turns."""

    token_ids: list[int]
    loss_mask: list[int]
    logprobs: list[float]  # of the tokens with loss, by the engine


def disagreements(model: PreTrainedModel, rollout: RolloutParams, engine: Engine | None = None) -> dict[str, float]:
    """Largest |delta log p| from the model's own forward pass, nats: of the engine, and of each way of the trainer.

    Args:
        model: in eval mode.
        rollout: limits of the sessions.
        engine: idle; it plays with the model's weights. None: one on transformers.
    """
    opening = _opening_length(model, rollout.max_episode_tokens)
    seats = min(rollout.slots, len(TURNS))
    engine = engine or TransformersEngine(model, seats, opening + REST)
    dialogues = stoppable.run(_play(engine, seats, known_ids(model), opening))
    with torch.no_grad():
        own = [_own(model, dialogue) for dialogue in dialogues]
        found = {"engine": [torch.tensor(dialogue.logprobs) for dialogue in dialogues]}
        for name, cut in _readings(model, max(len(dialogue.token_ids) for dialogue in dialogues)).items():
            found[name] = _read(model, dialogues, cut)
    return {
        name: float((torch.cat(values) - torch.cat(own)).abs().max())  # nan, if one of them is
        for name, values in found.items()
    }


def refuse_disagreement(
    name: str, model: PreTrainedModel, rollout: RolloutParams, engine: Engine | None = None
) -> float:
    """Stop where trainer, engine and model differ; returns how far the engine is from the trainer, nats, at most.

    Args: what the model is called, and those of `disagreements`.

    Raises:
        TrainingError: they differ by more than rounding, or one of them cannot run this kind of model.
    """
    places = getattr(model.config.get_text_config(), "max_position_embeddings", None) or rollout.max_episode_tokens
    if rollout.max_episode_tokens > places:
        log.warning(
            "%s was made for %d tokens (max_position_embeddings in its config.json), and what a dialogue says beyond them is read badly: rollout.max_episode_tokens is %d",
            name,
            places,
            rollout.max_episode_tokens,
        )
    try:
        found = disagreements(model, rollout, engine)
    except torch.OutOfMemoryError:  # says nothing of the kind of model
        raise
    except (RuntimeError, AttributeError, TypeError, KeyError, IndexError, ValueError) as error:
        raise TrainingError(
            f"{name}: this kind of model ({model.config.model_type}) cannot be played or trained here "
            f"({type(error).__name__}: {first_line(error)}); use another model"
        ) from error
    tolerance = EXACT if model.dtype == torch.float32 else ROUNDED
    for who, difference in found.items():
        if not difference <= tolerance:
            pair = who if who == "engine" else f"trainer ({who})"
            raise TrainingError(
                f"{name}: log-probabilities of the {pair} and of the model's own forward pass differ by {difference:.2g}, "
                f"more than {tolerance:g}: this kind of model ({model.config.model_type}) would be trained wrongly; use another model"
            )
    return found.pop("engine") + max(found.values())


def _opening_length(model: PreTrainedModel, max_length: int) -> int:
    window = shortest_window(model.config.get_text_config())
    wanted = OPENING
    if window is not None and window < max_length:
        if window <= LONGEST:
            wanted = max(OPENING, window + BEYOND)
        else:
            log.warning("a window of %d tokens is too long for the check at opening: not looked at", window)
    return max(1, min(wanted, max_length - REST))


async def _play(engine: Engine, together: int, vocabulary: int, opening: int) -> list[_Dialogue]:
    rng, seats = random.Random(0), asyncio.Semaphore(together)
    ids = [rng.randrange(vocabulary) for _ in range(opening)]
    reply = [rng.randrange(vocabulary) for _ in range(REPLY)]

    async def converse(number: int) -> _Dialogue:
        session = f"self-check {number}"
        dialogue = _Dialogue([], [], [])
        sampling = Sampling(1.0, TURNS[number], None)
        async with seats:
            try:
                for turn, new in enumerate((ids, reply)):
                    completion = await engine.generate(Request(session, tuple(new), 2 * number + turn, sampling))
                    dialogue.token_ids += [*new, *completion.token_ids]
                    dialogue.loss_mask += [0] * len(new) + [1] * len(completion.token_ids)
                    dialogue.logprobs += completion.logprobs
            finally:
                engine.release(session)
        return dialogue

    played = list(await asyncio.gather(*map(converse, range(len(TURNS)))))
    await engine.close()
    return played


def _own(model: PreTrainedModel, dialogue: _Dialogue) -> torch.Tensor:
    """Of the tokens with loss, by the model's own forward pass."""
    ids = torch.tensor(dialogue.token_ids, device=model.device)
    place = torch.tensor(dialogue.loss_mask, device=model.device).nonzero()[:, 0]
    logits_TV = model(input_ids=ids[None], use_cache=False).logits[0, place - 1, : known_ids(model)].float()
    return torch.log_softmax(logits_TV, dim=-1).gather(1, ids[place, None])[:, 0].cpu()


def _readings(model: PreTrainedModel, length: int) -> dict[str, Reading]:
    """The trainer's ways of cutting dialogues into batches."""

    def padded(*cut: object) -> Iterator[MicroBatch]:
        return (replace(batch, packing=None) for batch in micro_batches(*cut))  # type: ignore[arg-type]

    ways: dict[str, Reading] = {"padded": padded, "siblings": sibling_batches}
    in_a_row = reads_rows(model.get_decoder()) or packable(model.get_decoder(), length)
    return ways | ({"packed": micro_batches} if in_a_row else {})


def _read(model: PreTrainedModel, dialogues: Sequence[_Dialogue], cut: Reading) -> list[torch.Tensor]:
    """Of the tokens with loss, by the trainer."""
    found: dict[int, torch.Tensor] = {}
    masks = [dialogue.loss_mask for dialogue in dialogues]
    budget = sum(map(len, masks)) * len(masks)
    for batch in cut([dialogue.token_ids for dialogue in dialogues], masks, budget):
        logprob_N, _ = token_logprobs(model, batch, temperature=1.0)
        sizes = [sum(masks[i]) for i in batch.index]
        found |= dict(zip(batch.index, torch.split(logprob_N.cpu(), sizes), strict=True))
    return [found[i] for i in range(len(dialogues))]
