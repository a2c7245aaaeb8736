"""The engine: made where it is first used in a process, never before a fork."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import create_engine

from voxint.db.session import CONNECTION

if TYPE_CHECKING:
    from sqlalchemy import Engine


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
        connect_args=dict(CONNECTION),
    )


def psycopg_url(url: str) -> str:
    """The same address with psycopg 3 named as its driver."""
    for scheme in ("postgresql://", "postgres://"):
        if url.startswith(scheme):
            return "postgresql+psycopg://" + url.removeprefix(scheme)
    return url
