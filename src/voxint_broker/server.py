"""The broker over HTTP: the three calls of the contract, and what people and monitors look at."""

from __future__ import annotations

import hmac
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException

from voxint_broker import wire
from voxint_broker.events import metrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from voxint_broker.calls import Reply
    from voxint_broker.engine import Broker

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

BODY_LIMIT = 64 * 1024
"""Bytes of the longest body that is read."""

OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz"})
"""Paths that need no token: they tell nothing but whether the broker lives."""

_CODES = {400: "bad_request", 404: "no_such_path", 405: "no_such_method", 422: "bad_request"}


def make_app(broker: Broker, *, token: str | None, hosts: frozenset[str]) -> Guard:
    """The application: the calls behind a guard that checks who asks, and bounds what is sent."""
    app = FastAPI(title="GPU lease broker", version="1", docs_url=None, redoc_url=None)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]

    @app.post("/gpu/acquire", responses=wire.ACQUIRE)
    def acquire(body: wire.AcquireBody) -> JSONResponse:
        """Ask for the GPU, or for more time on a lease."""
        return _response(broker.acquire(body.holder, timedelta(seconds=min(body.ttl_seconds, 1e9)), body.lease_id))

    @app.post("/gpu/release", responses=wire.RELEASE)
    def release(body: wire.ReleaseBody) -> JSONResponse:
        """Give the GPU back."""
        return _response(broker.release(body.lease_id))

    @app.get("/gpu/status", responses=wire.STATUS, response_model=wire.Status)
    def status() -> dict[str, Any]:
        """Who holds the GPU."""
        return broker.status()

    @app.get("/metrics", response_class=PlainTextResponse, responses=wire.METRICS)
    def counters() -> PlainTextResponse:
        """Counters in Prometheus' text format."""
        return PlainTextResponse(metrics(broker.events, broker.status()), media_type="text/plain; version=0.0.4")

    @app.get("/healthz", responses={421: wire.READY[421]}, response_model=wire.Health)
    @app.get("/livez", responses={421: wire.READY[421]}, response_model=wire.Health)
    def alive() -> dict[str, str]:
        """Whether the broker lives."""
        return {"status": "ok"}

    @app.get("/readyz", responses=wire.READY, response_model=wire.Health)
    def ready() -> JSONResponse:
        """Whether the broker can do its work."""
        problem = broker.problem()
        return JSONResponse({"status": "error" if problem else "ok"}, 503 if problem else 200)

    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    return Guard(app, token, hosts)


class Guard:
    """Looks at a call before the application does: its host, its token, the size of its body."""

    def __init__(self, app: FastAPI, token: str | None, hosts: frozenset[str]) -> None:
        self.app = app
        self.allow(token, hosts)

    def allow(self, token: str | None, hosts: frozenset[str]) -> None:
        """Answer to this token and these host names from now on."""
        self._token = None if token is None else b"Bearer " + token.encode()
        self._hosts = hosts

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One call (ASGI)."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        refusal = self._refusal(scope["path"], headers)
        body = b""
        if refusal is None:
            body, refusal = await _bounded(headers, receive)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self.app(scope, _replayed(body, receive), send)

    def _refusal(self, path: str, headers: dict[bytes, bytes]) -> JSONResponse | None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and host[-1:] != "]" else host
        if name.strip("[]") not in self._hosts:
            return _error(421, "unknown_host", "this broker does not answer to that host name; see allowed_hosts")
        if self._token is None or path in OPEN_PATHS:
            return None
        if hmac.compare_digest(headers.get(b"authorization", b""), self._token):
            return None
        refusal = _error(401, "unauthorized", "the bearer token is missing or wrong")
        refusal.headers["WWW-Authenticate"] = "Bearer"
        return refusal


async def _bounded(headers: dict[bytes, bytes], receive: Receive) -> tuple[bytes, JSONResponse | None]:
    body = bytearray()
    too_large = _error(413, "too_large", f"a body may have {BODY_LIMIT} bytes")
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length) > BODY_LIMIT:
        return b"", too_large
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b"", _error(400, "bad_request", "the call broke off")
        body += message.get("body", b"")
        if len(body) > BODY_LIMIT:
            return b"", too_large
        if not message.get("more_body", False):
            return bytes(body), None


def _replayed(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _response(reply: Reply) -> JSONResponse:
    return JSONResponse(reply.body, reply.status)


def _error(status: int, code: str, text: str) -> JSONResponse:
    return JSONResponse({"error": text, "code": code}, status)


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    problems = error.errors() if isinstance(error, RequestValidationError) else []
    text = "; ".join(
        f"{'.'.join(str(part) for part in problem['loc'] if part != 'body') or 'body'}: {problem['msg']}"
        for problem in problems[:5]
    )
    return _error(422, "bad_request", text or "the body cannot be used")


async def _http_error(_request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        raise error
    code = _CODES.get(error.status_code, "error")
    response = _error(error.status_code, code, str(error.detail))
    response.headers.update(error.headers or {})
    return response


def _described(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the token that the guard wants."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, calls in document["paths"].items():
            if path not in OPEN_PATHS:
                for call in calls.values():
                    call["security"] = [{"token": []}]
        app.openapi_schema = document
    return app.openapi_schema
