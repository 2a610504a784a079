"""Decoding in static shapes: every slot takes part in every step, and all that a step reads or writes lies in tensors
that stay where they are.

So a GPU can record a step once and play it back without Python (CUDA graphs), the next step needs nothing of the host,
and several steps take one transfer each way. Idle slots compute what nobody reads; what they write lies behind what
their slot holds and is overwritten before anybody reads it.

Shapes: S slots, L cached tokens that are read, D width, K steps.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel

from rl.engines.base import draw
from rl.engines.slots import SlotCache, slot_attention
from rl.errors import first_line
from rl.logits import logits_of

# cached tokens that a step reads, at least; its shapes are this one doubled as often as needed
SHORTEST_SPAN = 128
# tokens that a slot gets between two transfers, at most: whoever ends sooner waits for the others
STEPS = 8
WARM_UP = (
    3  # runs before a step is recorded, in which libraries set up what they need (torch.cuda.make_graphed_callables)
)
log = logging.getLogger(__name__)
Step = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class SlotTurn:
    """What a step has to know of a slot in the middle of a turn."""

    token: int  # the last one sampled, not yet in the cache
    place: int  # where it goes
    noise_key: int  # int64, two's complement
    sampled: int  # tokens of this turn so far
    limit: int  # and at most
    stop_id: int | None
    temperature: float


class StaticDecoder:
    """Decodes all slots of a cache."""

    def __init__(
        self,
        model: PreTrainedModel,
        cache: SlotCache,
        compiled: Any = None,
        record: Callable[[Step], Step] | None = None,
    ) -> None:
        """Allocate what steps share.

        Args:
            model: in eval mode.
            cache: of its slots.
            compiled: its decoder, compiled; None: as it is.
            record: runs a step a few times and returns one that does the same; None: `Recorder` on a GPU.
        """
        self._model, self._cache = model, cache
        slots, _, self._length, _ = cache.keys[0].shape
        device = model.device
        self._decoders: dict[str, Any] = {"compiled": compiled} if compiled is not None else {}
        self._decoders["as it is"] = model.get_decoder()
        self._record = record or (Recorder(device) if device.type == "cuda" else _run_once)
        self._steps: dict[int, Step] = {}  # by span
        self.refused: dict[str, str] = {}  # what could not be compiled or recorded, and why
        self._row_S = torch.arange(slots, device=device)
        # token, place, noise key, sampled, limit, stop id (-1: none), whether it runs
        self._state_7S = torch.zeros(7, slots, dtype=torch.long, device=device)
        self._temperature_S = torch.ones(slots, device=device)
        self._drawn_2S = torch.zeros(2, slots, dtype=torch.float64, device=device)  # token, log-probability
        self._drawn_K2S = torch.zeros(STEPS, 2, slots, dtype=torch.float64, device=device)

    @torch.inference_mode()
    def run(
        self, turns: Mapping[int, SlotTurn], idle: Mapping[int, int]
    ) -> tuple[list[list[float]], list[list[float]]]:
        """Decode up to STEPS tokens of every turn.

        Args:
            turns: by slot.
            idle: cached tokens of the other slots that hold a session.

        Returns:
            Of each step and slot the token and its log-probability; after the end of a turn they mean nothing.
        """
        steps = min(STEPS, max(turn.limit - turn.sampled for turn in turns.values()))
        span = SHORTEST_SPAN
        while span < max(turn.place for turn in turns.values()) + steps:
            span *= 2
        span = min(span, self._length)
        self._upload(turns, idle)
        if span not in self._steps:
            self._steps[span] = self._prepared(span)
            self._upload(turns, idle)  # it has run since
        for number in range(steps):
            self._steps[span]()
            self._drawn_K2S[number].copy_(self._drawn_2S)
        drawn: list[list[list[float]]] = self._drawn_K2S[:steps].tolist()
        return [tokens for tokens, _ in drawn], [logprobs for _, logprobs in drawn]

    def _upload(self, turns: Mapping[int, SlotTurn], idle: Mapping[int, int]) -> None:
        state_S7 = [[0, idle.get(slot, 0), 0, 0, 0, -1, 0] for slot in range(len(self._row_S))]
        temperature_S = [1.0] * len(state_S7)
        for slot, turn in turns.items():
            stop = -1 if turn.stop_id is None else turn.stop_id
            state_S7[slot] = [turn.token, turn.place, turn.noise_key, turn.sampled, turn.limit, stop, 1]
            temperature_S[slot] = turn.temperature
        self._state_7S.copy_(torch.tensor(state_S7).T)
        self._temperature_S.copy_(torch.tensor(temperature_S))

    def _prepared(self, span: int) -> Step:
        """The step that reads so many cached tokens, compiled and recorded where that works."""
        step: Step = partial(self._step, self._model.get_decoder(), span)
        for how, decoder in list(self._decoders.items()):
            try:
                return self._record(partial(self._step, decoder, span))
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:  # of a compiler or of the recording: both can be done without
                self.refused[how] = first_line(error)
                log.warning(
                    "a decoding step with the decoder %s cannot be prepared, slower from now on: %s",
                    how,
                    self.refused[how],
                )
                del self._decoders[how]
        return step

    def _step(self, decoder: Any, span: int) -> None:
        """One token for every running slot; nothing here waits for the device."""
        token_S, place_S, key_S, sampled_S, limit_S, stop_S, runs_S = self._state_7S.unbind()
        self._cache.select_all(self._row_S, place_S[:, None], span)
        seen_S11L = (torch.arange(span, device=place_S.device) <= place_S[:, None])[:, None, None]
        with slot_attention(self._model):
            hidden_S1D = decoder(
                inputs_embeds=self._model.get_input_embeddings()(token_S)[:, None],
                attention_mask=seen_S11L,
                position_ids=place_S[:, None],
                past_key_values=self._cache,
                use_cache=True,
                slots=self._cache,
            ).last_hidden_state
        drawn_S, logprob_S = draw(logits_of(self._model, hidden_S1D[:, 0]), self._temperature_S, key_S, sampled_S)
        self._drawn_2S.copy_(torch.stack([drawn_S.double(), logprob_S.double()]))
        token_S.copy_(torch.where(runs_S > 0, drawn_S, token_S))
        place_S.add_(runs_S)
        sampled_S.add_(runs_S)
        runs_S.mul_((drawn_S != stop_S) & (sampled_S < limit_S))


class Recorder:
    """Records steps as CUDA graphs that share their memory: one runs at a time."""

    def __init__(self, device: torch.device) -> None:
        """Nothing is recorded yet."""
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's stubs
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, step: Step) -> Step:
        """A graph of the step, which has run a few times before."""
        graph, now = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        self._stream.wait_stream(now)
        with torch.cuda.stream(self._stream):  # it also brings back the stream that a recording that failed has left
            for _ in range(WARM_UP):
                step()
            # other threads may use the device meanwhile
            with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                step()
        now.wait_stream(self._stream)
        return graph.replay


def _run_once(step: Step) -> Step:
    """The step itself, which is compiled by then."""
    step()
    return step
