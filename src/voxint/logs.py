"""Log lines: one an event, as words and values, or as JSON by switch."""

from __future__ import annotations

import json as json_module
import logging
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        values: dict[str, object] = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if fields is not None:
            values |= {"event": record.msg, **fields}
        if record.exc_info:
            values["trace"] = self.formatException(record.exc_info)
        return json_module.dumps(values, ensure_ascii=False, default=str)


class _Words(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        fields = getattr(record, "fields", None)
        if not fields:
            return text
        return f"{text} " + " ".join(f"{name}={_value(value)}" for name, value in fields.items())


def _value(value: object) -> str:
    text = str(value)
    return json_module.dumps(text, ensure_ascii=False) if not text or set(text) & set(' "=') else text


def set_up(*, json: bool = False) -> None:
    """Send everything from INFO up to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if json else _Words("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for noisy in ("httpx", "httpcore", "celery.worker.strategy", "celery.app.trace", "faster_whisper"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def line(log: logging.Logger, event: str, fields: Mapping[str, object]) -> None:
    """One event with its values."""
    log.info(event, extra={"fields": dict(fields)})
