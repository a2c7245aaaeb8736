"""What people do to a recording on its way: cancel it, and put it back in the queue where it stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import insert, text

from voxint.db import clock
from voxint.db.tables import WORK_ITEM
from voxint.gpu_phase import queue

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from voxint.gpu_phase.queue import StagePlan


class NotPossibleError(ValueError):
    """The recording is not in a state in which this can be done; the message says which it is in."""


class FilesStayError(NotPossibleError):
    """The file system does not give a recording's files away; the message says why."""


class Lifecycle:
    """Cancels and requeues, in one short transaction each.

    Args:
        engine: the database.
        stages: the kinds of work.
    """

    def __init__(self, engine: Engine, stages: StagePlan) -> None:
        self._engine = engine
        self._stages = stages

    def cancel(self, run_id: int) -> None:
        """End a recording that is not done. A worker that is at it loses its claim, and its result with it.

        Raises:
            NotPossibleError: there is no such recording, or it has ended already.
        """
        with self._engine.begin() as connection:
            status = hold(connection, run_id)
            now = clock.read(connection)
            if status not in {"queued", "running"}:
                raise NotPossibleError(_why(run_id, status, "cancelled"))
            tokens = connection.execute(
                text("SELECT claim_token FROM work_item WHERE run_id = :id AND state = 'running'"),
                {"id": run_id},
            ).scalars()
            for token in list(tokens):
                queue.end_execution(connection, token, "cancelled", "cancelled by an operator", now)
            connection.execute(
                text(
                    "UPDATE work_item SET state = 'cancelled', claim_token = NULL, finished_at = :now"
                    " WHERE run_id = :id AND state IN ('queued', 'running')"
                ),
                {"id": run_id, "now": now},
            )
            connection.execute(
                text("UPDATE run SET status = 'cancelled', finished_at = :now WHERE id = :id"),
                {"id": run_id, "now": now},
            )

    def requeue(self, run_id: int) -> str:
        """Let a failed or cancelled recording go on at the stage where it stopped. Gives that stage.

        Raises:
            NotPossibleError: there is no such recording, or it is queued, running or done.
        """
        with self._engine.begin() as connection:
            now = clock.read(connection)
            row = connection.execute(
                text("SELECT status, stage FROM run WHERE id = :id FOR UPDATE"), {"id": run_id}
            ).one_or_none()
            if row is None or row.status not in {"failed", "cancelled"}:
                raise NotPossibleError(_why(run_id, row.status if row else None, "requeued"))
            lane = dict(self._stages.stages)[row.stage]
            connection.execute(
                insert(WORK_ITEM).values(run_id=run_id, kind=row.stage, lane=lane, queued_at=now, waiting_since=now)
            )
            connection.execute(
                text("UPDATE run SET status = 'queued', error = NULL, finished_at = NULL WHERE id = :id"),
                {"id": run_id},
            )
            return str(row.stage)


def hold(connection: Connection, run_id: int) -> str | None:
    """Lock a recording and what is to be done for it until the transaction ends. Gives its status; None for no such one.

    The work is locked first, as by whoever claims it or ends a claim: the other way round the two would wait for each
    other, and the database would break one of them off.
    """
    open_work = "SELECT id FROM work_item WHERE run_id = :id AND state IN ('queued', 'running') ORDER BY id"
    while True:
        savepoint = connection.begin_nested()
        held = set(connection.execute(text(f"{open_work} FOR UPDATE"), {"id": run_id}).scalars())
        status: str | None = connection.execute(
            text("SELECT status FROM run WHERE id = :id FOR UPDATE"), {"id": run_id}
        ).scalar_one_or_none()
        if set(connection.execute(text(open_work), {"id": run_id}).scalars()) <= held:
            savepoint.commit()
            return status
        savepoint.rollback()  # a stage ended meanwhile, and the next one is queued: once more from the beginning


def _why(run_id: int, status: str | None, wanted: str) -> str:
    if status is None:
        return f"there is no recording {run_id}: `voxint runs list` shows those that are there"
    return f"recording {run_id} is {status}: it cannot be {wanted}"
