"""What went wrong with the database, in words for people and without its password."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from voxint.gpu_phase.reasons import clean

if TYPE_CHECKING:
    from voxint.settings import Settings

_NOT_MIGRATED = {"42P01", "42703", "42883", "3F000"}  # no such table, column, function, schema


def words(error: SQLAlchemyError, where: str) -> str:
    """One line: what could not be done, and why.

    Args:
        error: what SQLAlchemy raised.
        where: the database's address, as `place` gives it.
    """
    if isinstance(error, PoolTimeoutError):
        return f"the database at {where} gave no free connection in time"
    if not isinstance(error, DBAPIError):
        return f"the database at {where} could not be used: {type(error).__name__}"
    if not_migrated(error):
        return f"the database at {where} is not migrated to this version: run `voxint db upgrade`"
    reason = _reason(error)
    if getattr(error.orig, "sqlstate", None) is None:
        return f"cannot reach the database at {where}: {reason}"
    return f"the database at {where} refused: {reason}"


def not_migrated(error: DBAPIError) -> bool:
    """Whether a table, column or function is missing that this version makes."""
    return getattr(error.orig, "sqlstate", None) in _NOT_MIGRATED


def place(settings: Settings) -> str:
    """The database's address without user and password."""
    try:
        url = make_url(settings.database_url.get_secret_value())
    except (ArgumentError, ValueError):  # a port that is no number
        return "DATABASE_URL"
    host = url.host or url.query.get("host") or "the local socket"
    if isinstance(host, tuple):
        host = ",".join(host)
    return f"{host}{f':{url.port}' if url.port else ''}/{url.database or ''}"


def _reason(error: DBAPIError) -> str:
    lines = [line.strip() for line in str(error.orig).splitlines() if line.strip()]
    first = lines[0] if lines else type(error.orig).__name__
    # "connection failed: connection to server at "127.0.0.1", port 5432 failed: Connection refused"
    return clean(first.rsplit(" failed: ", 1)[-1])
