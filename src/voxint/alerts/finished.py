"""Tells RUN_WEBHOOK_URL of recordings that are done, or have failed: each end once, and again while it is not taken.

The worker that ends a recording tells at once; the sweep tells what that could not, also after a restart. A recording
that was requeued ends again, and is told of again.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import text

from voxint.alerts import webhook
from voxint.db import clock
from voxint.gpu_phase.view import iso

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection, Row

    from voxint.wiring import Parts

log = logging.getLogger(__name__)

AT_ONCE = 5
"""Messages of one round: each may take its whole time."""
MOST_ATTEMPTS = 50
NEWS = timedelta(days=3)
"""What ended longer ago is no news to anybody."""
SHORTEST_PAUSE = timedelta(seconds=30)
LONGEST_PAUSE = timedelta(hours=1)
_DOUBLINGS = 7

_DUE = """NOT {row}.told AND {row}.attempts < :most AND ({row}.tried_at > :now + :shortest
           OR {row}.tried_at <= :now - least(:shortest * (1 << least({row}.attempts, :doublings)), :longest))"""
"""Of one that was tried: its pause is over, or it was tried on a clock that was set back since."""
_TAKE = f"""
    INSERT INTO run_told (run_id, finished_at, tried_at, attempts)
    SELECT run.id, run.finished_at, :now, 1 FROM run
    LEFT JOIN run_told old ON old.run_id = run.id AND old.finished_at = run.finished_at
    WHERE run.finished_at > :now - :news AND run.status IN ('done', 'failed')
      AND (old.run_id IS NULL OR {_DUE.format(row="old")})
    ORDER BY run.finished_at LIMIT :at_once
    ON CONFLICT (run_id, finished_at) DO UPDATE SET tried_at = excluded.tried_at, attempts = run_told.attempts + 1
      WHERE {_DUE.format(row="run_told")}
    RETURNING run_id, finished_at
"""  # noqa: S608 - the only thing put in is the constant above


def tell(parts: Parts) -> int:
    """Tell what is due; gives how many recordings were told of. Does nothing without RUN_WEBHOOK_URL."""
    address = parts.settings.run_webhook_url
    with parts.engine.begin() as connection:
        now = clock.read(connection)
        if address is None:
            # Set later, it tells of what ends then, and not of everything that ever was.
            connection.execute(
                text(
                    "INSERT INTO run_told (run_id, finished_at, tried_at, told) SELECT id, finished_at, :now, true"
                    " FROM run WHERE finished_at > :now - :news ON CONFLICT DO NOTHING"
                ),
                {"now": now, "news": NEWS},
            )
            return 0
        taken = _take(connection, now)
    told = 0
    for row in taken:
        run = parts.run_store.get(row.run_id)
        if run is None or run.finished_at != row.finished_at:
            continue
        document = {
            "source": "voxint",
            "event": f"run.{run.status}",
            "run": run.id,
            "title": run.title,
            "status": run.status,
            "error": run.error,
            "finished_at": iso(run.finished_at),
            "text": f"Voxint: recording {run.id} is done: {run.title}"
            if run.status == "done"
            else f"Voxint: recording {run.id} has failed: {run.title}",
        }
        problem = webhook.send(address.get_secret_value(), document)
        if problem is not None:
            log.warning("the end of recording %d could not be told: %s", run.id, problem)
            continue
        with parts.engine.begin() as connection:
            connection.execute(
                text("UPDATE run_told SET told = true WHERE run_id = :run AND finished_at = :at"),
                {"run": row.run_id, "at": row.finished_at},
            )
        told += 1
    return told


def _take(connection: Connection, now: datetime) -> list[Row[tuple[int, datetime]]]:
    values = {
        "now": now,
        "most": MOST_ATTEMPTS,
        "shortest": SHORTEST_PAUSE,
        "longest": LONGEST_PAUSE,
        "doublings": _DOUBLINGS,
        "news": NEWS,
        "at_once": AT_ONCE,
    }
    return list(connection.execute(text(_TAKE), values).all())
