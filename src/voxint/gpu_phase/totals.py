"""Sums over the whole history, for the metrics; and what becomes of its oldest part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from voxint.db import clock
from voxint.gpu_phase.model import Cause

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy import Engine

FAILURES = frozenset(
    {
        Cause.REFUSED,
        Cause.ACQUIRE_FAILED,
        Cause.ACQUIRE_LIMIT,
        Cause.START_LIMIT,
        Cause.WRONG_DEVICE,
        Cause.LEASE_LOST,
        Cause.SERVICE_STOPPED,
        Cause.STOP_LIMIT,
        Cause.STATUS_UNKNOWN,
        Cause.RELEASE_FAILED,
        Cause.RELEASE_LIMIT,
    }
)
"""Causes of a step that is a failure."""


@dataclass(frozen=True, slots=True)
class Steps:
    """How often a phase was left for another, for one cause, and the seconds that were spent in it before."""

    from_phase: str
    to_phase: str
    cause: str
    times: int
    seconds: float


def steps(engine: Engine) -> tuple[Steps, ...]:
    """Every step that was made, summed up."""
    with engine.begin() as connection:
        return tuple(Steps(*row) for row in connection.execute(text(_STEPS)))


def forget(engine: Engine, older_than: timedelta) -> int:
    """Delete what is older of the history, and of the requests that were answered; the sums keep what is deleted.

    The newest changes of phase stay, whatever their age: they say how the present came about. Gives how many went.
    """
    with engine.begin() as connection:
        oldest = clock.read(connection) - older_than
        gone = connection.execute(text(_FORGET), {"oldest": oldest, "kept": KEPT_EVENTS, "most": AT_ONCE}).scalar_one()
        connection.execute(
            text("DELETE FROM gpu_phase_request WHERE consumed_at < :oldest AND requested_at < :oldest"),
            {"oldest": oldest},
        )
        return int(gone)


KEPT_EVENTS = 1000
"""Changes of phase that are kept at least."""
AT_ONCE = 10_000
_STEPS = """
    SELECT from_phase, to_phase, cause, CAST(sum(times) AS bigint) AS times, sum(seconds) AS seconds FROM (
        SELECT from_phase, to_phase, cause, count(*) AS times, coalesce(sum(seconds), 0) AS seconds
        FROM gpu_phase_event WHERE from_phase IS NOT NULL GROUP BY 1, 2, 3
        UNION ALL SELECT from_phase, to_phase, cause, times, seconds FROM gpu_phase_total
    ) parts GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""
_FORGET = """
    WITH old AS (
        SELECT id FROM gpu_phase_event WHERE at < :oldest
            AND id <= (SELECT max(id) FROM gpu_phase_event) - :kept
        ORDER BY id LIMIT :most FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM gpu_phase_event WHERE id IN (SELECT id FROM old) RETURNING from_phase, to_phase, cause, seconds
    ), summed AS (
        INSERT INTO gpu_phase_total AS total (from_phase, to_phase, cause, times, seconds)
        SELECT from_phase, to_phase, cause, count(*), coalesce(sum(seconds), 0) FROM gone
            WHERE from_phase IS NOT NULL GROUP BY from_phase, to_phase, cause
        ON CONFLICT (from_phase, to_phase, cause) DO UPDATE
            SET times = total.times + excluded.times, seconds = total.seconds + excluded.seconds
    )
    SELECT count(*) FROM gone
"""
