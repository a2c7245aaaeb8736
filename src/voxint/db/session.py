"""What every connection is given: how long to wait for it, its time zone, and the end of its statements and locks."""

from __future__ import annotations

from typing import Any

CONNECT_TIMEOUT_SECONDS = 5
STATEMENT_TIMEOUT_MS = 30_000
LOCK_TIMEOUT_MS = 10_000

CONNECTION: dict[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT_SECONDS,
    "application_name": "voxint",
    "options": f"-c timezone=UTC -c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout={LOCK_TIMEOUT_MS}",
}
"""The driver's own parameters."""
