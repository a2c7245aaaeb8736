"""Turns what came from outside into text and documents that PostgreSQL, JSON and a page can all hold."""

from __future__ import annotations

import json
import math
from typing import Any

_DEPTH = 60
"""Nesting that is still read; what lies deeper is no answer of a model."""


def storable_text(text: str) -> str:
    """The same text without NUL and without halves of a surrogate pair: PostgreSQL refuses both."""
    if text.isascii() and "\0" not in text:
        return text
    return "".join(character for character in text if character != "\0" and not "\ud800" <= character <= "\udfff")


def storable(value: Any, depth: int = 0) -> Any:  # noqa: ANN401 - any JSON value, and what stands for one
    """The same JSON value with clean strings, and null in place of NaN and the infinities.

    Raises:
        ValueError: nested too deeply.
    """
    if depth > _DEPTH:
        raise ValueError("the document is nested too deeply")
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {storable_text(str(key)): storable(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [storable(each, depth + 1) for each in value]
    return value


def read_json(body: bytes | str) -> Any:  # noqa: ANN401 - whatever the other side wrote
    """A JSON text as a storable value; the bare words NaN and Infinity, which are no JSON, become null.

    Raises:
        ValueError: it is no JSON, or nested too deeply.
    """
    try:
        text = body.decode("utf-8-sig", "replace") if isinstance(body, bytes) else body
        return storable(json.loads(text, parse_constant=lambda _: None))
    except RecursionError:
        raise ValueError("the document is nested too deeply") from None
