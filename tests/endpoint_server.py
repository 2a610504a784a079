"""A chat-completions server on localhost with scripted faults, for tests.

    with chat_server(lambda messages: "Yes.", ["500", "ok"]) as server:
        ...  # server.url, server.requests, server.peak

Faults, one per chat request in order of arrival, later ones are answered:

    ok, None            the reply
    429, 500, 401, ...  that status; "429:2" adds Retry-After: 2, a plain 429 adds Retry-After: 0
    hang, trickle, drop no answer; an answer without end; a closed connection
    moved, zipped, endless a redirect; a compressed reply; 64 MiB of one
    malformed, garbage  JSON cut short; a page of HTML, both with status 200
    deep, long          JSON that no reader takes: lists in lists, a number of 6000 digits
    torn                a reply with half of a character
    empty, null         a reply without text
    no_choices, cut     no reply at all; half a reply, stopped at its length
    no_schema           status 400 for a request with response_format
"""

import asyncio
import gzip
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from aiohttp import web

MODEL = "scripted"
Faults = Sequence[str | None] | Callable[[int], str | None]


class Server:
    """What a test sees; `requests` and `peak` are written by the server's thread."""

    def __init__(self, reply: Callable[[list[dict]], str], faults: Faults, key: str, delay_s: float) -> None:
        self.requests: list[dict[str, Any]] = []  # bodies of chat requests
        self.peak = (
            0  # most chat requests under way at once; one that the client gives up counts until the server has seen it
        )
        self.port = 0
        self._reply, self._faults, self._key, self._delay_s = reply, faults, key, delay_s
        self._under_way = 0
        self.transports: set[asyncio.BaseTransport] = set()  # of all requests

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def connections(self) -> int:
        """Connections that have sent a request and are still open."""
        return sum(not connection.is_closing() for connection in self.transports.copy())

    def _fault(self, number: int) -> str:
        if callable(self._faults):
            return self._faults(number) or "ok"
        return (self._faults[number] if number < len(self._faults) else None) or "ok"

    def _refused(self, request: web.Request) -> web.Response | None:
        self.transports.add(request.transport)
        if self._key and request.headers.get("Authorization") != f"Bearer {self._key}":
            return _error(401, f"no such key: {request.headers.get('Authorization')}")
        return None

    async def models(self, request: web.Request) -> web.Response:
        return self._refused(request) or web.json_response(
            {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
        )

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self._under_way += 1
        self.peak = max(self.peak, self._under_way)
        try:
            body = await request.json()
            number = len(self.requests)
            self.requests.append(body)
            await asyncio.sleep(self._delay_s)
            return self._refused(request) or await self._answer(request, body, self._fault(number))
        finally:
            self._under_way -= 1

    async def _answer(self, request: web.Request, body: dict, fault: str) -> web.StreamResponse:
        status, _, after = fault.partition(":")
        if status.isdigit():
            return _error(
                int(status), f"scripted {status}", {"Retry-After": after or "0"} if after or status == "429" else {}
            )
        if (strange := await self._strange(request, fault)) is not None:
            return strange
        if fault == "no_schema" and "response_format" in body:
            return _error(400, "response_format of type json_schema is not supported")
        if fault not in ("ok", "no_schema", "empty", "null", "no_choices", "cut"):
            return _error(400, f"no such fault: {fault}")
        text = self._reply(body["messages"])
        content = {"empty": "", "null": None, "cut": text[: len(text) // 2]}.get(fault, text)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": content},
            "finish_reason": "length" if fault == "cut" else "stop",
        }
        return web.json_response(
            {
                "id": "chatcmpl-0",
                "object": "chat.completion",
                "created": 0,
                "model": body["model"],
                "choices": [] if fault == "no_choices" else [choice],
            }
        )

    async def _strange(self, request: web.Request, fault: str) -> web.StreamResponse | None:
        """What is no reply of a chat server at all."""
        if fault == "hang":
            await asyncio.Event().wait()
        if fault == "trickle":
            stream = web.StreamResponse(headers={"Content-Type": "application/json"})
            await stream.prepare(request)
            while True:
                await stream.write(b" ")
                await asyncio.sleep(0.02)
        if fault == "moved":
            raise web.HTTPTemporaryRedirect("http://127.0.0.1:9/v1/chat/completions")
        if fault == "zipped":
            zipped = web.Response(body=gzip.compress(b" " * 10_000), content_type="application/json")
            zipped.headers["Content-Encoding"] = "gzip"
            return zipped
        if fault == "endless":
            stream = web.StreamResponse(headers={"Content-Type": "application/json"})
            await stream.prepare(request)
            for _ in range(64):
                await stream.write(b" " * 2**20)
            return stream
        if fault == "drop":
            request.transport.abort()
            return web.Response()
        pages = {
            "malformed": ('{"choices": [{"index": 0, "mess', "application/json"),
            "garbage": ("<html>It works!</html>", "text/html"),
            "deep": ("[" * 200_000, "application/json"),
            "long": (f'{{"choices": {"9" * 6000}}}', "application/json"),
            "torn": ('{"choices": [{"message": {"content": "It hurts \\ud83d"}}]}', "application/json"),
        }
        if fault in pages:
            return web.Response(text=pages[fault][0], content_type=pages[fault][1])
        return None

    async def run(self, started: Future) -> None:
        app = web.Application()
        app.add_routes([web.get("/v1/models", self.models), web.post("/v1/chat/completions", self.chat)])
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        stop = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()
        await runner.cleanup()


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response(
        {"error": {"message": message, "type": "scripted", "code": status}}, status=status, headers=headers
    )


@contextmanager
def chat_server(
    reply: Callable[[list[dict]], str], faults: Faults = (), *, key: str = "", delay_s: float = 0.0
) -> Iterator[Server]:
    """Serve until the block ends.

    Args:
        reply: text for the messages of a request; runs in the server's thread.
        faults: names by request, or a function from the request's number (from 0) to a name.
        key: demanded as bearer token, if not empty.
        delay_s: before each answer.
    """
    server, started = Server(reply, faults, key, delay_s), Future()
    thread = threading.Thread(target=lambda: asyncio.run(server.run(started)), daemon=True)
    thread.start()
    loop, stop = started.result(timeout=10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=10)
