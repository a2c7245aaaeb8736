"""Asking for a job, and what became of those that were asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select, text
from sqlalchemy.exc import IntegrityError

from voxint.db import clock
from voxint.db.tables import JOBS, WORK_ITEM
from voxint.gpu_phase import queue
from voxint.recordings.lifecycle import NotPossibleError
from voxint.recordings.titles import language_code

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import Engine

KINDS = JOBS
"""The jobs by name: run_assets, translation, speaker_research."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a run, as it stands."""

    kind: str
    state: str
    options: Mapping[str, Any]
    queued_at: datetime
    finished_at: datetime | None
    progress: float | None
    error: str | None


class Jobs:
    """The jobs in the database. They run in the post lane, by the same claims as the stages."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def ask(self, run_id: int, kind: str, *, language: str | None = None) -> None:
        """Queue a job for a finished recording.

        Args:
            run_id: the recording.
            kind: one of KINDS.
            language: what a translation goes into, as `de`.

        Raises:
            NotPossibleError: the recording is not done, or the job is under way already.
            ValueError: no such job, or a translation into nothing.
        """
        if kind not in KINDS:
            raise ValueError(f"there is no job {kind!r}: it is one of {', '.join(KINDS)}")
        code = language_code(language)
        if (kind == "translation") != (code is not None):
            raise ValueError("a translation needs a language, and no other job takes one")
        options = {"language": code} if code else {}
        try:
            with self._engine.begin() as connection:
                status = connection.execute(
                    text("SELECT status FROM run WHERE id = :id FOR SHARE"), {"id": run_id}
                ).scalar_one_or_none()
                if status != "done":
                    raise NotPossibleError(_why(run_id, status, kind))
                now = clock.read(connection)
                connection.execute(
                    insert(WORK_ITEM).values(
                        run_id=run_id, kind=kind, lane="post", options=options, queued_at=now, waiting_since=now
                    )
                )
        except IntegrityError as error:
            raise NotPossibleError(f"{kind} of recording {run_id} is under way: wait until it is done") from error

    def cancel(self, run_id: int, kind: str) -> None:
        """End a job that is queued or running. A worker that is at it loses its claim, and its result with it.

        Raises:
            NotPossibleError: none of that kind is under way.
            ValueError: there is no such job.
        """
        if kind not in KINDS:
            raise ValueError(f"there is no job {kind!r}: it is one of {', '.join(KINDS)}")
        with self._engine.begin() as connection:
            now = clock.read(connection)
            item = connection.execute(
                text(
                    "SELECT id, claim_token FROM work_item WHERE run_id = :run AND kind = :kind"
                    " AND state IN ('queued', 'running') FOR UPDATE"
                ),
                {"run": run_id, "kind": kind},
            ).one_or_none()
            if item is None:
                raise NotPossibleError(f"no {kind} of recording {run_id} is under way")
            if item.claim_token is not None:
                queue.end_execution(connection, item.claim_token, "cancelled", "cancelled by an operator", now)
            connection.execute(
                text("UPDATE work_item SET state = 'cancelled', claim_token = NULL, finished_at = :now WHERE id = :id"),
                {"id": item.id, "now": now},
            )

    def list(self, run_id: int) -> tuple[Job, ...]:
        """A run's jobs, the newest first."""
        table = WORK_ITEM.c
        columns = (table.kind, table.state, table.options, table.queued_at, table.finished_at, table.progress)
        with self._engine.connect() as connection:
            rows = connection.execute(
                select(*columns, table.error)
                .where(table.run_id == run_id, table.kind.in_(KINDS))
                .order_by(table.id.desc())
            ).all()
        return tuple(Job(*row) for row in rows)


def _why(run_id: int, status: str | None, kind: str) -> str:
    if status is None:
        return f"there is no recording {run_id}"
    return f"recording {run_id} is {status}: {kind} needs a transcript that is done"
