"""The gate in front of the work: claims in an open lane, heartbeats, and the ways a claim ends.

Claiming and closing a lane cannot race: a claim share-locks the phase row while it marks the work as running, and a
tick writes that row exclusively and looks again. Every write of a worker names its claim token; without it, nothing
changes.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, text
from sqlalchemy.dialects import postgresql

from voxint.db import clock
from voxint.db.tables import STAGE_RESULT, WORK_ITEM
from voxint.gpu_phase import lanes, queue
from voxint.gpu_phase.door import LONGEST_WAIT, LOOK, LOOK_AND_LOCK, Door
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
        """Take the next piece of work of a lane. None when the lane is closed, or nothing can be taken.

        Two statements: the first locks the phase row and looks, the second takes. Each is a way to the server and back.
        """
        with self._engine.begin() as connection:
            door = self._door(connection, lane)
            if not door.conditions:
                return None
            token = secrets.token_hex(8)
            values = self._values(lane, door) | {
                "token": token,
                "worker": self._worker,
                "stages": [name for name, _ in self._stages.stages],
            }
            row = connection.execute(door.take, values).one_or_none()
            return None if row is None else Claim(row.id, row.run_id, row.kind, lane, row.attempts, token)

    def _door(self, connection: Connection, lane: Lane) -> Door:
        seen = self._look(connection)
        now = seen.now.astimezone(UTC)
        if not self._policy.enabled:
            opened, going_on = True, True
        else:
            state = stored_from(seen).state if seen.phase is not None else None
            opened = lanes.is_open(lane, state, now, self._policy)
            going_on = opened or lanes.goes_on(lane, state, now)
        paused = lane is Lane.GPU and seen.paused
        ahead = None
        if lane is Lane.GPU and self._stages.ahead:
            # What has begun goes on in a paused queue, here as in the lane itself.
            ahead = "state = 'queued' AND kind = ANY(:ahead)" + (" AND begun" if paused else "")
        running = seen.running or {}
        full = tuple(kind for kind, most in self._capacity.items() if running.get(kind, 0) >= most)
        return Door(now, full, opened and not paused, going_on, ahead)

    def _look(self, connection: Connection) -> Row[Any]:
        """The moment, the phase row, the pause, and what runs. The row is share-locked where it decides anything."""
        if self._policy.enabled:
            row = connection.execute(LOOK_AND_LOCK).one_or_none()
            if row is not None:
                return row
        return connection.execute(LOOK).one()

    def _values(self, lane: Lane, door: Door) -> dict[str, Any]:
        return {
            "lane": lane.value,
            "now": door.now,
            "too_far": door.now + 2 * LONGEST_WAIT,
            "grace": self._grace,
            "full": list(door.full),
            "ahead": self._ahead,
        }

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
                _wait(connection, claim, reason, now, RETRY_AFTER_FAILURE * claim.attempt)
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
            _wait(connection, claim, reason, now, retry_in)
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
            door = self._door(connection, lane)
            found = bool(door.conditions) and self._found(connection, lane, door)
            wait = timedelta(0) if found else self._earliest(connection, lane, door)
            transaction.rollback()
        return wait

    def _found(self, connection: Connection, lane: Lane, door: Door) -> bool:
        return connection.execute(door.find, self._values(lane, door)).scalar_one() is not None

    def _earliest(self, connection: Connection, lane: Lane, door: Door) -> timedelta | None:
        if not door.any_work and door.ahead is None:
            return None
        which = "state = 'queued'" if door.any_work else door.ahead
        earliest = connection.execute(
            text(f"SELECT min(not_before) FROM work_item WHERE lane = :lane AND {which} AND not_before > :now"),  # noqa: S608
            {"lane": lane.value, "now": door.now, "ahead": self._ahead},
        ).scalar_one()
        return None if earliest is None else earliest - door.now


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


def _wait(connection: Connection, claim: Claim, reason: str, now: datetime, wait: timedelta) -> None:
    connection.execute(
        text("UPDATE work_item SET not_before = :until, error = :reason WHERE id = :id"),
        {"id": claim.item_id, "until": now + min(wait, LONGEST_WAIT), "reason": reason},
    )
