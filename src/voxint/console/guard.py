"""What every request passes and every answer carries: the Host check, the origin check, and the security headers.

A page of another site can make a browser send requests here. It cannot choose the Host header's name freely (that is
checked against CONSOLE_ALLOWED_HOSTS), and a request that changes something names its origin (that must be this host).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; img-src 'self' data:; media-src 'self'; script-src 'self';"
        " connect-src 'self'; font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
"""On every answer. Nothing is loaded from another host, nothing is framed, no script stands inside a page."""

STRICT_TRANSPORT = "max-age=31536000"
"""Where the console was reached over TLS, it is not to be reached without it for a year."""

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class Guard:
    """Wraps the application.

    Args:
        app: what is guarded.
        allowed_hosts: names by which this console may be reached; a leading `*.` allows every name below.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Iterable[str]) -> None:
        self._app = app
        self._allowed = tuple(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on with the headers added."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if scope["scheme"] == "https":
                    headers.setdefault("strict-transport-security", STRICT_TRANSPORT)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_allowed(host_name(host)):
            return PlainTextResponse("This name is not among CONSOLE_ALLOWED_HOSTS.", status_code=400)
        if scope["method"] in SAFE:
            return None
        origin = headers.get("origin")
        if origin is not None and not _is_own(origin, host, scope["scheme"]):
            return PlainTextResponse("This request comes from another site.", status_code=403)
        if origin is None and headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            return PlainTextResponse("This request comes from another site.", status_code=403)
        return None

    def _is_allowed(self, name: str) -> bool:
        return any(
            name == allowed or (allowed.startswith("*.") and name.endswith(allowed[1:])) for allowed in self._allowed
        )


def _is_own(origin: str, host: str, scheme: str) -> bool:
    """Whether an origin is this console. Over TLS a page that came without it is another site's: anybody may have made it."""
    try:
        found = urlsplit(origin)
    except ValueError:  # no browser sends such a one
        return False
    return found.netloc.lower() == host.lower() and (scheme != "https" or found.scheme == "https")


def host_name(host: str) -> str:
    """A Host header's name without its port, in small letters."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
