"""The gate in front of the work: claims in an open lane, heartbeats, and the ways a claim ends.

Claiming and closing a lane cannot race: a claim share-locks the phase row while it marks the work as running, and a
tick writes that row exclusively and looks again. Every write of a worker names its claim token; without it, nothing
changes.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select, text
from sqlalchemy.dialects import postgresql

from voxint.db import clock
from voxint.db.tables import GPU_PHASE, STAGE_EXECUTION, STAGE_RESULT, WORK_ITEM
from voxint.gpu_phase import lanes, queue
from voxint.gpu_phase.model import Lane
from voxint.gpu_phase.store import stored_from

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import Connection, Engine, Row

    from voxint.gpu_phase.policy import Policy
    from voxint.gpu_phase.queue import StagePlan

RETRY_AFTER_FAILURE = timedelta(seconds=5)
"""How long a failed attempt waits before the next, times the attempts used: a broken file must not spin."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on one stage or job. `attempt` counts from 1."""

    item_id: int
    run_id: int
    kind: str
    lane: Lane
    attempt: int
    token: str


@dataclass(frozen=True, slots=True)
class _Door:
    """What may be claimed: anything, only segments that have begun, or nothing; and what is done ahead of the lane."""

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


_QUEUED = "'queued'"
_NOT_AHEAD = "NOT kind = ANY(:ahead)"


class Gate:
    """Hands out work and takes it back.

    Args:
        engine: the database.
        policy: the operator's numbers, for the lanes' rule.
        stages: the kinds of work.
        worker: a name for this worker in the history.
        grace: the heartbeat limit.
        attempts: how many times a stage is tried.
        capacity: how many of a kind may run at the same time; a kind that is not named has no bound.
    """

    def __init__(
        self,
        engine: Engine,
        policy: Policy,
        stages: StagePlan,
        *,
        worker: str,
        grace: timedelta,
        attempts: int,
        capacity: Mapping[str, int] | None = None,
    ) -> None:
        self._engine = engine
        self._policy = policy
        self._stages = stages
        self._worker = worker
        self._grace = grace
        self._attempts = attempts
        self._capacity = dict(capacity or {})
        self._ahead = sorted(stages.ahead)

    def claim(self, lane: Lane) -> Claim | None:
        """Take the next piece of work of a lane. None when the lane is closed, or nothing can be taken."""
        with self._engine.begin() as connection:
            now = clock.read(connection)
            door = self._door(connection, lane, now)
            row = self._next(connection, lane, now, door)
            if row is None:
                return None
            return self._mark(connection, row, lane, now)

    def _door(self, connection: Connection, lane: Lane, now: datetime) -> _Door:
        if not self._policy.enabled:
            opened, going_on = True, True
        else:
            row = connection.execute(select(GPU_PHASE).with_for_update(read=True)).one_or_none()
            state = stored_from(row).state if row is not None else None
            opened = lanes.is_open(lane, state, now, self._policy)
            going_on = opened or lanes.goes_on(lane, state, now)
        paused = lane is Lane.GPU and _paused(connection)
        ahead = None
        if lane is Lane.GPU and self._stages.ahead:
            # What has begun goes on in a paused queue, here as in the lane itself.
            ahead = "state = 'queued' AND kind = ANY(:ahead)" + (" AND begun" if paused else "")
        return _Door(opened and not paused, going_on, ahead)

    def _next(self, connection: Connection, lane: Lane, now: datetime, door: _Door) -> Row[Any] | None:
        full = self._full(connection) if door.conditions else []
        for condition in door.conditions:
            row = connection.execute(
                text(
                    f"SELECT id, run_id, kind, attempts FROM work_item WHERE lane = :lane AND {condition}"  # noqa: S608
                    " AND (not_before IS NULL OR not_before <= :now) AND NOT kind = ANY(:full)"
                    " ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
                ),
                {"lane": lane.value, "now": now, "grace": self._grace, "full": full, "ahead": self._ahead},
            ).one_or_none()
            if row is not None:
                return row
        return None

    def _full(self, connection: Connection) -> list[str]:
        """The kinds of which as many run as their service can take."""
        if not self._capacity:
            return []
        rows = connection.execute(
            text("SELECT kind, count(*) AS running FROM work_item WHERE state = 'running' GROUP BY kind")
        ).all()
        return [row.kind for row in rows if row.running >= self._capacity.get(row.kind, row.running + 1)]

    def _mark(self, connection: Connection, row: Row[Any], lane: Lane, now: datetime) -> Claim:
        claim = Claim(row.id, row.run_id, row.kind, lane, row.attempts + 1, secrets.token_hex(8))
        connection.execute(
            text(
                "UPDATE work_item SET state = 'running', begun = true, attempts = :attempt, claim_token = :token,"
                " claimed_by = :worker, claimed_at = :now, heartbeat_at = :now, progress = NULL, error = NULL"
                " WHERE id = :id"
            ),
            {"id": row.id, "attempt": claim.attempt, "token": claim.token, "worker": self._worker, "now": now},
        )
        if self._stages.is_stage(row.kind):
            connection.execute(
                text("UPDATE run SET status = 'running', stage = :kind, error = NULL WHERE id = :run_id"),
                {"kind": row.kind, "run_id": row.run_id},
            )
        connection.execute(
            insert(STAGE_EXECUTION).values(
                work_item_id=row.id,
                run_id=row.run_id,
                kind=row.kind,
                attempt=claim.attempt,
                claim_token=claim.token,
                worker=self._worker,
                started_at=now,
            )
        )
        return claim

    def beat(self, claim: Claim, progress: float | None = None) -> bool:
        """Say that the work lives. False when the claim is lost: stop, and write nothing."""
        with self._engine.begin() as connection:
            now = clock.read(connection)
            beaten = connection.execute(
                text(
                    "UPDATE work_item SET heartbeat_at = :now, progress = coalesce(:progress, progress)"
                    " WHERE id = :id AND claim_token = :token"
                ),
                {"now": now, "progress": progress, "id": claim.item_id, "token": claim.token},
            )
            return beaten.rowcount == 1

    def complete(self, claim: Claim, data: dict[str, Any]) -> bool:
        """End a claim with its result, and queue the run's next stage. False when the claim is lost."""
        with self._engine.begin() as connection:
            now = clock.read(connection)
            if not _end(connection, claim, "done", now):
                return False
            queue.end_execution(connection, claim.token, "done", None, now)
            result = postgresql.insert(STAGE_RESULT).values(
                run_id=claim.run_id, kind=claim.kind, data=data, made_at=now
            )
            connection.execute(
                result.on_conflict_do_update(index_elements=["run_id", "kind"], set_={"data": data, "made_at": now})
            )
            if self._stages.is_stage(claim.kind):
                self._go_on(connection, claim, now)
            queue.touch_segments(connection, claim.lane, now)
        return True

    def _go_on(self, connection: Connection, claim: Claim, now: datetime) -> None:
        following = self._stages.after(claim.kind)
        if following is None:
            connection.execute(
                text("UPDATE run SET status = 'done', finished_at = :now WHERE id = :id AND status = 'running'"),
                {"id": claim.run_id, "now": now},
            )
            return
        kind, lane = following
        # What was done ahead of the lane is no part of a segment: that begins with the first stage that needs the GPU.
        same = lane is claim.lane and (claim.kind in self._stages.ahead) == (kind in self._stages.ahead)
        connection.execute(
            insert(WORK_ITEM).values(
                run_id=claim.run_id, kind=kind, lane=lane, begun=same, queued_at=now, waiting_since=now
            )
        )
        connection.execute(
            text("UPDATE run SET stage = :kind, status = :status WHERE id = :id"),
            {"id": claim.run_id, "kind": kind, "status": "running" if same else "queued"},
        )

    def fail(self, claim: Claim, reason: str, *, for_good: bool = False) -> bool:
        """End a claim as a failed attempt; the work is tried again unless its attempts are used. False when lost."""
        with self._engine.begin() as connection:
            now = clock.read(connection)
            if not _own(connection, claim):
                return False
            queue.end_execution(connection, claim.token, "failed", reason, now)
            if for_good or claim.attempt >= self._attempts:
                queue.give_up(connection, claim.item_id, claim.run_id, reason, now)
                queue.touch_segments(connection, claim.lane, now)
            else:
                queue.put_back(connection, claim.item_id, now)
                _wait(connection, claim, reason, now + RETRY_AFTER_FAILURE * claim.attempt)
        return True

    def not_now(self, claim: Claim, reason: str, retry_in: timedelta) -> bool:
        """End a claim because what it needs is not there at the moment: no attempt is used. False when lost."""
        with self._engine.begin() as connection:
            now = clock.read(connection)
            waiting = _own(connection, claim)
            if waiting is None:
                return False
            queue.end_execution(connection, claim.token, "not_now", reason, now)
            # The grace goes on from where it was: what is never there must not hold a drain for ever.
            queue.put_back(connection, claim.item_id, waiting.waiting_since, uses_attempt=False)
            _wait(connection, claim, reason, now + retry_in)
        return True

    def reap(self) -> int:
        """Give back the work of dead workers."""
        with self._engine.begin() as connection:
            return queue.reap(connection, clock.read(connection), self._grace, self._attempts)

    def due(self, lane: Lane) -> timedelta | None:
        """How long until a claim would find something: zero for now, None for nothing in sight. A look, not a promise.

        Work that waits after a failed attempt, or a "not now", comes up by itself; a closed lane does not.
        """
        with self._engine.connect() as connection, connection.begin() as transaction:
            now = clock.read(connection)
            door = self._door(connection, lane, now)
            found = self._next(connection, lane, now, door) is not None
            wait = timedelta(0) if found else self._earliest(connection, lane, now, door)
            transaction.rollback()
        return wait

    def _earliest(self, connection: Connection, lane: Lane, now: datetime, door: _Door) -> timedelta | None:
        if not door.any_work and door.ahead is None:
            return None
        which = "state = 'queued'" if door.any_work else door.ahead
        earliest = connection.execute(
            text(f"SELECT min(not_before) FROM work_item WHERE lane = :lane AND {which} AND not_before > :now"),  # noqa: S608
            {"lane": lane.value, "now": now, "ahead": self._ahead},
        ).scalar_one()
        return None if earliest is None else earliest - now


def _paused(connection: Connection) -> bool:
    query = "SELECT EXISTS (SELECT 1 FROM work_control WHERE paused_at IS NOT NULL)"
    return bool(connection.execute(text(query)).scalar_one())


def _own(connection: Connection, claim: Claim) -> Row[Any] | None:
    return connection.execute(
        text("SELECT id, waiting_since FROM work_item WHERE id = :id AND claim_token = :token FOR UPDATE"),
        {"id": claim.item_id, "token": claim.token},
    ).one_or_none()


def _end(connection: Connection, claim: Claim, state: str, now: datetime) -> bool:
    ended = connection.execute(
        text(
            "UPDATE work_item SET state = :state, claim_token = NULL, progress = 1, finished_at = :now"
            " WHERE id = :id AND claim_token = :token"
        ),
        {"state": state, "now": now, "id": claim.item_id, "token": claim.token},
    )
    return ended.rowcount == 1


def _wait(connection: Connection, claim: Claim, reason: str, until: datetime) -> None:
    connection.execute(
        text("UPDATE work_item SET not_before = :until, error = :reason WHERE id = :id"),
        {"id": claim.item_id, "until": until, "reason": reason},
    )
