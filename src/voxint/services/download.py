"""Fetches a recording from an address: no private host, redirects checked one by one, size and time bounded.

A name is resolved once for each hop, every address that it has must be allowed, and the connection goes to that very
address: a name that answers differently the second time gets no second time.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import httpx

from voxint.services.exchange import CONNECT_SECONDS, ExchangeError, run, usable, watched
from voxint.storable import storable_text

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Coroutine
    from datetime import timedelta

    Address = ipaddress.IPv4Address | ipaddress.IPv6Address

HOPS = 5
"""Redirects that are followed."""
READ_SECONDS = 60.0
"""Longest silence of a server in the middle of a file."""
_TRANSLATED = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("2002::/16"))
"""IPv6 addresses that stand for IPv4 ones: a private host could hide in them."""


class AddressRefusedError(ExchangeError):
    """The address is not one that is fetched from; the message says why."""


def is_public(address: Address) -> bool:
    """Whether an address is one of the internet's, and nobody's own network, this machine, or a special one."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if any(address in network for network in _TRANSLATED):
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def resolve(host: str, port: int) -> list[Address]:
    """The addresses of a host, as the system's resolver gives them.

    Raises:
        OSError: it has none.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]


@dataclass(frozen=True, slots=True)
class Rules:
    """What may be fetched. `allowed` judges each address; `most_bytes` bounds the file; `total` the whole fetch."""

    most_bytes: int
    total: timedelta
    allowed: Callable[[Address], bool] = is_public
    resolver: Callable[[str, int], list[Address]] = field(default=resolve)


@dataclass(frozen=True, slots=True)
class Remote:
    """What a server says of a file before it sends it. `length` in bytes, where it says so."""

    url: str
    content_type: str
    length: int | None


def look(url: str, rules: Rules) -> Remote:
    """Ask once what is there.

    Raises:
        ExchangeError: nothing that could be a recording; the message says why.
    """
    return run(_bounded(_fetch(url, rules, None), rules))


def fetch(url: str, rules: Rules, write: Callable[[bytes], object], lost: threading.Event | None = None) -> Remote:
    """Fetch a file, piece by piece.

    Raises:
        ExchangeError: it could not be had whole.
        OSError: `write` could not write.
    """
    return run(watched(_bounded(_fetch(url, rules, write), rules), lost))


async def _bounded(work: Coroutine[Any, Any, Remote], rules: Rules) -> Remote:
    try:
        async with asyncio.timeout(rules.total.total_seconds()):
            return await work
    except TimeoutError:
        raise ExchangeError(f"it took longer than {rules.total.total_seconds():.0f} s") from None


async def _fetch(url: str, rules: Rules, write: Callable[[bytes], object] | None) -> Remote:
    timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=timeout) as client:
        for _ in range(HOPS + 1):
            request = await _request(client, url, rules)
            try:
                response = await client.send(request, stream=True)
            except (httpx.HTTPError, OSError, ExceptionGroup) as error:
                raise ExchangeError(f"no connection to {urlsplit(url).hostname}: {_short(error)}") from None
            try:
                if response.is_redirect:
                    url = _next(url, response)
                    continue
                remote = _judged(url, response, rules)
                if write is not None:
                    await _receive(response, rules, remote, write)
                return remote
            finally:
                await response.aclose()
    raise AddressRefusedError(f"it is redirected more than {HOPS} times")


def _next(url: str, response: httpx.Response) -> str:
    try:
        return urljoin(url, str(response.headers.get("location", "")))
    except ValueError:
        raise AddressRefusedError("it is redirected to something that is no address") from None


async def _request(client: httpx.AsyncClient, url: str, rules: Rules) -> httpx.Request:
    """A request for a hop, to an address that was looked at."""
    if not usable(url):
        raise AddressRefusedError("it is no http or https address")
    parts = urlsplit(url)
    if parts.hostname is None:
        raise AddressRefusedError("it has no host")
    if parts.username is not None or parts.password is not None:
        raise AddressRefusedError("it has a name or password in it: these are not kept")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    address = await _allowed_address(parts.hostname, port, rules)
    literal = f"[{address}]" if address.version == 6 else str(address)
    target = httpx.URL(url).copy_with(host=literal, port=port, fragment=None)
    host = parts.hostname if ":" not in parts.hostname else f"[{parts.hostname}]"
    headers = {"Host": host if parts.port is None else f"{host}:{parts.port}", "Accept": "*/*"}
    return client.build_request("GET", target, headers=headers, extensions={"sni_hostname": parts.hostname})


async def _allowed_address(host: str, port: int, rules: Rules) -> Address:
    try:
        addresses = await asyncio.get_running_loop().run_in_executor(None, rules.resolver, host, port)
    except (OSError, ValueError, UnicodeError):
        raise ExchangeError(f"the host {host} is not known") from None
    if not addresses:
        raise ExchangeError(f"the host {host} is not known")
    if not all(rules.allowed(address) for address in addresses):
        raise AddressRefusedError(f"{host} is not on the public internet: set URL_ALLOW_PRIVATE=true to allow it")
    return addresses[0]


def _judged(url: str, response: httpx.Response, rules: Rules) -> Remote:
    if response.status_code != 200:
        raise ExchangeError(f"the server answered {response.status_code}")
    content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type in {"text/html", "application/xhtml+xml"}:
        raise AddressRefusedError("it is a web page, not a media file")
    stated = response.headers.get("content-length", "")
    length = int(stated) if stated.isascii() and stated.isdigit() and len(stated) < 19 else None
    if response.headers.get("content-encoding", "identity").lower() not in {"", "identity"}:
        length = None
    if length == 0:
        raise AddressRefusedError("it is empty")
    if length is not None and length > rules.most_bytes:
        raise AddressRefusedError(f"it has {length} bytes, and {rules.most_bytes} are allowed")
    return Remote(url, storable_text(content_type), length)


async def _receive(response: httpx.Response, rules: Rules, remote: Remote, write: Callable[[bytes], object]) -> None:
    size = 0
    try:
        async for chunk in response.aiter_bytes(1 << 20):
            size += len(chunk)
            if size > rules.most_bytes:
                raise AddressRefusedError(f"it has more than the {rules.most_bytes} bytes that are allowed")
            write(chunk)
    except httpx.HTTPError as error:
        raise ExchangeError(f"the connection broke: {_short(error)}") from None
    if remote.length is not None and size != remote.length:
        raise ExchangeError(f"{size} of {remote.length} bytes came")


def _short(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:200]
