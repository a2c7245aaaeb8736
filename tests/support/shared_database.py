"""A database that is emptied instead of made anew, on a server that many short test sessions share (`make mutants`)."""

from __future__ import annotations

import contextlib
from itertools import count

import psycopg
from sqlalchemy import text

from voxint.db.engine import make_engine
from voxint.db.tables import METADATA

KEPT = {"work_control"}
"""Tables with a row of their own from the beginning."""
RESET = (
    "CREATE OR REPLACE FUNCTION voxint_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$ SELECT clock_timestamp() $$",
    "UPDATE work_control SET paused_at = NULL, paused_by = NULL, hold_until = NULL, hold_by = NULL",
    f"TRUNCATE {', '.join(name for name in METADATA.tables if name not in KEPT)} RESTART IDENTITY CASCADE",
)


@contextlib.contextmanager
def emptied_database(server, template):
    """The address of a database that no other session uses now, emptied."""
    with psycopg.connect(server.url(), autocommit=True) as holder:
        name = next(
            f"shared_{number}"
            for number in count()
            if holder.execute("SELECT pg_try_advisory_lock(%s)", (number,)).fetchone()[0]
        )
        server.make_database(name, template=template)
        engine = make_engine(server.url(name))
        with engine.begin() as connection:
            # Threads of the test before this one may be in the middle of something.
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
            for statement in RESET:
                connection.execute(text(statement))
        engine.dispose()
        yield server.url(name)
