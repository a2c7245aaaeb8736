"""The two lanes' queues in the database: what waits, what runs, and taking work back from where it is lost.

Functions on an open, short transaction. A begun segment (a run between two stages of one lane) counts as in progress
while somebody may be expected to take it up; the same rule says what the gate hands out while a lane is drained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from voxint.gpu_phase.model import Lane, WorkSeen

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from sqlalchemy import Connection, Row

EVENT_BOUND = 1000
"""Depths in the history are counted up to this, so that a step costs the same however long the queue is."""

SEGMENT = "state = 'queued' AND begun AND waiting_since > :now - :grace"
"""A segment that has begun and that somebody may be expected to take up."""

_IN_PROGRESS = f"""
    SELECT EXISTS (SELECT 1 FROM work_item WHERE lane = :lane AND state = 'running' AND NOT kind = ANY(:ahead))
        OR EXISTS (SELECT 1 FROM work_item WHERE lane = :lane AND {SEGMENT} AND NOT kind = ANY(:ahead))
"""  # noqa: S608 - the only thing put in is the constant above
_QUEUED = """
    SELECT EXISTS (SELECT 1 FROM work_item WHERE lane = 'gpu' AND state = 'queued' AND NOT kind = ANY(:ahead))
        AND NOT EXISTS (SELECT 1 FROM work_control WHERE paused_at IS NOT NULL)
"""
NOTHING_AHEAD: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StagePlan:
    """The kinds of work: the stages of a run in order, each with its lane and the model services that it calls.

    `ahead` are stages of the GPU lane that need no GPU, and that are done while the lane is closed too. They are no
    demand for the GPU, hold no drain, and are not cut when it goes.
    """

    stages: tuple[tuple[str, Lane], ...]
    services: Mapping[str, frozenset[str]]
    ahead: frozenset[str] = NOTHING_AHEAD

    def after(self, kind: str) -> tuple[str, Lane] | None:
        """The stage that follows; None after the last one, and after a job."""
        names = [name for name, _ in self.stages]
        if kind not in names or kind == names[-1]:
            return None
        return self.stages[names.index(kind) + 1]

    def is_stage(self, kind: str) -> bool:
        """Whether this is a stage of the run itself, and not a job beside it."""
        return any(name == kind for name, _ in self.stages)


@dataclass(frozen=True, slots=True)
class Depths:
    """How many pieces of work wait for and run on each lane."""

    gpu_waiting: int = 0
    gpu_running: int = 0
    post_waiting: int = 0
    post_running: int = 0


def seen(connection: Connection, now: datetime, grace: timedelta, ahead: frozenset[str] = NOTHING_AHEAD) -> WorkSeen:
    """What a tick needs to know, as yes and no: the cost does not grow with the queue."""
    return WorkSeen(
        gpu_queued=bool(connection.execute(text(_QUEUED), {"ahead": list(ahead)}).scalar_one()),
        gpu_in_progress=in_progress(connection, Lane.GPU, now, grace, ahead),
        post_in_progress=in_progress(connection, Lane.POST, now, grace),
    )


def in_progress(
    connection: Connection, lane: Lane, now: datetime, grace: timedelta, ahead: frozenset[str] = NOTHING_AHEAD
) -> bool:
    """Whether something runs in the lane, or a begun segment waits there for its next stage."""
    values = {"lane": lane.value, "now": now, "grace": grace, "ahead": list(ahead)}
    return bool(connection.execute(text(_IN_PROGRESS), values).scalar_one())


def waits(connection: Connection, lane: Lane) -> bool:
    """Whether anything is queued in the lane."""
    query = "SELECT EXISTS (SELECT 1 FROM work_item WHERE lane = :lane AND state = 'queued')"
    return bool(connection.execute(text(query), {"lane": lane.value}).scalar_one())


def depths(connection: Connection, bound: int, ahead: frozenset[str] = NOTHING_AHEAD) -> Depths:
    """Count each lane, up to a bound, without the work that is done ahead of it."""
    counts = {}
    for lane in Lane:
        for name, state in (("waiting", "queued"), ("running", "running")):
            query = (
                "SELECT count(*) FROM "
                "(SELECT 1 FROM work_item WHERE lane = :lane AND state = :state AND NOT kind = ANY(:ahead)"
                " LIMIT :bound) counted"
            )
            # The state stands in the text: a partial index is not used for a parameter.
            literal = query.replace(":state", f"'{state}'")
            values = {"lane": lane.value, "bound": bound, "ahead": list(ahead)}
            counts[f"{lane.value}_{name}"] = int(connection.execute(text(literal), values).scalar_one())
    return Depths(**counts)


def reap(connection: Connection, now: datetime, limit: timedelta, attempts: int) -> int:
    """Give back what runs without a heartbeat: its worker is dead. Gives how many pieces of work that were.

    Where the clock was set back, what its worker wrote lies in the future: its silence is counted from now on.
    """
    rows = connection.execute(
        text(
            "SELECT id, run_id, kind, attempts, claim_token, heartbeat_at > :now AS ahead FROM work_item"
            " WHERE state = 'running' AND (heartbeat_at < :oldest OR heartbeat_at > :newest) FOR UPDATE SKIP LOCKED"
        ),
        {"now": now, "oldest": now - limit, "newest": now + limit},
    ).all()
    for row in rows:
        if row.ahead:
            connection.execute(
                text("UPDATE work_item SET heartbeat_at = :now WHERE id = :id"), {"id": row.id, "now": now}
            )
            continue
        end_execution(connection, row.claim_token, "abandoned", "its worker stopped without a word", now)
        if row.attempts >= attempts:
            words = f"{row.kind}: the worker died {row.attempts} times while it worked on this recording"
            give_up(connection, row.id, row.run_id, words, now)
        else:
            put_back(connection, row.id, now)
    return sum(not row.ahead for row in rows)


def cut(connection: Connection, now: datetime, stages: StagePlan, blamed: frozenset[str], attempts: int) -> None:
    """Take the GPU lane's running work back, and end its segments: the model services are going away.

    Only a stage that was in a blamed service has used an attempt.
    """
    rows = connection.execute(
        text(
            "SELECT id, run_id, kind, attempts, claim_token FROM work_item"
            " WHERE lane = 'gpu' AND state = 'running' AND NOT kind = ANY(:ahead) FOR UPDATE"
        ),
        {"ahead": list(stages.ahead)},
    ).all()
    for row in rows:
        at_fault = stages.services.get(row.kind, frozenset()) & blamed
        words = f"{', '.join(sorted(at_fault))} stopped under it" if at_fault else "the GPU was handed back under it"
        end_execution(connection, row.claim_token, "cut", words, now)
        if at_fault and row.attempts >= attempts:
            give_up(connection, row.id, row.run_id, f"{row.kind}: {words}, {row.attempts} times", now)
        else:
            put_back(connection, row.id, now, uses_attempt=bool(at_fault))
    connection.execute(
        text(
            "UPDATE work_item SET begun = false WHERE lane = 'gpu' AND state = 'queued' AND begun"
            " AND NOT kind = ANY(:ahead)"
        ),
        {"ahead": list(stages.ahead)},
    )


def put_back(connection: Connection, item_id: int, now: datetime, *, uses_attempt: bool = True) -> None:
    """Back to the queue, where the run goes on at this stage."""
    connection.execute(
        text(
            "UPDATE work_item SET state = 'queued', claim_token = NULL, claimed_by = NULL, claimed_at = NULL,"
            " heartbeat_at = NULL, progress = NULL, not_before = NULL, waiting_since = :now,"
            " attempts = attempts - :given_back WHERE id = :id"
        ),
        {"id": item_id, "now": now, "given_back": 0 if uses_attempt else 1},
    )
    connection.execute(
        text(
            "UPDATE run SET status = 'queued' FROM work_item w"
            " WHERE w.id = :id AND run.id = w.run_id AND run.stage = w.kind AND run.status = 'running'"
        ),
        {"id": item_id},
    )


def give_up(connection: Connection, item_id: int, run_id: int, words: str, now: datetime) -> None:
    """The work failed for good, with words; where it is a stage of the run, so did the run."""
    connection.execute(
        text(
            "UPDATE work_item SET state = 'failed', claim_token = NULL, error = :words, finished_at = :now"
            " WHERE id = :id"
        ),
        {"id": item_id, "words": words, "now": now},
    )
    connection.execute(
        text(
            "UPDATE run SET status = 'failed', error = :words, finished_at = :now FROM work_item w"
            " WHERE w.id = :id AND run.id = :run_id AND run.stage = w.kind AND run.status IN ('queued', 'running')"
        ),
        {"id": item_id, "run_id": run_id, "words": words, "now": now},
    )


def end_execution(connection: Connection, token: str, outcome: str, detail: str | None, now: datetime) -> None:
    """Write down how a claim ended."""
    connection.execute(
        text(
            "UPDATE stage_execution SET ended_at = :now, outcome = :outcome, detail = :detail"
            " WHERE claim_token = :token AND ended_at IS NULL"
        ),
        {"token": token, "now": now, "outcome": outcome, "detail": detail},
    )


def touch_segments(connection: Connection, lane: Lane, now: datetime) -> None:
    """Something in the lane ended: begun segments that waited for their turn behind it get a fresh grace.

    What another transaction has in its hands is passed over: it is being claimed, or touched already. To wait for it, with
    rows of one's own in hand, is how two that end at the same moment would stand in each other's way for ever.
    """
    connection.execute(
        text(
            "UPDATE work_item SET waiting_since = :now WHERE id IN (SELECT id FROM work_item"
            " WHERE lane = :lane AND state = 'queued' AND begun FOR UPDATE SKIP LOCKED)"
        ),
        {"lane": lane.value, "now": now},
    )


def row_of(connection: Connection, item_id: int) -> Row[Any] | None:
    """One piece of work."""
    return connection.execute(text("SELECT * FROM work_item WHERE id = :id"), {"id": item_id}).one_or_none()
