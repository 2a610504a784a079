"""A frozen language model of this machine that answers messages: a simulated patient or a judge, never the policy that
learns.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count

from rl.chat import ChatFormat
from rl.config import LocalModelParams
from rl.engines.base import Request, Sampling, noise_key
from rl.engines.transformers import TransformersEngine
from rl.errors import TrainingError
from rl.machine import device_of
from rl.models import load_model


class LocalModel:
    """Answers messages with a model of its own; the same messages get the same answer."""

    def __init__(self, params: LocalModelParams, seed: int) -> None:
        """Load the model.

        Args:
            params: the model and how it answers.
            seed: of its sampling.
        """
        model, tokenizer = load_model(params.model, params.dtype, device_of(params.device))
        self._params, self._seed = params, seed
        self._chat = ChatFormat(tokenizer)
        self._engine = TransformersEngine(model.eval(), params.slots, params.context)
        self._numbers = count()
        self._seats: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}

    async def generate(self, messages: Sequence[Mapping[str, str]]) -> str:
        """One reply's text.

        Raises:
            TrainingError: the messages leave no room for a reply.
        """
        params = self._params
        ids = self._chat.opening_ids([dict(message) for message in messages])
        if len(ids) + params.max_tokens > params.context:
            raise TrainingError(
                f"{params.model}: a prompt of {len(ids)} tokens and a reply of {params.max_tokens} exceed its context of {params.context}; raise context"
            )
        loop = asyncio.get_running_loop()
        if loop not in self._seats:
            self._seats = {loop: asyncio.Semaphore(params.slots)}
        session = str(next(self._numbers))
        async with self._seats[loop]:
            try:
                sampling = Sampling(params.temperature, params.max_tokens, self._chat.end_id)
                key = noise_key(self._seed, *(message["content"] for message in messages))
                completion = await self._engine.generate(Request(session, tuple(ids), key, sampling))
            finally:
                self._engine.release(session)
        return self._chat.text(completion.token_ids)
