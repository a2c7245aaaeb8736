"""The one clock: the database's, so that several hosts agree. Tests shift it by replacing the function."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Connection

NOW = text("SELECT voxint_now()")


def read(connection: Connection) -> datetime:
    """The moment, aware and UTC."""
    moment = connection.execute(NOW).scalar_one()
    if not isinstance(moment, datetime):
        msg = "the database's clock gave no timestamp"
        raise TypeError(msg)
    return moment.astimezone(UTC)
