"""A transaction that a test holds open on purpose, on a server that cuts everybody else who idles in one."""

from __future__ import annotations

import contextlib

from sqlalchemy import text


@contextlib.contextmanager
def held_transaction(engine):
    """A connection in a transaction that may idle as long as the test likes."""
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        yield connection
