"""The door: nothing but what is named here is given to somebody who has not signed in, whatever route is added later.

The session is looked up once a request and put into its state. A request whose body is not an upload is bounded here too.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import quote

from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from voxint.access.store import Access, Session

OPEN = frozenset({"/healthz", "/metrics", "/sign-in"})
"""Paths that need no sign-in. /metrics has numbers alone: no name, title or text of anybody."""
OPEN_BELOW = ("/static/", "/api/")
"""And everything below these; the API asks for its own token."""
UPLOADS = frozenset({"/uploads", "/api/v1/uploads"})
"""Paths whose bodies are streamed and bounded by their own routes."""
BODY_BYTES = 256 * 1024
BODY_SECONDS = 30.0
REFRESH_HEADER = "x-voxint-refresh"
"""A page that asks for itself again carries it: that is nobody's use of the session."""
_BELIEVED_SECONDS = 600.0
_MOST_BELIEVED = 1000


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who a request comes from. `secret` is what the forms' tokens are derived from: the session's, or a passing one."""

    secret: str
    session: Session | None
    is_refresh: bool = False

    @property
    def form_token(self) -> str:
        """What every form of this visitor carries. It does not give the session's token away."""
        return hmac.new(self.secret.encode(), b"voxint form", hashlib.sha256).hexdigest()

    def owns(self, form_token: str) -> bool:
        """Whether a form was made for this visitor."""
        return hmac.compare_digest(self.form_token.encode(), form_token.encode())


@dataclass(frozen=True, slots=True)
class Cookies:
    """The cookies' names. They carry the port: all servers of a host share one jar."""

    port: int

    @property
    def session(self) -> str:
        """Who is signed in."""
        return f"voxint-{self.port}"

    @property
    def passing(self) -> str:
        """What the sign-in form's token is derived from."""
        return f"voxint-form-{self.port}"

    def give(self, response: Response, name: str, value: str, request: Request, *, max_age: int | None = None) -> None:
        """Put a cookie on an answer, out of scripts' reach, and for TLS alone where the request came over it."""
        response.set_cookie(
            name, value, max_age=max_age, path="/", secure=request.url.scheme == "https", httponly=True, samesite="lax"
        )


class Door:
    """Wraps the application.

    Args:
        app: what lies behind the door.
        access: who may come in.
        cookies: the cookies' names.
        away: the answer while the database is away.
    """

    def __init__(
        self, app: ASGIApp, access: Access, cookies: Cookies, away: Callable[[SQLAlchemyError], Response]
    ) -> None:
        self._app = app
        self._access = access
        self._cookies = cookies
        self._away = away
        self._believed: OrderedDict[str, tuple[Session, float, int]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on with the visitor."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            visitor = await self._visitor(scope)
        except SQLAlchemyError as error:
            await self._away(error)(scope, receive, send)
            return
        scope.setdefault("state", {})["visitor"] = visitor
        path = scope["path"]
        if visitor.session is None and path not in OPEN and not path.startswith(OPEN_BELOW):
            await self._refusal(scope)(scope, receive, send)
            return
        if path not in UPLOADS:
            receive = _bounded(receive)
            if int_or_none(Headers(scope=scope).get("content-length")) > BODY_BYTES:
                await PlainTextResponse("This is more than a form holds.", 413)(scope, receive, send)
                return
        try:
            await self._app(scope, receive, send)
        except BodyError as error:
            await PlainTextResponse(str(error), error.status, {"connection": "close"})(scope, receive, send)

    async def _visitor(self, scope: Scope) -> Visitor:
        headers = Headers(scope=scope)
        found = cookies_in(headers.get("cookie", ""))
        token = found.get(self._cookies.session)
        is_refresh = REFRESH_HEADER in headers
        path = scope["path"]
        if token and not path.startswith(OPEN_BELOW) and path not in {"/healthz", "/metrics"}:
            session = await run_in_threadpool(self._look_up, token, used=not is_refresh)
            if session is not None:
                return Visitor(token, session, is_refresh)
        return Visitor(found.get(self._cookies.passing) or secrets.token_urlsafe(24), None, is_refresh)

    def _look_up(self, token: str, *, used: bool) -> Session | None:
        """While the database is away, whoever was seen in the last minutes may go on: they come to see what is wrong.

        Not where a session was ended since: it may have been theirs.
        """
        endings = self._access.endings
        try:
            session = self._access.session(token, used=used)
        except SQLAlchemyError:
            found = self._believed.get(token)
            if found is None or monotonic() - found[1] > _BELIEVED_SECONDS or found[2] != endings:
                raise
            return found[0]
        if session is None:
            self._believed.pop(token, None)
        else:
            self._believed[token] = (session, monotonic(), endings)
            while len(self._believed) > _MOST_BELIEVED:
                self._believed.popitem(last=False)
        return session

    def _refusal(self, scope: Scope) -> Response:
        headers = Headers(scope=scope)
        if scope["method"] in {"GET", "HEAD"} and REFRESH_HEADER not in headers:
            query = scope.get("query_string", b"").decode("latin-1")
            wanted = scope["path"] + (f"?{query}" if query else "")
            to = "/sign-in" + ("" if wanted == "/" else f"?next={quote(wanted, safe='/')}")
            return RedirectResponse(to, 303, {"cache-control": "no-store"})
        return PlainTextResponse("Sign in first.", 401, {"cache-control": "no-store"})


class BodyError(Exception):
    """A body that is too large, or too slow."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def _bounded(receive: Receive) -> Receive:
    """The same body, up to a size and a time: a form is sent at once."""
    until = monotonic() + BODY_SECONDS
    seen = 0
    ended = False

    async def bounded() -> Message:
        nonlocal seen, ended
        if ended:
            return await receive()
        try:
            async with asyncio.timeout(max(until - monotonic(), 0.0)):
                message = await receive()
        except TimeoutError:
            raise BodyError(408, "The form was not sent within its time.") from None
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            ended = not message.get("more_body", False)
            if seen > BODY_BYTES:
                raise BodyError(413, "This is more than a form holds.")
        return message

    return bounded


def cookies_in(header: str) -> dict[str, str]:
    """The cookies of a request, each read by itself: other servers of this host set what they like beside ours.

    Python's own reader gives up all that follows, or everything, at the first one that it does not understand.
    """
    pairs = (each.partition("=") for each in header.split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def int_or_none(text: str | None) -> int:
    """A Content-Length; 0 where there is none."""
    return int(text) if text and text.isdecimal() else 0
