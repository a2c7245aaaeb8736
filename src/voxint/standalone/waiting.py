"""Waits for something to become true, with a limit."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_NEVER = threading.Event()


def wait_for(condition: Callable[[], bool], limit_seconds: float, *, every_seconds: float = 0.03) -> bool:
    """Look again and again until the condition holds; False where it did not within the limit."""
    end = time.monotonic() + limit_seconds
    while not condition():
        if time.monotonic() >= end:
            return False
        _NEVER.wait(every_seconds)
    return True
