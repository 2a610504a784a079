"""An engine on plain transformers: continuous slots, every episode keeps its KV cache between turns.

A session takes a slot at its first request and holds it until released. New tokens (the patient's words) are fed on top
of the cache, never the whole dialogue again. Each step feeds the slots that wait with new tokens and decodes one token
for all slots that are in the middle of a turn, in one forward, so none waits for another. With environments that wait
for nothing but errands, which slot runs when depends on nothing but the requests, so the same rollout gives the same bits.

Shapes: B rows in this forward, Q new tokens per row, U of all rows, L cached length, V vocabulary, D width.
"""

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

import torch
from transformers import PreTrainedModel

from rl.compiling import allow_programs
from rl.engines.base import NOTHING_FED, Completion, Finish, Request, draw
from rl.engines.logprob_check import largest_difference, probe_ids
from rl.engines.slots import SlotCache, SlotRow, slot_attention
from rl.engines.static import SlotTurn, StaticDecoder
from rl.errands import back_from_errands
from rl.errors import TrainingError
from rl.handover import Handover, sequence_logprobs
from rl.logits import logits_of
from rl.packing import last_layer_at
from rl.policy import Policy
from rl.ranks import assign

# decoding in static shapes, which feeds and decodes in turn, feeds waiting slots once they are this share of the busy
# ones (or nothing else can run)
FEED_SHARE = 0.25
# and feeds so many tokens in one forward, but at least one turn: enough for a GPU's products, bounded in memory
FEED_TOKENS = 2**14
COPY_TOLERANCE = 0.1  # nats, between a copy and the trainer: both round to bfloat16, in different order


@dataclass
class _Turn:
    """A turn in the making in one slot."""

    request: Request
    future: asyncio.Future[Completion]
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class TransformersEngine:
    """Serves any causal language model of transformers that takes a 4-D mask and a cache object."""

    def __init__(
        self,
        model: PreTrainedModel,
        slots: int,
        max_length: int,
        *,
        compiled: bool = False,
        copy: bool = False,
        static: bool | None = None,
    ) -> None:
        """Allocate the slots.

        Args:
            model: that samples, in eval mode.
            slots: episodes at once.
            max_length: tokens per episode.
            compiled: whether decoding is compiled.
            copy: the model is the engine's own, and gets its weights from every handover; else it is the learner's.
            static: whether decoding is in static shapes; None: on a GPU, and where it is compiled.
        """
        self.model = model
        self.shares_weights = not copy
        self.probe_error = 0.0  # of the last take of a copy
        self.policy_version = 0
        self._asleep = False
        self._slots = slots
        self._max_length = max_length
        if compiled:
            allow_programs()
        self._compiled = torch.compile(model.get_decoder(), dynamic=False) if compiled else None
        self._is_static = static if static is not None else compiled or model.device.type == "cuda"
        self._cache: SlotCache | None = SlotCache(model, slots, max_length)
        self._static: StaticDecoder | None = None  # made when it is first needed, of this cache
        self._length = torch.zeros(slots, dtype=torch.long)
        # a heap: the lowest slot goes first, so an idle engine is the same whatever it played before
        self._free = list(range(slots))
        self._slot_of: dict[str, int] = {}
        self._unfed: dict[int, int] = {}  # the last token of a slot's last turn: sampled, not yet in the cache
        self._waiting: OrderedDict[str, _Turn] = OrderedDict()  # by session, who came first first
        self._running: dict[int, _Turn] = {}
        self._pump: asyncio.Task[None] | None = None

    async def generate(self, request: Request) -> Completion:
        """Append the request's tokens to its session's slot and sample a turn.

        Raises:
            TrainingError: the engine sleeps, there are more sessions than slots, or a session is empty or longer than
                max_length.
        """
        if self._asleep:
            raise TrainingError("this engine sleeps; let it take a handover first")
        if request.session not in self._slot_of:
            if not self._free:
                raise TrainingError(
                    f"all {self._slots} engine slots are taken; raise rollout.slots or release a session first"
                )
            slot = heapq.heappop(self._free)
            self._slot_of[request.session] = slot
            self._length[slot] = 0
        slot = self._slot_of[request.session]
        if slot in self._running or request.session in self._waiting:
            raise TrainingError(
                f"session {request.session!r} is in the middle of a turn; give every episode a session name of its own"
            )
        extra = 0 if request.input_embeddings is None else len(request.input_embeddings)
        if not (request.token_ids or extra or slot in self._unfed):
            raise TrainingError(NOTHING_FED.format(request.session))
        need = (
            int(self._length[slot])
            + (slot in self._unfed)
            + extra
            + len(request.token_ids)
            + request.sampling.max_tokens
        )
        if need > self._max_length:
            raise TrainingError(
                f"a session needs {need} tokens but rollout.max_episode_tokens is {self._max_length}; raise it or lower the turn budget"
            )
        turn = _Turn(request, asyncio.get_running_loop().create_future())
        self._waiting[request.session] = turn
        if self._pump is None or self._pump.done():
            self._pump = asyncio.get_running_loop().create_task(self._run())
        return await turn.future

    def release(self, session: str) -> None:
        """Give the session's slot back."""
        slot = self._slot_of.pop(session, None)
        if slot is not None:
            self._running.pop(slot, None)
            self._unfed.pop(slot, None)
            self._waiting.pop(session, None)
            heapq.heappush(self._free, slot)

    def take(self, handover: Handover) -> None:
        """Wake up; take the version, and the weights if they are not the learner's own.

        Raises:
            TrainingError: the handover lacks weights, or a copy does not compute what the trainer does.
        """
        if not self.shares_weights:
            self._copy(handover)
        elif handover.model is not None and handover.model is not self.model:  # another one plays from now on
            self.model, self._static = handover.model, None
            self._compiled = torch.compile(self.model.get_decoder(), dynamic=False) if self._compiled else None
        if self._cache is None:
            self._cache = SlotCache(self.model, self._slots, self._max_length)
        self.policy_version, self._asleep = handover.version, False

    def _copy(self, handover: Handover) -> None:
        held = self.model.state_dict()
        left = set(held)
        for name, value in handover.weights():
            assign(held[name], value)
            left.discard(name)
        ids = probe_ids(handover.config, self._max_length)
        self.probe_error = largest_difference(handover.logprobs(ids), sequence_logprobs(Policy(self.model), ids))
        if left or not self.probe_error <= COPY_TOLERANCE:
            raise TrainingError(
                f"after taking over policy version {handover.version} the engine's log-probabilities differ from the trainer's by up to {self.probe_error:.2g}"
                + (f"; it was not given {sorted(left)[0]}" if left else "")
            )

    def sleep(self) -> None:
        """Give the memory of the cache back, on a GPU; wait for a handover anywhere."""
        self._asleep = True
        if self.model.device.type == "cuda":
            self._cache = self._static = None

    async def close(self) -> None:
        """Wait for the pump to end; nothing else to free."""
        if self._pump is not None and not self._pump.done():  # one that is done may be of a loop that is closed
            await asyncio.gather(self._pump, return_exceptions=True)

    async def _run(self) -> None:
        """The pump: runs while there is work, hands the loop to the environments between forwards."""
        try:
            while True:
                await back_from_errands()
                if self._waiting and (
                    not self._is_static or len(self._waiting) >= FEED_SHARE * (len(self._running) + len(self._waiting))
                ):
                    self._feed(self._next_turns())
                elif self._running:
                    self._decode()
                else:
                    return
        except BaseException as error:  # noqa: BLE001  a failed forward must reach every episode that waits for it
            for turn in [*self._waiting.values(), *self._running.values()]:
                if not turn.future.done():
                    turn.future.set_exception(error)
            self._waiting.clear()
            self._running.clear()

    def _next_turns(self) -> list[_Turn]:
        """Of the waiting turns those that are fed in one forward."""
        turns: list[_Turn] = []
        tokens = 0
        while self._waiting:
            tokens += len(next(iter(self._waiting.values())).request.token_ids)
            if self._is_static and turns and tokens > FEED_TOKENS:
                break
            turns.append(self._waiting.popitem(last=False)[1])
        return turns

    @property
    def refused(self) -> dict[str, str]:
        """What of decoding in static shapes could not be compiled or recorded since the last sleep, and why."""
        return dict(self._static.refused) if self._static is not None else {}

    @property
    def _slot_cache(self) -> SlotCache:
        assert self._cache is not None  # noqa: S101  nobody plays with an engine that sleeps
        return self._cache

    @torch.inference_mode()
    def _feed(self, turns: list[_Turn]) -> None:
        """Feed new tokens of waiting turns and sample their first token; one more token for the running turns, unless
        they decode in static shapes.
        """
        running = [] if self._is_static else sorted(self._running)
        waiting = {self._slot_of[turn.request.session]: turn for turn in turns}
        self._running |= waiting
        pieces = self._new_embeddings({slot: waiting[slot].request for slot in sorted(waiting)})
        groups = [
            (running, torch.ones(len(running), dtype=torch.long)),
            (sorted(waiting), torch.tensor([len(piece) for piece in pieces])),
        ]
        cache = SlotRow(
            self._slot_cache,
            [(rows, self._length[rows], count_B) for rows, count_B in groups if rows],
            self._max_length,
        )
        inputs_1UD = torch.cat([*([self._last_embeddings(running)] if running else []), *pieces])[None]
        device = self.model.device
        with last_layer_at(self.model.get_decoder(), cache.last_B.to(device)):
            hidden_UD = self._decoded(
                cache,
                inputs_1UD,
                cache.position_U[None],
                torch.ones(1, 1, 1, 1, dtype=torch.bool),
            )[0]
        for rows, count_B in groups:
            self._length[rows] += count_B
        self._sample([*running, *sorted(waiting)], logits_of(self.model, hidden_UD[cache.last_B.to(device)]))

    def _last_embeddings(self, rows: list[int]) -> torch.Tensor:
        """Of the last token sampled in each running slot (B, D)."""
        last_B = torch.tensor([self._running[slot].token_ids[-1] for slot in rows], device=self.model.device)
        embedded_BD: torch.Tensor = self.model.get_input_embeddings()(last_B)
        return embedded_BD

    def _new_embeddings(self, requests: Mapping[int, Request]) -> list[torch.Tensor]:
        """What requests add to their slots (Q, D) each: the token that ended the last turn, the given embeddings, the new
        tokens.
        """
        last = {slot: [self._unfed.pop(slot)] if slot in self._unfed else [] for slot in requests}
        ids = [[*last[slot], *request.token_ids] for slot, request in requests.items()]
        ids_U = torch.tensor(list(chain.from_iterable(ids)), dtype=torch.long, device=self.model.device)
        pieces = self.model.get_input_embeddings()(ids_U).split([len(piece) for piece in ids])
        return [
            embedded_QD
            if (given := request.input_embeddings) is None
            else torch.cat([embedded_QD[: len(last[slot])], given.to(embedded_QD), embedded_QD[len(last[slot]) :]])
            for (slot, request), embedded_QD in zip(requests.items(), pieces, strict=True)
        ]

    @torch.inference_mode()
    def _decode(self) -> None:
        """One more token for every running turn, or several in static shapes."""
        rows = sorted(self._running)
        if self._is_static:
            self._decode_static(rows)
            return
        inputs_B1D = self._last_embeddings(rows)[:, None]
        place_B1 = self._length[rows][:, None]
        span = int(place_B1.max()) + 1
        seen_B11L = (torch.arange(span)[None, None] <= place_B1[:, :, None])[:, None]
        self._slot_cache.select(rows, place_B1, span)
        hidden_BD = self._decoded(self._slot_cache, inputs_B1D, place_B1, seen_B11L)[:, 0]
        self._length[rows] += 1
        self._sample(rows, logits_of(self.model, hidden_BD))

    def _decode_static(self, rows: list[int]) -> None:
        length = self._length.tolist()
        turns = {slot: self._slot_turn(slot, length[slot]) for slot in rows}
        idle = {slot: length[slot] for slot in self._slot_of.values() if slot not in turns}
        if self._static is None:
            self._static = StaticDecoder(self.model, self._slot_cache, self._compiled)
        for tokens, logprobs in zip(*self._static.run(turns, idle), strict=True):
            rows = [slot for slot in rows if slot in self._running]
            self._length[rows] += 1
            for slot in rows:
                self._add(slot, int(tokens[slot]), logprobs[slot])

    def _slot_turn(self, slot: int, length: int) -> SlotTurn:
        turn = self._running[slot]
        return SlotTurn(
            token=turn.token_ids[-1],
            place=length,
            noise_key=turn.request.noise_key - 2**63,
            sampled=len(turn.token_ids),
            limit=turn.request.sampling.max_tokens,
            stop_id=turn.request.sampling.stop_id,
            temperature=turn.request.sampling.temperature,
        )

    def _decoded(
        self,
        cache: SlotCache | SlotRow,
        inputs_BQD: torch.Tensor,
        place_BQ: torch.Tensor,
        mask_B1QL: torch.Tensor,
    ) -> torch.Tensor:
        device = self.model.device
        with slot_attention(self.model):
            hidden_BQD: torch.Tensor = self.model.get_decoder()(
                inputs_embeds=inputs_BQD,
                attention_mask=mask_B1QL.to(device),
                position_ids=place_BQ.to(device),
                past_key_values=cache,
                use_cache=True,
                slots=cache,
            ).last_hidden_state
        return hidden_BQD

    def _sample(self, rows: list[int], logits_BV: torch.Tensor) -> None:
        """Draw one token a row; finish turns that ended."""
        turns = [self._running[slot] for slot in rows]
        temperature_B = torch.tensor([turn.request.sampling.temperature for turn in turns], device=logits_BV.device)
        key_B = torch.tensor([turn.request.noise_key - 2**63 for turn in turns])
        place_B = torch.tensor([len(turn.token_ids) for turn in turns])
        token_B, chosen_B = draw(logits_BV, temperature_B, key_B, place_B)
        drawn_2B = torch.stack([token_B.double(), chosen_B.double()])  # one transfer
        for slot, token, logprob in zip(rows, *drawn_2B.tolist(), strict=True):
            self._add(slot, int(token), logprob)

    def _add(self, slot: int, token: int, logprob: float) -> None:
        """One more token of a turn, which may end by it."""
        turn = self._running[slot]
        turn.token_ids.append(token)
        turn.logprobs.append(logprob)
        sampling = turn.request.sampling
        if token == sampling.stop_id or len(turn.token_ids) >= sampling.max_tokens:
            self._finish(slot, turn, Finish.STOP if token == sampling.stop_id else Finish.LENGTH)

    def _finish(self, slot: int, turn: _Turn, finish: Finish) -> None:
        del self._running[slot]
        self._unfed[slot] = turn.token_ids[-1]
        if not turn.future.done():
            turn.future.set_result(Completion(tuple(turn.token_ids), tuple(turn.logprobs), finish, self.policy_version))
