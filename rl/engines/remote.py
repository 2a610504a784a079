"""Plays what a `vllm serve` elsewhere serves: token ids there and back over HTTP. To play only: it brings no weights there.

Its `sync` checks that the server is up and computes what the given model computes, so a policy that has learned since is refused, not played with old weights.
The server needs `--logprobs-mode processed_logprobs`, or what it reports at another temperature than 1 is not what it sampled from.
"""

import asyncio
from typing import Any

import openai
import torch
from pydantic import BaseModel, ConfigDict, Field
from transformers import PreTrainedModel

from rl.engines.base import Completion, Finish, Request
from rl.engines.histories import Histories
from rl.engines.probe import largest_difference, probe_ids
from rl.engines.vllm_core import COLDEST
from rl.errors import TrainingError


class RemoteParams(BaseModel):
    """Where the server is, and how long it may take."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    url: str  # up to and including /v1
    model: str  # as the server calls it
    timeout_s: float = Field(gt=0)  # of one try
    retries: int = Field(ge=0)  # after a try that failed, with growing pauses
    probe_tolerance: float = Field(gt=0)  # largest |delta log p| between server and model


class RemoteEngine:
    """One served model; sessions live here, the server sees whole histories and finds them in its prefix cache."""

    shares_weights = False

    def __init__(self, params: RemoteParams, max_length: int) -> None:
        """Args: the server, tokens per session."""
        self.policy_version = 0
        self.probe_error = 0.0  # of the last sync
        self._params, self._max_length = params, max_length
        self._options: dict[str, Any] = {"base_url": params.url, "api_key": "none", "timeout": params.timeout_s, "max_retries": params.retries}
        self._histories = Histories("remote", max_length, COLDEST)
        self._vocabulary = 0
        self._client: tuple[asyncio.AbstractEventLoop, openai.AsyncOpenAI] | None = None

    async def generate(self, request: Request) -> Completion:
        """Have the server sample a turn of the session.

        Raises:
            TrainingError: the request cannot be served, or the tries are used up.
        """
        if not self._vocabulary:
            raise TrainingError("nothing is known of the server's model yet; call sync first")
        prompt, sampling = self._histories.prompt(request, self._vocabulary), request.sampling
        more = {"return_token_ids": True, "stop_token_ids": [] if sampling.stop_id is None else [sampling.stop_id], "ignore_eos": True, "skip_special_tokens": False}
        try:
            answer = await self._here().completions.create(
                model=self._params.model, prompt=list(prompt), max_tokens=sampling.max_tokens, temperature=sampling.temperature, seed=request.noise_key >> 1,
                logprobs=0, extra_body=more,
            )
        except openai.OpenAIError as error:
            raise self._unusable(error) from error
        ids, logprobs, reason = _sampled(answer)
        if reason not in ("stop", "length") or len(ids) != len(logprobs) or not ids:
            raise self._unusable(f"{len(ids)} token ids, {len(logprobs)} log-probabilities, finish reason {reason!r}; it needs vLLM's return_token_ids")
        self._histories.took(request.session, prompt + ids)
        return Completion(ids, logprobs, Finish.STOP if ids[-1] == sampling.stop_id else Finish.LENGTH, self.policy_version)

    def release(self, session: str) -> None:
        """Forget a session."""
        self._histories.forget(session)

    def sync(self, model: PreTrainedModel, version: int) -> None:
        """Check that the server is up and serves this model's weights; nothing is sent there but a probe.

        Raises:
            TrainingError: it does not answer, or its log-probabilities differ by more than `probe_tolerance`.
        """
        ids = probe_ids(model, self._max_length)
        try:
            with openai.OpenAI(**self._options) as client:
                answer = client.completions.create(model=self._params.model, prompt=ids, max_tokens=1, temperature=0.0, extra_body={"prompt_logprobs": 0})
        except openai.OpenAIError as error:
            raise self._unusable(error) from error
        found = (answer.choices[0].model_extra or {}).get("prompt_logprobs") or []
        if len(found) != len(ids):
            raise self._unusable("no prompt_logprobs in its answer; it must be vLLM's")
        logprobs = torch.tensor([place[str(token)]["logprob"] for token, place in zip(ids[1:], found[1:], strict=True)])
        self.probe_error = largest_difference(model, ids, logprobs)
        if not self.probe_error <= self._params.probe_tolerance:
            raise TrainingError(
                f"{self._params.url} serves other weights than the policy's: their log-probabilities differ by up to {self.probe_error:.2g}, more than "
                f"{self._params.probe_tolerance:g}; serve this policy there (a remote engine only plays, it brings no weights)"
            )
        self.policy_version, self._vocabulary = version, model.config.get_text_config().vocab_size

    async def close(self) -> None:
        """Close this event loop's connections."""
        if self._client is not None and self._client[0] is asyncio.get_running_loop():
            await self._client[1].close()
        self._client = None

    def _here(self) -> openai.AsyncOpenAI:
        """This event loop's client."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._client[0] is not loop:
            self._client = loop, openai.AsyncOpenAI(**self._options)
        return self._client[1]

    def _unusable(self, what: object) -> TrainingError:
        return TrainingError(f"the model {self._params.model!r} at {self._params.url} is unusable after {self._params.retries + 1} tries of {self._params.timeout_s:g} s: {what}")


def _sampled(answer: Any) -> tuple[tuple[int, ...], tuple[float, ...], str]:
    """Token ids, their log-probabilities and the finish reason."""
    choice = answer.choices[0]
    return tuple((choice.model_extra or {}).get("token_ids") or ()), tuple(choice.logprobs.token_logprobs if choice.logprobs else ()), choice.finish_reason
