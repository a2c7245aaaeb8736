"""Puts the stored phase, and work that waits, into a test's database, as a tick or a gate would have left them."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import insert, text

from voxint.db import clock
from voxint.db.tables import GPU_PHASE

LEASED = {"starting_services", "audio", "draining", "stopping_services", "releasing"}


def store_phase(engine, phase, *, age=timedelta(0), ticked=timedelta(0), **columns):
    """Write the row: its phase began `age` ago and the last tick was `ticked` ago."""
    with engine.begin() as connection:
        now = clock.read(connection)
        values = {"phase": phase, "phase_since": now - age, "ticked_at": now - ticked}
        if phase in LEASED:
            values |= {"lease_id": "lease-1", "lease_expires_at": now + timedelta(minutes=10)}
        connection.execute(text("DELETE FROM gpu_phase"))
        connection.execute(insert(GPU_PHASE).values(**values | columns))
    return now


def add_recordings(engine, number=1, *, kind="acquire", lane="gpu", title="talk"):
    """Queue recordings at a stage; gives their numbers."""
    made = []
    with engine.begin() as connection:
        for _ in range(number):
            run_id = connection.execute(
                text(
                    "INSERT INTO run (title, source, source_kind, folder, created_at, stage)"
                    " VALUES (:title, 's', 'file', 'f', voxint_now(), :kind) RETURNING id"
                ),
                {"title": title, "kind": kind},
            ).scalar_one()
            connection.execute(
                text(
                    "INSERT INTO work_item (run_id, kind, lane, queued_at, waiting_since)"
                    " VALUES (:run, :kind, :lane, voxint_now(), voxint_now())"
                ),
                {"run": run_id, "kind": kind, "lane": lane},
            )
            made.append(run_id)
    return made
