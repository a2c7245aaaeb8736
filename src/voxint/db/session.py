"""What every connection is given: how long to wait for it, its time zone, and the end of its statements and locks."""

from __future__ import annotations

from typing import Any

CONNECT_TIMEOUT_SECONDS = 5
STATEMENT_TIMEOUT_MS = 30_000
LOCK_TIMEOUT_MS = 10_000
GONE_SECONDS = 30
"""After so long without an answer over a network the other side counts as gone, here and at the server.

A host whose power was cut closes no connection. The systems' own limits are hours: so long the server would keep its locks,
that of the tick among them, and a worker would wait for a server that is another machine by now. Unix sockets ignore it.
"""
_KEEPALIVES = {"keepalives_idle": GONE_SECONDS // 2, "keepalives_interval": GONE_SECONDS // 6, "keepalives_count": 3}
_SERVER: dict[str, Any] = {
    "timezone": "UTC",
    "statement_timeout": STATEMENT_TIMEOUT_MS,
    "lock_timeout": LOCK_TIMEOUT_MS,
    **{f"tcp_{name}": value for name, value in _KEEPALIVES.items()},
    "tcp_user_timeout": GONE_SECONDS * 1000,
}

CONNECTION: dict[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT_SECONDS,
    "application_name": "voxint",
    **_KEEPALIVES,
    "tcp_user_timeout": GONE_SECONDS * 1000,
    "options": " ".join(f"-c {name}={value}" for name, value in _SERVER.items()),
}
"""The driver's own parameters."""
