"""The broker's one clock. It has no database to ask, so it reads the machine's; everything else takes time from here."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now() -> datetime:
    """The machine's time, aware and UTC."""
    return datetime.fromtimestamp(time.time(), UTC)  # noqa: TID251 - leases expire by the machine's clock


def monotonic() -> float:
    """Seconds that only grow, for durations."""
    return time.monotonic()
