"""The HTTP app around a service: limits on what comes in, health, and errors as sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from voxint_models.serving.errors import ServiceError, TooLargeError, answer, document

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from voxint_models.serving.service import Service

HEALTH_PATHS = ("/healthz", "/health")


def build(service: Service[Any], router: APIRouter) -> FastAPI:
    """The app with the service's own paths, /healthz and /health."""
    app = FastAPI(title=f"Voxint {service.name}", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(router)

    def health() -> JSONResponse:
        status, body = service.health()
        return JSONResponse(body, status)

    for path in HEALTH_PATHS:
        app.add_api_route(path, health, methods=["GET"])
    app.add_exception_handler(ServiceError, _said)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)
    app.add_middleware(Gate, service=service)
    return app


class Gate:
    """Stands before every POST: refuses before the body is kept where it would be refused anyhow, and bounds the body.

    A body that is refused is still read and thrown away, within the limit: closing a connection with unread bytes in
    it can take the answer away from the caller.
    """

    def __init__(self, app: ASGIApp, service: Service[Any]) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        limit = self._service.options.upload_bytes
        length = _content_length(scope)
        try:
            self._service.refuse_early()
            if length is not None and length > limit:
                raise TooLargeError(f"the upload has {length} bytes, and at most {limit} are taken")
        except ServiceError as error:
            await _drain(receive, limit)
            await answer(error)(scope, receive, send)
            return
        body = _BoundedBody(scope, receive, send, limit)
        try:
            await self._app(scope, body.receive, body.send)
        except TooLargeError:
            if not body.refused:
                raise


class _BoundedBody:
    """Counts what comes in. Past the limit it answers 413 itself: a framework would make a general 400 of an error."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limit: int) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._limit = limit
        self._taken = 0
        self.refused = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._taken += len(message.get("body", b""))
        if self._taken > self._limit and not self.refused:
            error = TooLargeError(f"the upload has more than {self._limit} bytes, which is the limit")
            self.refused = True
            await answer(error)(self._scope, self._receive, self._send)
            raise error
        return message

    async def send(self, message: Message) -> None:
        if not self.refused:
            await self._send(message)


async def _drain(receive: Receive, limit: int) -> None:
    taken, more = 0, True
    while more and taken <= limit:
        message = await receive()
        taken += len(message.get("body", b""))
        more = message["type"] == "http.request" and message.get("more_body", False)


def _content_length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return None


def _said(_request: Request, error: Exception) -> Response:
    return answer(error) if isinstance(error, ServiceError) else document(500, "unexpected error", "server_error")


def _invalid(_request: Request, error: Exception) -> Response:
    problems = error.errors() if isinstance(error, RequestValidationError) else []
    text = "; ".join(f"{'.'.join(str(part) for part in p['loc'][1:])}: {p['msg']}" for p in problems)
    return document(422, text or "the request could not be read", "invalid_request_error")


def _http(_request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return document(error.status_code, str(error.detail), "invalid_request_error")
    return document(500, "unexpected error", "server_error")


def _unexpected(_request: Request, error: Exception) -> Response:
    """What nobody foresaw: uvicorn writes the trace to the log, the caller gets the kind of error and no more."""
    return document(500, f"unexpected {type(error).__name__}", "server_error")
