"""A way to an HTTP server that goes where it was sent and takes no more than it can hold: no redirects, no compressed
replies, a bound on their bytes.
"""

from collections.abc import AsyncIterator

import httpx2 as httpx  # the client library of `openai`

MAX_REPLY_BYTES = 8 * 2**20  # a completion of 100,000 tokens has less than one


class RefusedReplyError(httpx.TransportError):
    """A reply that is not read to its end; the message says why."""


class _Bounded(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, most: int) -> None:
        self._stream, self._left, self._most = stream, most, most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._left -= len(chunk)
            if self._left < 0:
                raise RefusedReplyError(f"the reply is longer than {self._most // 2**20} MiB")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _bound(response: httpx.Response) -> None:
    """Refuse what is compressed, which could be of any size, and let the rest be read up to a bound."""
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise RefusedReplyError("the reply is compressed, though plain bytes were asked for")
    if isinstance(response.stream, httpx.AsyncByteStream):
        response.stream = _Bounded(response.stream, MAX_REPLY_BYTES)


def bounded_client(connections: int) -> httpx.AsyncClient:
    """A client with room for so many requests at once. It sets no time limits: whoever uses it does."""
    return httpx.AsyncClient(
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        headers={"Accept-Encoding": "identity"},
        event_hooks={"response": [_bound]},
        follow_redirects=False,
        timeout=None,
    )
