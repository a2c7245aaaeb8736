"""The engine: made where it is first used in a process, never before a fork."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import create_engine

if TYPE_CHECKING:
    from sqlalchemy import Engine

CONNECT_TIMEOUT_SECONDS = 5
STATEMENT_TIMEOUT_MS = 30_000
LOCK_TIMEOUT_MS = 10_000


def make_engine(url: str, *, pool_size: int = 4) -> Engine:
    """An engine whose connections are checked before use, and whose statements and locks have an end.

    Args:
        url: a PostgreSQL address; psycopg 3 is the driver whatever it says.
        pool_size: connections kept.
    """
    return create_engine(
        psycopg_url(url),
        pool_size=pool_size,
        max_overflow=4,
        pool_pre_ping=True,
        pool_recycle=1800,
        hide_parameters=True,
        connect_args={
            "connect_timeout": CONNECT_TIMEOUT_SECONDS,
            "application_name": "voxint",
            "options": (
                f"-c timezone=UTC -c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout={LOCK_TIMEOUT_MS}"
            ),
        },
    )


def psycopg_url(url: str) -> str:
    """The same address with psycopg 3 named as its driver."""
    for scheme in ("postgresql://", "postgres://"):
        if url.startswith(scheme):
            return "postgresql+psycopg://" + url.removeprefix(scheme)
    return url
