"""Rows of the run table turned into values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from voxint.recordings.run import Run

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection, Row

RUNS = """
    SELECT run.*, item.progress AS item_progress, item.error AS item_error, item.state AS item_state
    FROM run
    LEFT JOIN LATERAL (
        SELECT progress, error, state FROM work_item
        WHERE work_item.run_id = run.id AND work_item.kind = run.stage AND state IN ('queued', 'running')
        ORDER BY id DESC LIMIT 1
    ) item ON true
"""


def run_by_id(connection: Connection, media_root: Path, run_id: int) -> Run | None:
    """One run; None where there is none of that number."""
    row = connection.execute(text(f"{RUNS} WHERE run.id = :id"), {"id": run_id}).one_or_none()
    return None if row is None else run_from(row, media_root)


def run_from(row: Row[Any], media_root: Path) -> Run:
    """A row of RUNS as a value."""
    return Run(
        id=row.id,
        title=row.title,
        source=row.source,
        source_kind=row.source_kind,
        status=row.status,
        stage=row.stage,
        folder=(media_root / row.folder).absolute(),
        created_at=row.created_at,
        finished_at=row.finished_at,
        error=row.error,
        warnings=tuple(row.warnings),
        language=row.language,
        speakers_min=row.speakers_min,
        speakers_max=row.speakers_max,
        sha256=row.sha256,
        duration_seconds=row.duration_seconds,
        progress=row.item_progress if row.item_state == "running" else None,
        waiting_for=row.item_error if row.item_state == "queued" else None,
    )
