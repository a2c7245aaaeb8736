"""Sums over the whole history, for the metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from voxint.gpu_phase.model import Cause

if TYPE_CHECKING:
    from sqlalchemy import Engine

FAILURES = frozenset(
    {
        Cause.REFUSED,
        Cause.ACQUIRE_FAILED,
        Cause.ACQUIRE_LIMIT,
        Cause.START_LIMIT,
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
    query = (
        "SELECT from_phase, to_phase, cause, count(*) AS times, coalesce(sum(seconds), 0) AS seconds"
        " FROM gpu_phase_event WHERE from_phase IS NOT NULL GROUP BY from_phase, to_phase, cause ORDER BY 1, 2, 3"
    )
    with engine.begin() as connection:
        return tuple(Steps(*row) for row in connection.execute(text(query)))
