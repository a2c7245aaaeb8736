"""A recording whose next stage waits in the queue, as two rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Engine


def add_run(engine: Engine, kind: str = "acquire", lane: str = "gpu", *, begun: bool = False) -> int:
    """Add it; the run's number."""
    with engine.begin() as connection:
        run_id: int = connection.execute(
            text(
                "INSERT INTO run (title, source, source_kind, folder, created_at, stage)"
                " VALUES ('t', 's', 'file', 'f', voxint_now(), :kind) RETURNING id"
            ),
            {"kind": kind},
        ).scalar_one()
        connection.execute(
            text(
                "INSERT INTO work_item (run_id, kind, lane, begun, queued_at, waiting_since)"
                " VALUES (:run, :kind, :lane, :begun, voxint_now(), voxint_now())"
            ),
            {"run": run_id, "kind": kind, "lane": lane, "begun": begun},
        )
    return run_id
