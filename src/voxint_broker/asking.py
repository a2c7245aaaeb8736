"""One bounded HTTP call to a service, on the standard library alone."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from voxint_broker import clock

LONGEST_BODY = 1024 * 1024


class AskError(Exception):
    """There was no complete answer. The text says at which address and why."""


@dataclass(frozen=True, slots=True)
class Said:
    """An answer: its status code and body."""

    status: int
    body: bytes

    def json(self) -> Any:  # noqa: ANN401 - JSON values
        """The body as JSON; None when it is not."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


def ask(url: str, seconds: float, *, method: str = "GET", body: str | None = None, key: str | None = None) -> Said:
    """Call an address.

    Args:
        url: the address.
        seconds: the limit of each step and of the reading of the body.
        method: the HTTP method.
        body: JSON text to send.
        key: a bearer token.

    Raises:
        AskError: there was no complete answer within the limits.
    """
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=max(seconds, 0.001))
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    deadline = clock.monotonic() + seconds
    try:
        connection.request(method, path, None if body is None else body.encode(), headers)
        response = connection.getresponse()
        return Said(response.status, _read(response, url, deadline))
    except (OSError, http.client.HTTPException, UnicodeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else _words(error)
        raise AskError(f"{url} does not answer: {why.lower()}") from error
    finally:
        connection.close()


def _words(error: Exception) -> str:
    """What the library says, but for a header that it cannot send: it tells what stands in it."""
    if type(error) is ValueError:
        return "a header cannot be sent"
    return str(error) or type(error).__name__


def _read(response: http.client.HTTPResponse, url: str, deadline: float) -> bytes:
    body = bytearray()
    while len(body) < LONGEST_BODY:
        if clock.monotonic() > deadline:
            raise AskError(f"{url} began an answer and did not end it in time")
        part = response.read1(65_536)
        if not part:
            if response.length:
                raise AskError(f"{url} broke off its answer")
            break
        body += part
    return bytes(body)
