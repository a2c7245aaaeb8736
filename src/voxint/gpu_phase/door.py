"""What a lane hands out at a moment, as the statements that look, find and take.

A claim is two statements, for each is a way to the database and back: LOOK_AND_LOCK share-locks the phase row and reads
what decides, and `Door.take` picks the first piece of work that the door lets through and marks it, all at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import literal_column, null, select, text

from voxint.db.tables import GPU_PHASE
from voxint.gpu_phase import queue

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import ColumnElement, TextClause


LONGEST_WAIT = timedelta(minutes=15)
"""Nothing is made to wait longer. What waits for twice as long was told so before the clock was set back."""


@dataclass(frozen=True, slots=True)
class Door:
    """What may be claimed: anything, only segments that have begun, or nothing; and what is done ahead of the lane."""

    now: datetime
    full: tuple[str, ...]
    """The kinds of which as many run as their service can take."""
    any_work: bool
    begun_work: bool
    ahead: str | None = None
    """Which of the stages that need no GPU may be claimed although the lane is closed, as a condition."""

    @property
    def conditions(self) -> list[str]:
        """What is tried, in this order: segments that have begun, those that have not, what needs no GPU."""
        # In an open lane a begun segment needs no grace: it is only first in the queue.
        begun = f"{'state = ' + _QUEUED + ' AND begun' if self.any_work else queue.SEGMENT} AND {_NOT_AHEAD}"
        found = [begun] if self.begun_work else []
        if self.any_work:
            found.append(f"state = {_QUEUED} AND NOT begun AND {_NOT_AHEAD}")
        return [*found, self.ahead] if self.ahead else found

    @property
    def find(self) -> TextClause:
        """The statement that gives the id of what is first, or null."""
        return _find(*self.conditions)

    @property
    def take(self) -> TextClause:
        """The statement that marks what is first as running, its run too, and begins a row of the history."""
        return _take(*self.conditions)


_QUEUED = "'queued'"
_NOT_AHEAD = "NOT kind = ANY(:ahead)"
_FIRST = (
    "(SELECT id FROM work_item WHERE lane = :lane AND {condition}"
    " AND (not_before IS NULL OR not_before <= :now OR not_before > :too_far) AND NOT kind = ANY(:full)"
    " ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)"
)


def _first(conditions: tuple[str, ...]) -> str:
    """The id of what is first, locked, as an expression. A later condition is only tried for want of one."""
    return f"coalesce({', '.join(_FIRST.format(condition=each) for each in conditions)})"


@cache
def _find(*conditions: str) -> TextClause:
    return text(f"SELECT {_first(conditions)}")


@cache
def _take(*conditions: str) -> TextClause:
    return text(_TAKE.format(first=_first(conditions)))


_SEEN = {
    "now": "voxint_now()",
    "paused": "EXISTS (SELECT 1 FROM work_control WHERE paused_at IS NOT NULL)",
    "running": (
        "(SELECT jsonb_object_agg(kind, number) FROM (SELECT kind, count(*) AS number FROM work_item"
        " WHERE state = 'running' GROUP BY kind) counted)"
    ),
}
_COLUMNS: list[ColumnElement[Any]] = [literal_column(expression).label(name) for name, expression in _SEEN.items()]
LOOK_AND_LOCK = select(GPU_PHASE, *_COLUMNS).with_for_update(read=True, of=GPU_PHASE)
"""The phase row, share-locked, with the moment, the pause and how many of each kind run. No row where there is no phase."""
LOOK = select(null().label("phase"), *_COLUMNS)
"""The same without a phase."""
_TAKE = """
    WITH chosen AS MATERIALIZED (SELECT {first} AS id), taken AS (
        UPDATE work_item SET state = 'running', begun = true, attempts = attempts + 1, claim_token = :token,
            claimed_by = :worker, claimed_at = :now, heartbeat_at = :now, progress = NULL, error = NULL
        FROM chosen WHERE work_item.id = chosen.id
        RETURNING work_item.id, run_id, kind, attempts, claim_token, claimed_by, claimed_at
    ), told AS (
        UPDATE run SET status = 'running', stage = taken.kind, error = NULL FROM taken
        WHERE run.id = taken.run_id AND taken.kind = ANY(:stages)
    ), written AS (
        INSERT INTO stage_execution (work_item_id, run_id, kind, attempt, claim_token, worker, started_at)
        SELECT id, run_id, kind, attempts, claim_token, claimed_by, claimed_at FROM taken
    )
    SELECT id, run_id, kind, attempts FROM taken
"""
