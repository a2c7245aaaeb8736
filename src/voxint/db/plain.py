"""A bare connection for a command that reads once: SQLAlchemy takes longer to import than the answer takes to come."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from voxint.db.session import CONNECTION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


def understood(url: str) -> bool:
    """Whether the driver reads the address as SQLAlchemy does, which knows forms of its own: hosts in several fields.

    A slash in a password is one: the driver takes what stands before it for host and port, and tells it in its error.
    """
    if "/" in _plain(url).partition("://")[2].rpartition("@")[0]:
        return False
    try:
        conninfo_to_dict(_plain(url))
        names = [name for name, _ in parse_qsl(urlsplit(url).query)]
    except (psycopg.Error, ValueError):
        return False
    return len(names) == len(set(names))


@contextmanager
def reader(url: str) -> Iterator[Callable[[str, Mapping[str, object]], Sequence[Mapping[str, Any]]]]:
    """Sends queries with values as `%(name)s`; gives their rows by column.

    Args:
        url: a PostgreSQL address that is `understood`.

    Raises:
        sqlalchemy.exc.DBAPIError: as the engine raises it, so that one place has the words for it.
    """
    try:
        with psycopg.connect(_plain(url), row_factory=dict_row, **CONNECTION) as connection:

            def rows(query: str, values: Mapping[str, object]) -> Sequence[Mapping[str, Any]]:
                return connection.execute(query.encode(), values).fetchall()

            yield rows
    except psycopg.Error as error:
        from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 - only where something is wrong

        raise DBAPIError(None, None, error) from error


def _plain(url: str) -> str:
    return url.replace("postgresql+psycopg://", "postgresql://", 1)
