"""PURE: reads numbers and lists of records out of answers that may hold anything."""

from __future__ import annotations

import math
from typing import Any


def number(value: object) -> float | None:
    """A finite number; None for anything else, a boolean and a text among it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        plain = float(value)
    except OverflowError:
        return None
    return plain if math.isfinite(plain) else None


def records(value: object) -> list[dict[str, Any]]:
    """The objects of a list; empty where it is none."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
