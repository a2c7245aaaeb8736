"""A call of a model service, and what its answers mean for the stage that made it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from voxint.services.exchange import Answer, Ask, ExchangeError, exchange
from voxint.storable import read_json

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

ANSWER_BYTES = 512 << 20
"""Largest answer of a model service: words of a whole day with their times are some tens of megabytes."""
LONGEST_WAIT = timedelta(minutes=15)
"""A Retry-After beyond this is shortened."""


class ServiceError(Exception):
    """A model service did not do its work; the message names it and says why."""


class ServiceBusyError(ServiceError):
    """It is loading, or busy: ask again after `retry_in`."""

    def __init__(self, reason: str, retry_in: timedelta) -> None:
        super().__init__(reason)
        self.retry_in = retry_in


class ServiceRefusedError(ServiceError):
    """It looked at the file and will not take it: asking again changes nothing."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """Where a service answers and for how long it may work.

    Args:
        service: its name, for messages.
        url: the full address of the call.
        total: the limit on one whole call.
    """

    service: str
    url: str
    total: timedelta

    def post(self, files: Mapping[str, Any], data: Mapping[str, Any], lost: threading.Event | None) -> dict[str, Any]:
        """Send a form, and read the JSON object that comes back.

        Raises:
            ExchangeError: there was no whole answer.
            ServiceError: it was no usable one.
        """
        ask = Ask("POST", self.url, self.total, ANSWER_BYTES, files=files, data=data)
        return self._read(exchange(ask, lost))

    def _read(self, answer: Answer) -> dict[str, Any]:
        if answer.status != 200:
            raise self._refusal(answer)
        try:
            document = read_json(answer.body)
        except ValueError:
            raise ServiceError(f"{self.service} answered 200 with something that is no JSON") from None
        if not isinstance(document, dict):
            raise ServiceError(f"{self.service} answered 200 with JSON that is no object")
        if document.get("error"):
            raise ServiceError(f"{self.service} answered 200 with an error: {error_text(document)}")
        return document

    def _refusal(self, answer: Answer) -> ServiceError:
        said = said_in(answer)
        words = f"{self.service} answered {answer.status}" + (f": {said}" if said else "")
        if answer.status in {429, 503}:
            return ServiceBusyError(words, retry_after(answer))
        if answer.status in {400, 413, 415, 422}:
            return ServiceRefusedError(words)
        return ServiceError(words)


def said_in(answer: Answer) -> str:
    """The server's own words in an answer that is an error; empty where it has none that a person can read."""
    try:
        document = read_json(answer.body[:65536])
    except ValueError:
        return ""
    return error_text(document)


def error_text(document: object) -> str:
    """The message in the forms that servers use: error, error.message, detail, message."""
    if isinstance(document, str):
        return document[:200]
    if isinstance(document, list):
        return error_text(document[0]) if document else ""
    if isinstance(document, dict):
        for key in ("error", "message", "detail", "msg"):
            if document.get(key):
                return error_text(document[key])
    return ""


def retry_after(answer: Answer, otherwise: timedelta = timedelta(seconds=5)) -> timedelta:
    """How long an answer asks to wait, in seconds; its other form, a date, counts as `otherwise`."""
    text = answer.headers.get("retry-after", "").strip()
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        return otherwise
    return min(max(timedelta(seconds=int(text)), timedelta(seconds=1)), LONGEST_WAIT)


__all__ = [
    "ExchangeError",
    "ModelCall",
    "ServiceBusyError",
    "ServiceError",
    "ServiceRefusedError",
    "error_text",
    "retry_after",
    "said_in",
]
