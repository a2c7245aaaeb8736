"""Asks a model service over HTTP whether it is ready, and names each way in which it is not.

The limit is for the whole call, name lookup and a dripping body included. The environment's proxies do not apply: the
services stand on this host or in this compose project. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import functools
import json
import socket
import ssl
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import httpx

from voxint.gpu_phase.model import Condition
from voxint.gpu_phase.reasons import clean
from voxint.services.causes import causes
from voxint.services.parallel import StillAtWorkError, at_once
from voxint.services.states import not_ready_because

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from voxint.gpu_phase.model import ServiceSeen
    from voxint.settings import ServiceSettings

HEALTH_SECONDS = 5.0
"""Longest wait for one health answer, from the name lookup to the last byte."""

_SPARE_SECONDS = 0.5  # for what cancelling cannot cut short: a name lookup inside the C library
_BODY_LIMIT = 64 * 1024


class Answer(StrEnum):
    """The kinds of health answer. Only `ready` is healthy; only `refused` and `no_name` can mean "stopped"."""

    READY = "ready"
    NOT_READY = "not_ready"
    STATUS = "status"
    MALFORMED = "malformed"
    REFUSED = "refused"
    NO_NAME = "no_name"
    CONNECT_TIMED_OUT = "connect_timed_out"
    STALLED = "stalled"
    TLS = "tls"
    BAD_URL = "bad_url"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Health:
    """One health answer: its kind, words for people, and the JSON object that came with it, if one did."""

    answer: Answer
    detail: str
    body: Mapping[str, Any] | None = None

    @property
    def ready(self) -> bool:
        """Whether the service can work."""
        return self.answer is Answer.READY

    @property
    def looks_stopped(self) -> bool:
        """Whether this is what a stopped service looks like: nobody listens, or the name is gone."""
        return self.answer in {Answer.REFUSED, Answer.NO_NAME}

    @property
    def device(self) -> str | None:
        """The device that the service reports, where it reports one."""
        device = self.body.get("device") if self.body else None
        return device if isinstance(device, str) else None


def probe(url: str, limit_seconds: float = HEALTH_SECONDS) -> Health:
    """Ask one address. Never raises."""
    return probe_all({"": url}, limit_seconds)[""]


def probe_all(urls: Mapping[str, str], limit_seconds: float = HEALTH_SECONDS) -> dict[str, Health]:
    """Ask several addresses at the same time. Never raises.

    Args:
        urls: the full health address of each, by name.
        limit_seconds: longest wait for any of them.
    """
    calls = {name: functools.partial(_run, url, limit_seconds) for name, url in urls.items()}
    found: dict[str, Health] = {}
    for name, result in at_once(calls, limit_seconds + _SPARE_SECONDS).items():
        match result:
            case Health():
                found[name] = result
            case StillAtWorkError():
                found[name] = Health(Answer.CONNECT_TIMED_OUT, f"its name was not resolved within {limit_seconds:g} s")
            case error:
                found[name] = _failure(error)
    return found


def with_health(
    seen: Iterable[ServiceSeen], services: Mapping[str, ServiceSettings], limit_seconds: float = HEALTH_SECONDS
) -> tuple[ServiceSeen, ...]:
    """What was inspected, with the HTTP answer of each that runs. Stopped and unknown ones are not asked."""
    services_seen = tuple(seen)
    running = {
        service.name: services[service.name].health_url
        for service in services_seen
        if service.condition is Condition.RUNNING
    }
    answers = probe_all(running, limit_seconds)
    return tuple(_joined(service, answers.get(service.name)) for service in services_seen)


def _joined(service: ServiceSeen, health: Health | None) -> ServiceSeen:
    if health is None:
        return replace(service, healthy=False)
    return replace(service, healthy=health.ready, detail=health.detail)


def _run(url: str, limit_seconds: float) -> Health:
    return asyncio.run(_ask(url, limit_seconds))


async def _ask(url: str, limit_seconds: float) -> Health:
    connected = False

    def traced(event: str) -> None:
        nonlocal connected
        connected = connected or event.startswith("http11.")

    try:
        async with asyncio.timeout(limit_seconds):
            return await _get(url, traced)
    except TimeoutError:
        if connected:
            return Health(Answer.STALLED, f"accepted the connection, but gave no whole answer in {limit_seconds:g} s")
        return Health(Answer.CONNECT_TIMED_OUT, f"did not accept a connection within {limit_seconds:g} s")
    except httpx.InvalidURL as error:
        return Health(Answer.BAD_URL, clean(f"has no usable address: {error}"))
    except (httpx.HTTPError, OSError, ValueError) as error:
        return _failure(error)


async def _get(url: str, traced: Any) -> Health:  # noqa: ANN401 - httpx gives the trace hook no type
    async def trace(event: str, _info: object) -> None:
        traced(event)

    options = httpx.Timeout(None)  # the limit around this call is the only one
    async with (
        httpx.AsyncClient(trust_env=False, verify=_tls(), timeout=options) as client,
        client.stream("GET", url, extensions={"trace": trace}) as response,
    ):
        body = bytearray()
        async for part in response.aiter_bytes():
            body += part
            if len(body) > _BODY_LIMIT:
                return Health(
                    Answer.MALFORMED, f"answers {response.status_code} with more than {_BODY_LIMIT // 1024} KiB"
                )
        if response.status_code != 200:
            return Health(Answer.STATUS, _status(response, bytes(body)))
        return _read(response.headers.get("content-type", ""), bytes(body))


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _status(response: httpx.Response, body: bytes) -> str:
    where = response.headers.get("location")
    if where is not None:
        return clean(f"answers {response.status_code}, a redirect to {where}, which is not followed")
    text = f"answers {response.status_code} {response.reason_phrase}".rstrip()
    try:
        why = not_ready_because(json.loads(body))
    except (ValueError, RecursionError):
        why = None
    return clean(f"{text}: {why}") if why else clean(text)


def _read(content_type: str, body: bytes) -> Health:
    """What a 200 says. A body without JSON is a foreign service's way to say yes."""
    text = body.strip()
    if "html" in content_type.lower() or text.startswith(b"<"):
        return Health(Answer.MALFORMED, "answers 200 with a web page: something else listens there")
    if not text or ("json" not in content_type.lower() and not text.startswith(b"{")):
        return Health(Answer.READY, "answers 200, without JSON")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return Health(Answer.MALFORMED, "answers 200, but with JSON that cannot be read")
    known = value if isinstance(value, dict) else None
    why = not_ready_because(value)
    if why is not None:
        return Health(Answer.NOT_READY, clean(f"answers 200, but is not ready: {why}"), known)
    return Health(Answer.READY, "answers", known)


def _failure(error: Exception) -> Health:
    """The name of a connection's failure. httpx has one class for many: only the chain of causes tells."""
    for cause in causes(error):
        match cause:
            case ConnectionRefusedError():
                return Health(Answer.REFUSED, "connection refused")
            case socket.gaierror():
                return Health(Answer.NO_NAME, "its host name does not resolve")
            case ssl.SSLError():
                return Health(Answer.TLS, clean(f"TLS failed: {cause.reason or cause}"))
            case TimeoutError():
                return Health(Answer.CONNECT_TIMED_OUT, "the connection timed out")
            case OverflowError():
                return Health(Answer.BAD_URL, clean(f"has no usable address: {cause}"))
    text = clean(str(error)) or type(error).__name__
    if isinstance(error, httpx.UnsupportedProtocol):
        return Health(Answer.BAD_URL, f"has no usable address: {text}")
    if isinstance(error, (httpx.RemoteProtocolError, httpx.DecodingError)):
        return Health(Answer.MALFORMED, f"gives a malformed reply: {text}")
    return Health(Answer.BROKEN, f"the connection broke: {text}")
