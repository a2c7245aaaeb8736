"""One HTTP exchange under our rules: a limit on the whole of it, a bounded body, no proxy, no redirect, typed failures.

A timeout of the library counts for each read alone, so that a byte a second outlives it; here the whole exchange ends
in time, and at once when `lost` is set.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import httpx

if TYPE_CHECKING:
    import threading
    from collections.abc import Coroutine, Iterator, Mapping
    from datetime import timedelta

T = TypeVar("T")

CONNECT_SECONDS = 10.0
_LOOK_SECONDS = 0.2


class ExchangeError(Exception):
    """No answer; the message says why, in words, without addresses' secrets."""


class NotListeningError(ExchangeError):
    """The connection was refused, or the host's name is not known: what a stopped service looks like."""


class TooSlowError(ExchangeError):
    """No whole answer within the time that was given, or no connection."""


class DroppedError(ExchangeError):
    """The connection ended, or broke, in the middle."""


class TooLargeError(ExchangeError):
    """The answer is larger than such an answer can be."""


class AbandonedError(ExchangeError):
    """We gave it up: `lost` was set."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked. `files`, `data` and `json` as httpx takes them; `limit` is the answer's largest size in bytes."""

    method: str
    url: str
    total: timedelta
    limit: int
    headers: Mapping[str, str] = field(default_factory=dict)
    json: object | None = None
    data: Mapping[str, Any] | None = None
    files: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whatever its status. Header names are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def exchange(ask: Ask, lost: threading.Event | None = None) -> Answer:
    """Ask, and wait for the answer.

    Raises:
        ExchangeError: there is no whole answer; its class says what kind of failure it was.
    """
    return run(watched(answer_to(ask), lost))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a loop of its own. A name server that does not answer does not hold it up at the end."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        with suppress(RuntimeError):
            loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def answer_to(ask: Ask) -> Answer:
    """The exchange as a coroutine, within its time.

    Raises:
        ExchangeError: see `exchange`.
    """
    return await within(ask.url, ask.total, _talk(ask))


async def within(url: str, total: timedelta, talk: Coroutine[Any, Any, T]) -> T:
    """Talk to an address within a time, with every failure as one of ours.

    Raises:
        ExchangeError: see `exchange`.
    """
    seconds = total.total_seconds()
    if not usable(url):
        talk.close()
        raise ExchangeError("the address cannot be used")
    try:
        async with asyncio.timeout(seconds):
            return await talk
    except TimeoutError:
        raise TooSlowError(f"no whole answer within {seconds:g} s") from None
    except httpx.ConnectTimeout:
        raise TooSlowError(f"could not connect within {CONNECT_SECONDS:g} s") from None
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError, UnicodeError):
        raise ExchangeError("the address cannot be used") from None
    except httpx.ConnectError as error:
        raise _not_connected(error) from None
    except (httpx.HTTPError, httpx.StreamError, OSError, ExceptionGroup) as error:
        raise DroppedError(f"the connection broke: {_short(error)}") from None


def usable(url: str) -> bool:
    """Whether this is an http or https address with a host that could be one and a port in its range."""
    try:
        parts = urlsplit(url)
        port_fits = parts.port is None or 0 < parts.port < 65536
    except ValueError:
        return False
    return (
        port_fits and parts.scheme in {"http", "https"} and bool(parts.hostname) and "[" not in (parts.hostname or "")
    )


async def watched(work: Coroutine[Any, Any, T], lost: threading.Event | None) -> T:
    """Do it, and give it up when `lost` is set.

    Raises:
        AbandonedError: it was given up.
    """
    if lost is None:
        return await work
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.wait({task}, timeout=_LOOK_SECONDS)
        if lost.is_set() and not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1)
            raise AbandonedError("given up: the work was taken back")
    return task.result()


async def _talk(ask: Ask) -> Answer:
    timeout = httpx.Timeout(ask.total.total_seconds(), connect=CONNECT_SECONDS)
    async with (
        httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=timeout, verify=tls()) as client,
        client.stream(
            ask.method, ask.url, headers=dict(ask.headers), json=ask.json, data=ask.data, files=ask.files
        ) as response,
    ):
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > ask.limit:
                raise TooLargeError(f"the answer is larger than {ask.limit} bytes")
        return Answer(response.status_code, dict(response.headers.items()), bytes(body))


@cache
def tls() -> ssl.SSLContext:
    """The certificates that are trusted, read once a process: that takes longer than a request."""
    return httpx.create_ssl_context(trust_env=False)


def _not_connected(error: BaseException) -> ExchangeError:
    for cause in _causes(error):
        if isinstance(cause, ConnectionRefusedError):
            return NotListeningError("connection refused")
        if isinstance(cause, socket.gaierror):
            return NotListeningError("the host's name is not known")
        if isinstance(cause, ssl.SSLError):
            return ExchangeError(f"no secure connection: {_short(cause)}")
    return ExchangeError(f"could not connect: {_short(error)}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


def _short(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:200]
