"""Does a service really answer? One bounded request; an open port alone is no answer."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from voxint_broker import clock

if TYPE_CHECKING:
    from voxint_broker.config import Ready

_LONGEST_BODY = 256 * 1024


def why_not_ready(ready: Ready) -> str | None:
    """Ask once. None when the service is ready, else what is missing."""
    parts = urlsplit(ready.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=max(ready.answer_seconds, 0.001))
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    deadline = clock.monotonic() + ready.answer_seconds
    try:
        if ready.body is None:
            connection.request("GET", path)
        else:
            connection.request("POST", path, ready.body.encode(), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status not in ready.status:
            return f"{ready.url} answers {response.status}"
        return _body_lacks(response, ready, deadline)
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        return f"{ready.url} does not answer: {why.lower()}"
    finally:
        connection.close()


def _body_lacks(response: http.client.HTTPResponse, ready: Ready, deadline: float) -> str | None:
    """Read to the end, as an answer that breaks off is none; None when it is whole and holds what it must."""
    body = bytearray()
    while len(body) < _LONGEST_BODY:
        if clock.monotonic() > deadline:
            return f"{ready.url} began an answer and did not end it within {ready.answer_seconds:g} s"
        part = response.read1(65_536)
        if not part:
            break
        body += part
    if response.length and len(body) < _LONGEST_BODY:
        return f"{ready.url} broke off its answer"
    if ready.contains and ready.contains.encode() not in body:
        return f"{ready.url} answers, but without {ready.contains!r}"
    return None
