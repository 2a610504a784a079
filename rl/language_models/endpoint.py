"""The one door to language models behind OpenAI-compatible HTTP endpoints.

The library sends single tries; their number, pauses and time bound are kept here, since it neither retries an unusable
reply nor bounds a trickling server. Each event loop gets its own client and concurrency limit, so one `Endpoint`
outlives many `asyncio.run` calls.
"""

import asyncio
import json
import logging
import os
import random
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import httpx2 as httpx  # the client library of `openai`
import openai

from rl.config import EndpointParams
from rl.errors import TrainingError
from rl.language_models.bounded import RefusedReplyError, bounded_client

log = logging.getLogger(__name__)
T = TypeVar("T")
FIRST_PAUSE_S = 0.5  # before the second try; doubles from try to try
LONGEST_PAUSE_S = 30.0
LONGEST_RETRY_AFTER_S = 60.0  # of what the server asks for; the growing pause is added to it
SHOWN_CHARS = 400
NO_KEY = "none"  # the library wants one


class EndpointError(TrainingError):
    """An endpoint that cannot be used; one line with url, model, what happened and the fix."""


@dataclass(frozen=True)
class EndpointCounts:
    """What one `Endpoint` has sent: requests, the tries that they took, and requests that failed in the end."""

    requests: int = 0
    tries: int = 0
    failures: int = 0


class _TryError(Exception):
    def __init__(self, what: str, fix: str, again: bool = True, after_s: float = 0.0) -> None:
        super().__init__(what)
        self.what, self.fix, self.again, self.after_s = what, fix, again, after_s


class Endpoint:
    """One model at one endpoint; `counts` says what has been sent.

    Raises:
        EndpointError: `key_env` names a variable without a usable key.
    """

    def __init__(self, params: EndpointParams) -> None:
        self.counts = EndpointCounts()
        self._params = params
        self._key = os.environ.get(params.key_env, "").strip() if params.key_env else NO_KEY
        self._lanes: dict[
            asyncio.AbstractEventLoop, tuple[AsyncGenerator[openai.AsyncOpenAI], openai.AsyncOpenAI, asyncio.Semaphore]
        ] = {}
        self._random = random.Random()  # its own, so that pauses draw nothing from the global one
        # the HTTP library's complaint about another would show it
        if not (self._key and self._key.isascii() and self._key.isprintable()):
            fix = 'export it with the key alone, or set key_env to "" for a server without keys'
            raise self._error(
                f"environment variable {params.key_env} is {'no key' if self._key else 'missing or empty'}", fix
            )

    async def generate(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None = None) -> str:
        """One completion's text, never blank; a `schema` is asked for as structured output, which a server may ignore.

        Raises:
            EndpointError: the tries are used up, or another try cannot help.
        """
        client, slots = await self._lane()
        body, last, whole = self._body(messages, schema), self._params.retries + 1, schema is not None
        self.counts = replace(self.counts, requests=self.counts.requests + 1)
        async with slots:
            for number in range(1, last + 1):
                self.counts = replace(self.counts, tries=self.counts.tries + 1)
                try:
                    return _text(await self._ask(client.chat.completions.with_raw_response.create(**body)), whole)
                except _TryError as error:
                    failed, told = error, self._error(f"try {number} of {last}: {error.what}", error.fix)
                if number == last or not failed.again:
                    break
                pause_s = failed.after_s + self._random.uniform(0.5, 1.0) * min(
                    FIRST_PAUSE_S * 2 ** min(number - 1, 20), LONGEST_PAUSE_S
                )
                log.info("%s; again in %.1f s", told, pause_s)
                await asyncio.sleep(pause_s)
        self.counts = replace(self.counts, failures=self.counts.failures + 1)
        raise told

    async def check(self) -> None:
        """Ask for the list of models and, where the model is not on it, for one token; again as `retries` says.

        Raises:
            EndpointError: nothing usable answers there, or it does not serve the model.
        """
        await self._insist(self._look)

    async def models(self) -> list[str]:
        """The names of the models that the server lists; none if it has no list.

        Raises:
            EndpointError: nothing usable answers there.
        """
        return await self._insist(self._listed)

    async def _insist(self, look: Callable[[openai.AsyncOpenAI], Awaitable[T]]) -> T:
        client, _ = await self._lane()
        left = self._params.retries
        while True:
            try:
                return await look(client)
            except _TryError as error:
                if not (left and error.again):
                    raise self._error(error.what, error.fix) from None
                left -= 1
                await asyncio.sleep(error.after_s + FIRST_PAUSE_S)

    async def _listed(self, client: openai.AsyncOpenAI) -> list[str]:
        listed = await self._ask(client.models.with_raw_response.list(), absent=(404, 405, 501))
        models = listed.get("data") if isinstance(listed, Mapping) else None
        found = [model.get("id") for model in models if isinstance(model, Mapping)] if isinstance(models, list) else []
        return [name for name in found if isinstance(name, str)]

    async def _look(self, client: openai.AsyncOpenAI) -> None:
        if self._params.model not in await self._listed(client):
            body = self._body([{"role": "user", "content": "Hello"}], None) | {"max_tokens": 1}
            await self._ask(client.chat.completions.with_raw_response.create(**body))

    async def _lane(self) -> tuple[openai.AsyncOpenAI, asyncio.Semaphore]:
        loop = asyncio.get_running_loop()
        if loop not in self._lanes:
            for ended in [other for other in list(self._lanes) if other.is_closed()]:  # closed without its generators
                self._lanes.pop(ended, None)
            life = self._life(loop)
            self._lanes[loop] = (life, await anext(life), asyncio.Semaphore(self._params.concurrency))
        return self._lanes[loop][1:]

    async def _life(self, loop: asyncio.AbstractEventLoop) -> AsyncGenerator[openai.AsyncOpenAI, None]:
        """The client of one loop.

        `asyncio.run` closes open generators before the loop, so connections end in the loop that opened them.
        """
        try:
            http_client = bounded_client(self._params.concurrency)
        except (OSError, ValueError, ImportError, httpx.InvalidURL):  # their words may show a proxy's password
            fix = "correct HTTP_PROXY, HTTPS_PROXY, ALL_PROXY or SSL_CERT_FILE in the environment, or unset it"
            raise self._error(
                "no client can be made with what the environment says of proxies or certificates", fix
            ) from None
        client = openai.AsyncOpenAI(
            base_url=self._params.url, api_key=self._key, max_retries=0, timeout=None, http_client=http_client
        )
        try:
            yield client
        finally:
            self._lanes.pop(loop, None)
            await client.close()

    def _body(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None) -> dict[str, Any]:
        body: dict[str, Any] = self._params.model_dump(include={"model", "temperature", "max_tokens"}) | {
            "messages": [dict(m) for m in messages]
        }
        if schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "strict": True, "schema": dict(schema)},
            }
        return body

    async def _ask(self, call: Awaitable[Any], absent: tuple[int, ...] = ()) -> Any:
        try:
            async with asyncio.timeout(self._params.timeout_s):
                response = await call
        except TimeoutError:
            raise _TryError(
                f"no whole answer within timeout_s = {self._params.timeout_s:g}",
                "raise timeout_s, or lower concurrency or max_tokens",
            ) from None
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, RefusedReplyError):
                raise _TryError(
                    str(error.__cause__), "see the server's log; does url lead to chat completions?", again=False
                ) from None
            raise _TryError(f"no connection: {error.__cause__ or error}", "start the server, or correct url") from None
        except openai.APIStatusError as error:
            if error.status_code in absent:
                return None
            raise _refusal(error, self._params.key_env) from None
        return _json(response.content)

    def _error(self, what: str, fix: str) -> EndpointError:
        told = what if self._key in ("", NO_KEY) else what.replace(self._key, "***")
        shown = " ".join("".join(letter if letter.isprintable() else " " for letter in told).split())[:SHOWN_CHARS]
        model = f", model {self._params.model}" if self._params.model else ""
        return EndpointError(f"{self._params.url}{model}: {shown}; {fix}")


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):  # numbers and nesting beyond what Python reads, too
        raise _TryError(
            f"the body is not JSON: {body.decode(errors='replace')}",
            "correct url (up to and including /v1), or see the server's log",
        ) from None


def _text(reply: Any, whole: bool) -> str:
    try:
        choice = reply["choices"][0]
        content, finish = choice["message"]["content"], choice.get("finish_reason")
    except (KeyError, IndexError, TypeError):
        raise _TryError(
            f"the reply has no choices with a message: {reply}",
            "see the server's log; does url lead to chat completions?",
        ) from None
    if not isinstance(content, str) or not content.strip():
        raise _TryError(
            f"the reply is empty (finish_reason {finish})",
            "raise max_tokens if the model thinks before it answers, else see the server's chat template",
        )
    if any("\ud800" <= character <= "\udfff" for character in content):
        raise _TryError("the reply holds half of a character", "see the server's log")
    if whole and finish == "length":
        raise _TryError("the structured reply is cut off", "raise max_tokens")
    return content


def _refusal(error: openai.APIStatusError, key_env: str) -> _TryError:
    status, headers, body = error.status_code, error.response.headers, error.body
    if isinstance(body, Mapping):
        body = body.get("message") or body.get("detail") or body
    what = f"HTTP {status}: {body or error.response.reason_phrase}"
    if status in (408, 409, 429) or status >= 500:
        fix = "lower concurrency, or raise retries" if status == 429 else "see the server's log, or raise retries"
        after = headers.get("retry-after", "")
        # an HTTP date counts as none
        after_s = min(float(after), LONGEST_RETRY_AFTER_S) if re.fullmatch(r"\d+(\.\d*)?", after) else 0.0
        return _TryError(what, fix, headers.get("x-should-retry") != "false", after_s)
    if status in (400, 422) and re.search("response_format|json_schema", what):
        what, fix = (
            f"structured output refused, {what}",
            "use a server that takes response_format json_schema, or correct the schema",
        )
    elif status in (401, 403):
        fix = (
            f"put a valid key into {key_env}"
            if key_env
            else "set key_env to the name of the environment variable with the key"
        )
    elif 300 <= status < 400:
        fix = f"redirects are not followed: put the address into url, if you trust it ({headers.get('location', '-')})"
    else:
        fix = (
            "correct url (up to and including /v1) or model"
            if status == 404
            else "change the setting that the server names (model, temperature, max_tokens)"
        )
    return _TryError(what, fix, again=False)
