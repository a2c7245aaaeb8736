"""What a model server says when it cannot answer: a status and a sentence, in the error form that OpenAI clients know."""

from __future__ import annotations

from starlette.responses import JSONResponse


class ServiceError(Exception):
    """An answer that is an error. `status` is the HTTP status, the text is for the caller."""

    status = 500
    kind = "server_error"
    retry_after: int | None = None
    """Seconds after which asking again may help, or None."""


class BadRequestError(ServiceError):
    """The request itself cannot be served; asking again will not help."""

    status = 422
    kind = "invalid_request_error"


class TooLargeError(ServiceError):
    """The upload or the recording is beyond the limits."""

    status = 413
    kind = "invalid_request_error"


class NotReadyError(ServiceError):
    """The model is loading, or has no weights."""

    status = 503
    kind = "unavailable_error"
    retry_after = 2


class BusyError(ServiceError):
    """The queue is full."""

    status = 503
    kind = "unavailable_error"
    retry_after = 5


class CancelledError(ServiceError):
    """The caller has gone, or the server is ending: the inference was given up."""

    status = 503
    kind = "unavailable_error"


class WeightsMissingError(Exception):
    """The model's weights are not on this machine. The text says how to get them."""


class CannotServeError(Exception):
    """The engine cannot run as asked, a missing GPU for example. The server ends with this text and exit status 1."""


def answer(error: ServiceError) -> JSONResponse:
    """The error as an HTTP answer."""
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return document(error.status, str(error), error.kind, headers)


def document(status: int, text: str, kind: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error answer of this status and text."""
    return JSONResponse({"error": {"message": text, "type": kind, "code": status}}, status, headers)
