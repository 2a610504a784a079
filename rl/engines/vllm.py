"""An engine on vLLM, in this process: paged cache, prefix caching, its own copy of the weights.

Every turn is one request with the session's whole token history; the prefix cache spares what was computed before. All
calls into vLLM run in one thread, in order; a pump submits what is waiting, makes one step, and hands the finished
turns to their episodes. Weights arrive by `take`, in place, and each time a probe compares the engine's
log-probabilities of a fixed token sequence with the trainer's.

Not bit-for-bit: rounding depends on which requests share a step. With the same noise key a turn is sampled with the
same noise, whatever runs beside it.
"""

import asyncio
import logging
import weakref
from collections import deque
from dataclasses import dataclass
from itertools import count

from rl.config import VllmParams
from rl.engines.base import Completion, Finish, Request
from rl.engines.histories import Histories
from rl.engines.logprob_check import largest_difference, probe_ids
from rl.engines.vllm_core import COLDEST, Core, Order
from rl.engines.worker_thread import Lane
from rl.errors import TrainingError
from rl.handover import Handover

log = logging.getLogger(__name__)
RESTARTS = 1  # of a dead engine, per policy version


@dataclass
class _Turn:
    """A turn in the making."""

    order: Order
    future: asyncio.Future[Completion]

    @property
    def session(self) -> str:
        return self.order.request.session


class VllmEngine:
    """Serves what vLLM serves of the models that transformers loads.

    Started by its first `take`, one at a time in a process: another one's puts this one away until its next.
    """

    shares_weights = False

    def __init__(self, params: VllmParams, max_length: int) -> None:
        """Start nothing yet.

        Args:
            params: the engine's numbers.
            max_length: tokens per episode.
        """
        self.policy_version = 0
        self.probe_error = 0.0  # of the last take
        self._params, self._max_length = params, max_length
        self._handover: Handover | None = None  # the last one
        self._core, self._lane = Core(params, max_length), Lane()
        self._histories = Histories("vllm", max_length, COLDEST)
        self._waiting: deque[_Turn] = deque()
        self._running: dict[str, _Turn] = {}
        self._gone: list[str] = []  # requests to abort before the next step
        self._names = map(str, count())
        self._taken: object = None  # identity of the weights that it plays with
        self._restarts = 0
        self._pump: asyncio.Task[None] | None = None
        weakref.finalize(self, self._lane.submit, self._core.stop).atexit = False

    async def generate(self, request: Request) -> Completion:
        """Append the request's tokens to its session's history and sample a turn; more sessions than `max_sequences`
        wait for each other.

        Raises:
            TrainingError: the request cannot be served (the message says why), or the engine died twice or is stuck.
        """
        if self._handover is None or self._taken is None or self._core.llm is None or self._core.asleep:
            raise TrainingError(
                "this vLLM engine has no weights yet or sleeps, or another one was started in this process; let it take a handover first"
            )
        self._forget_a_dead_loop()
        prompt = self._histories.prompt(request, self._handover.config.get_text_config().vocab_size)
        turn = _Turn(Order(next(self._names), prompt, request), asyncio.get_running_loop().create_future())
        self._waiting.append(turn)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.get_running_loop().create_task(self._run())
        return await turn.future

    def release(self, session: str) -> None:
        """Forget a session; a turn in the making is dropped."""
        self._histories.forget(session)
        self._waiting = deque(turn for turn in self._waiting if turn.session != session)
        for name in [name for name, turn in self._running.items() if turn.session == session]:
            del self._running[name]
            self._gone.append(name)

    def take(self, handover: Handover) -> None:
        """Take over the trainer's weights and check that the engine computes as the trainer does.

        Nothing happens if it is awake and neither the version nor any weight has changed since the last time.

        Args:
            handover: of the trainer's policy, in eval mode.

        Raises:
            TrainingError: turns are under way, the engine cannot start or is stuck, or its log-probabilities differ
                from the trainer's by more than `probe_tolerance`.
        """
        self._forget_a_dead_loop()
        if self._waiting or self._running:
            raise TrainingError(
                f"{len(self._waiting) + len(self._running)} turns are under way; the vLLM engine takes weights between rollouts"
            )
        identity = handover.identity()
        if identity == self._taken and self._core.llm is not None and not self._core.asleep:
            return
        self._taken, self._handover = None, handover
        try:
            self.probe_error = self._lane.wait(self._params.timeout_s, self._bring, handover)
        except TimeoutError as error:
            raise self._stuck() from error
        except TrainingError:
            raise
        except Exception as error:  # a head width without a kernel, memory that does not suffice
            self._lane.submit(self._core.stop)
            raise TrainingError(
                f"vLLM cannot serve this model ({type(error).__name__}: {error}); use an engine of kind transformers, or change section rollout.engine"
            ) from error
        if not self.probe_error <= self._params.probe_tolerance:
            raise TrainingError(
                f"after taking over policy version {handover.version} the engine's log-probabilities differ from the trainer's by up to {self.probe_error:.2g}, more than "
                f"rollout.engine.probe_tolerance = {self._params.probe_tolerance:g}: it did not take over all weights, or computes less exactly (rollout.engine.dtype); "
                "use an engine of kind transformers, or raise the tolerance if rounding explains it"
            )
        log.info(
            "vLLM engine took over policy version %d, largest difference of a log-probability %.2g",
            handover.version,
            self.probe_error,
        )
        self.policy_version, self._taken, self._restarts = handover.version, identity, 0

    def sleep(self) -> None:
        """Give a GPU's memory back, weights and cache; the next `take` wakes the engine."""
        if self._core.llm is not None:
            self._lane.wait(self._params.timeout_s, self._core.sleep)

    async def close(self) -> None:
        """Wait for the pump to end."""
        if self._pump is not None and not self._pump.done():  # one that is done may be of a loop that is closed
            await asyncio.gather(self._pump, return_exceptions=True)

    def _bring(self, handover: Handover) -> float:
        """In the lane: start if need be, load the weights, measure."""
        if self._core.llm is None:
            self._core.start(handover.config, handover.architecture)
        self._core.unknown = handover.unknown_ids
        self._core.load(handover.weights())
        ids = probe_ids(handover.config, self._max_length)
        return largest_difference(handover.logprobs(ids), self._core.logprobs(ids))

    def _forget_a_dead_loop(self) -> None:
        """Turns of an event loop that ended in the middle are nobody's."""
        if (self._pump is None or self._pump.done()) and self._running:
            self._gone += self._running
            self._running.clear()

    async def _run(self) -> None:
        """The pump: runs while there is work, hands the loop to the environments between steps."""
        try:
            while True:
                for _ in range(4):  # let finished turns reach their environment and come back as requests
                    await asyncio.sleep(0)
                if not self._waiting and not self._running:
                    return
                await self._advance()
        except BaseException as error:  # noqa: BLE001  a broken engine must reach every episode that waits for it
            for turn in [*self._waiting, *self._running.values()]:
                if not turn.future.done():
                    turn.future.set_exception(error)
            self._waiting.clear()
            self._running.clear()

    async def _advance(self) -> None:
        """One step in the lane; what it ended reaches its episode."""
        new, gone = list(self._waiting), self._gone
        self._waiting.clear()
        self._gone = []
        self._running |= {turn.order.name: turn for turn in new}
        try:
            ended = await self._lane.run(self._params.timeout_s, self._core.advance, [turn.order for turn in new], gone)
        except TimeoutError as error:
            self._taken = None
            raise self._stuck() from error
        except Exception as error:  # noqa: BLE001  whatever killed it, a fresh one may serve
            await self._restart(error)
            return
        for sampled in ended:
            turn = self._running.pop(sampled.name, None)
            if turn is None or turn.future.done():
                continue  # released meanwhile
            self._histories.took(turn.session, turn.order.prompt + sampled.token_ids)
            finish = Finish.STOP if sampled.token_ids[-1] == turn.order.request.sampling.stop_id else Finish.LENGTH
            turn.future.set_result(Completion(sampled.token_ids, sampled.logprobs, finish, self.policy_version))

    async def _restart(self, error: Exception) -> None:
        """After a death: a fresh engine with the same weights takes the unfinished turns from their beginning."""
        begun_with, self._taken, handover = self._taken, None, self._handover
        if handover is None or self._restarts >= RESTARTS:
            raise TrainingError(
                f"the vLLM engine died again in the same rollout ({type(error).__name__}: {error}); run again, it resumes from the last checkpoint"
            ) from error
        self._restarts += 1
        log.warning(
            "the vLLM engine died (%s: %s); starting it anew for %d unfinished turns",
            type(error).__name__,
            error,
            len(self._running),
        )
        try:
            self._lane.submit(self._core.stop)
            self.probe_error = await self._lane.run(self._params.timeout_s, self._bring, handover)
        except Exception as second:
            raise TrainingError(
                f"the vLLM engine died ({error}) and does not start again ({second}); run again, it resumes from the last checkpoint"
            ) from second
        # rollouts one step ahead: the learner went on, these weights are not what the completions would say
        if handover.identity() != begun_with:
            raise TrainingError(
                f"the vLLM engine died ({error}) while the learner was changing the weights that it played with; run again, it resumes from the last checkpoint"
            )
        self._taken = begun_with
        self._waiting.extendleft(reversed(self._running.values()))
        self._running.clear()
        self._gone.clear()

    def _stuck(self) -> TrainingError:
        return TrainingError(
            f"the vLLM engine did not answer for rollout.engine.timeout_s = {self._params.timeout_s:g} s; raise it if it only is slow, or run again: it resumes"
        )
