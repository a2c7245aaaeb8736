"""One chat completion through OpenAI's own client, under our rules for an exchange.

The library knows the API: addresses, bodies, what counts as an error. What it may do stays ours: one try, a limit on the
whole of it, a bounded answer, no proxy, no redirect, and no header or address that it finds in the environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
from openai import APIConnectionError, APIStatusError, AsyncOpenAI

from voxint.services.exchange import CONNECT_SECONDS, Answer, DroppedError, TooLargeError, tls, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from datetime import timedelta

_KEPT = {"accept", "connection", "content-length", "content-type", "host", "user-agent"}
"""Request headers of the library's that are sent; others tell of this machine, or come from its environment."""


async def complete(
    base: str, headers: Mapping[str, str], body: Mapping[str, Any], total: timedelta, limit: int
) -> Answer:
    """Ask for one completion.

    Args:
        base: the API's base address.
        headers: what is sent beside the body's own headers: the bearer token, where there is one.
        body: the request, as the API has it.
        total: the limit on the whole call.
        limit: the answer's largest size in bytes.

    Raises:
        ExchangeError: there was no whole answer.
    """
    return await within(base, total, _asked(base, headers, body, total, limit))


async def _asked(
    base: str, headers: Mapping[str, str], body: Mapping[str, Any], total: timedelta, limit: int
) -> Answer:
    http = httpx.AsyncClient(
        transport=_Strict(headers, limit),
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(total.total_seconds(), connect=CONNECT_SECONDS),
    )
    async with http:
        client = AsyncOpenAI(base_url=base, api_key="-", http_client=http, max_retries=0)
        try:
            raw = await client.chat.completions.with_raw_response.create(**body)
        except APIStatusError as error:
            return _answer(error.response)
        except APIConnectionError as error:
            # Raised as it was, with its own causes: they tell a refused connection from a broken one.
            failure = error.__cause__ or DroppedError("the connection broke")
        else:
            return _answer(raw.http_response)
        raise failure


def _answer(response: httpx.Response) -> Answer:
    return Answer(response.status_code, dict(response.headers.items()), response.content)


class _Strict(httpx.AsyncHTTPTransport):
    """Sends the kept headers and ours, and takes answers up to a size.

    One in an encoding is not taken: nobody asked for it, and it can grow without bounds.
    """

    def __init__(self, headers: Mapping[str, str], limit: int) -> None:
        super().__init__(verify=tls(), trust_env=False)
        self._headers = headers
        self._limit = limit

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """As the base class, with other headers and a count of the bytes."""
        kept = {name: value for name, value in request.headers.items() if name.lower() in _KEPT}
        sent = httpx.Request(
            request.method,
            request.url,
            headers={**kept, "accept-encoding": "identity", **self._headers},
            stream=request.stream,
            extensions=request.extensions,
        )
        response = await super().handle_async_request(sent)
        if response.headers.get("content-encoding", "identity").lower() not in {"", "identity"}:
            await response.aclose()
            raise DroppedError("the answer is encoded in a way that was not asked for")
        if isinstance(response.stream, httpx.AsyncByteStream):
            response.stream = _Counted(response.stream, self._limit)
        return response


class _Counted(httpx.AsyncByteStream):
    """A stream that ends with an error beyond its limit."""

    def __init__(self, stream: httpx.AsyncByteStream, limit: int) -> None:
        self._stream = stream
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The bytes."""
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > self._limit:
                raise TooLargeError(f"the answer is larger than {self._limit} bytes")
            yield chunk

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()
