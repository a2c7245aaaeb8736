"""The stored row, the requests beside it, and the history: read, save if unchanged, one tick at a time."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, func, insert, select, text, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import SQLAlchemyError

from voxint.db import clock
from voxint.db.tables import GPU_PHASE, GPU_PHASE_EVENT, GPU_PHASE_REQUEST, WORK_CONTROL
from voxint.gpu_phase import queue
from voxint.gpu_phase.model import (
    Cause,
    Lane,
    Phase,
    PhaseState,
    Request,
    RequestKind,
    RequestOutcome,
    Transition,
    WorkSeen,
)
from voxint.gpu_phase.status import STATE_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime, timedelta

    from sqlalchemy import Connection, Engine, Row

    from voxint.gpu_phase.queue import Depths, StagePlan

TICK_LOCK = 0x766F7869  # "voxi": the advisory lock of the one tick


@dataclass(frozen=True, slots=True)
class Stored:
    """The row as it was read."""

    state: PhaseState
    version: int
    ticked_at: datetime | None
    llm_silent_since: datetime | None = None
    """Since when no tick of this stay in `llm` had an answer of the language model. For people; nothing decides by it."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything that a tick starts from, read in one short transaction."""

    now: datetime
    stored: Stored | None
    request: Request | None
    hold_until: datetime | None
    work: WorkSeen


@dataclass(frozen=True, slots=True)
class Control:
    """What operators set and take back."""

    paused_at: datetime | None
    paused_by: str | None
    hold_until: datetime | None
    hold_by: str | None


@dataclass(frozen=True, slots=True)
class Event:
    """One change of phase. `seconds` is how long `from_phase` lasted; depths are counted up to a bound."""

    at: datetime
    from_phase: Phase | None
    to_phase: Phase
    cause: Cause
    reason: str | None
    seconds: float | None
    lease_id: str | None
    gpu_waiting: int | None
    gpu_running: int | None
    post_waiting: int | None
    post_running: int | None


class PhaseStore:
    """The phase in the database.

    Args:
        engine: the database.
        stages: which kinds of work there are, for putting back what a lost GPU cuts.
        grace: for how long a begun segment counts as in progress while nobody takes it up.
        attempts: how many times a stage is tried.
    """

    def __init__(self, engine: Engine, stages: StagePlan, *, grace: timedelta, attempts: int) -> None:
        self._engine = engine
        self._stages = stages
        self._grace = grace
        self._attempts = attempts

    @contextmanager
    def sole_tick(self) -> Iterator[bool]:
        """Holds the tick's lock, or gives False at once when another tick has it.

        The lock lives on a connection of its own, outside any transaction, and goes with it. Where the tick ends well
        or badly it is let go by name first: the server ends a closed connection in its own time, and the next tick,
        which may come at once, would find this one still at work.
        """
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            connection.detach()
            held = connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": TICK_LOCK}).scalar_one()
            try:
                yield bool(held)
            finally:
                if held:
                    _let_go(connection)
        finally:
            connection.close()

    def load(self) -> Loaded:
        """The row, the newest pending request, the hold and the state of the work, at one moment."""
        with self._engine.begin() as connection:
            now = clock.read(connection)
            return Loaded(
                now,
                _read(connection),
                _pending(connection),
                _control(connection).hold_until,
                queue.seen(connection, now, self._grace, self._stages.ahead),
            )

    def begin(self) -> Event | None:
        """Write the first row. None when somebody else did."""
        with self._engine.begin() as connection:
            now = clock.read(connection)
            made = connection.execute(
                postgresql.insert(GPU_PHASE)
                .values(phase=Phase.LLM, phase_since=now, ticked_at=now)
                .on_conflict_do_nothing()
                .returning(GPU_PHASE.c.id)
            ).first()
            if made is None:
                return None
            return self._append(connection, now, None, PhaseState(Phase.LLM, now), Cause.FIRST_TICK)

    def save(self, stored: Stored, transition: Transition, request: Request | None) -> bool:
        """Write a tick's transition, in one transaction with its event, its request and the work that it cuts.

        False, with nothing changed, when the row is no longer the one that was read, or when the lane that this step
        counted as drained is not empty now.
        """
        with self._engine.connect() as connection, connection.begin() as transaction:
            now = clock.read(connection)
            saved = connection.execute(
                update(GPU_PHASE)
                .where(GPU_PHASE.c.id == 1, GPU_PHASE.c.version == stored.version)
                .values(
                    {name: getattr(transition.state, name) for name in STATE_COLUMNS}
                    | {"ticked_at": now, "version": stored.version + 1}
                    | {"llm_silent_since": _silent_since(transition.state, now)}
                )
            )
            if saved.rowcount != 1 or not self._still_drained(connection, transition.drained, now):
                transaction.rollback()
                return False
            if transition.cut is not None:
                queue.cut(connection, now, self._stages, transition.cut.blamed, self._attempts)
            if request is not None and transition.request is not None:
                _consume(connection, request, transition.request, now)
            if transition.moved:
                self._append(connection, now, transition.before, transition.state, transition.cause)
        return True

    def _append(
        self, connection: Connection, now: datetime, before: PhaseState | None, after: PhaseState, cause: Cause
    ) -> Event:
        depths = queue.depths(connection, queue.EVENT_BOUND, self._stages.ahead)
        return _append(connection, now, before, after, cause, depths=depths)

    def _still_drained(self, connection: Connection, lane: Lane | None, now: datetime) -> bool:
        return lane is None or not queue.in_progress(connection, lane, now, self._grace, self._stages.ahead)

    def read(self) -> Stored | None:
        """The row, for those who only look."""
        with self._engine.begin() as connection:
            return _read(connection)

    def now(self) -> datetime:
        """The database's moment."""
        with self._engine.begin() as connection:
            return clock.read(connection)

    def pending_request(self) -> Request | None:
        """The newest request that nothing has consumed."""
        with self._engine.begin() as connection:
            return _pending(connection)

    def record_request(self, kind: RequestKind, by: str) -> Request:
        """Record what an operator asks for. It supersedes an older one, needs no row, and does not touch it."""
        with self._engine.begin() as connection:
            now = clock.read(connection)
            made_in = connection.execute(select(GPU_PHASE.c.phase)).scalar_one_or_none()
            connection.execute(
                update(GPU_PHASE_REQUEST)
                .where(GPU_PHASE_REQUEST.c.consumed_at.is_(None))
                .values(consumed_at=now, outcome=RequestOutcome.SUPERSEDED)
            )
            made = connection.execute(
                insert(GPU_PHASE_REQUEST)
                .values(kind=kind, made_in=made_in, requested_at=now, requested_by=by)
                .returning(GPU_PHASE_REQUEST.c.id)
            ).scalar_one()
        return Request(made, kind, Phase(made_in) if made_in else None, now, by)

    def request_outcome(self, request_id: int) -> RequestOutcome | None:
        """What became of a request; None while it is pending."""
        with self._engine.begin() as connection:
            outcome = connection.execute(
                select(GPU_PHASE_REQUEST.c.outcome).where(GPU_PHASE_REQUEST.c.id == request_id)
            ).scalar_one_or_none()
        return RequestOutcome(outcome) if outcome else None

    def depths(self, bound: int) -> Depths:
        """How much waits for and runs on each lane, counted up to a bound."""
        with self._engine.begin() as connection:
            return queue.depths(connection, bound, self._stages.ahead)

    def events(self, since: datetime, limit: int = 1000) -> list[Event]:
        """The changes of phase since a moment, oldest first; the newest `limit` of them."""
        with self._engine.begin() as connection:
            rows = connection.execute(
                select(GPU_PHASE_EVENT)
                .where(GPU_PHASE_EVENT.c.at >= since)
                .order_by(GPU_PHASE_EVENT.c.id.desc())
                .limit(limit)
            ).all()
        return [_event(row) for row in reversed(rows)]

    def rows(self, query: str, values: Mapping[str, object]) -> list[dict[str, Any]]:
        """The rows of a query in the driver's own form, for gpu_phase.status."""
        with self._engine.begin() as connection:
            return [dict(row) for row in connection.exec_driver_sql(query, dict(values)).mappings()]

    def control(self) -> Control:
        """The pause and the hold."""
        with self._engine.begin() as connection:
            return _control(connection)

    def set_hold(self, until: datetime | None, by: str) -> None:
        """Keep switches away until a moment; None takes the hold back."""
        with self._engine.begin() as connection:
            connection.execute(update(WORK_CONTROL).values(hold_until=until, hold_by=by if until else None))

    def set_paused(self, *, paused: bool, by: str) -> None:
        """Pause the queue of recordings, or let it go on. What has begun its GPU segment finishes it."""
        with self._engine.begin() as connection:
            now = clock.read(connection)
            connection.execute(
                update(WORK_CONTROL).values(paused_at=now if paused else None, paused_by=by if paused else None)
            )


def _let_go(connection: Connection) -> None:
    with suppress(SQLAlchemyError):  # a connection that was cut has let go already
        connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": TICK_LOCK})


def _read(connection: Connection) -> Stored | None:
    row = connection.execute(select(GPU_PHASE)).one_or_none()
    return None if row is None else stored_from(row)


def stored_from(row: Row[Any]) -> Stored:
    """The values of a row of `gpu_phase`."""
    values = {name: getattr(row, name) for name in STATE_COLUMNS}
    values["phase"] = Phase(values["phase"])
    return Stored(PhaseState(**values), row.version, row.ticked_at, row.llm_silent_since)


def _silent_since(after: PhaseState, now: datetime) -> Any:  # noqa: ANN401 - a value, or an expression on the row
    """What a tick stores in `llm_silent_since`: the first of the ticks in a row that had no answer."""
    unanswered = after.phase is Phase.LLM and after.llm_checked_at is not None and not after.llm_ready
    # Not in the future: the clock may have been set back since.
    return func.least(func.coalesce(GPU_PHASE.c.llm_silent_since, now), now) if unanswered else None


def _pending(connection: Connection) -> Request | None:
    table = GPU_PHASE_REQUEST
    row = connection.execute(
        select(table).where(table.c.consumed_at.is_(None)).order_by(table.c.id.desc()).limit(1)
    ).one_or_none()
    if row is None:
        return None
    made_in = Phase(row.made_in) if row.made_in else None
    return Request(row.id, RequestKind(row.kind), made_in, row.requested_at, row.requested_by)


def _consume(connection: Connection, request: Request, outcome: RequestOutcome, now: datetime) -> None:
    """End this request, and older ones that two operators recorded at the same instant. A newer one stays."""
    table = GPU_PHASE_REQUEST
    pending = update(table).where(table.c.consumed_at.is_(None))
    connection.execute(pending.where(table.c.id == request.id).values(consumed_at=now, outcome=outcome))
    connection.execute(
        pending.where(table.c.id < request.id).values(consumed_at=now, outcome=RequestOutcome.SUPERSEDED)
    )


def _control(connection: Connection) -> Control:
    row = connection.execute(select(WORK_CONTROL)).one_or_none()
    if row is None:
        return Control(None, None, None, None)
    return Control(row.paused_at, row.paused_by, row.hold_until, row.hold_by)


def _append(
    connection: Connection,
    now: datetime,
    before: PhaseState | None,
    after: PhaseState,
    cause: Cause,
    *,
    depths: Depths,
) -> Event:
    failed = before is not None and after.failures > before.failures
    event = Event(
        at=now,
        from_phase=before.phase if before else None,
        to_phase=after.phase,
        cause=cause,
        reason=after.last_error if failed else after.note,
        seconds=before.age(now).total_seconds() if before else None,
        lease_id=after.lease_id or (before.lease_id if before else None),
        gpu_waiting=depths.gpu_waiting,
        gpu_running=depths.gpu_running,
        post_waiting=depths.post_waiting,
        post_running=depths.post_running,
    )
    columns = [column.name for column in GPU_PHASE_EVENT.c if column.name != "id"]
    connection.execute(
        insert(GPU_PHASE_EVENT).values({name: bindparam(name) for name in columns}),
        {name: getattr(event, name) for name in columns},
    )
    return event


def _event(row: Row[Any]) -> Event:
    values = {column.name: getattr(row, column.name) for column in GPU_PHASE_EVENT.c if column.name != "id"}
    values["from_phase"] = Phase(row.from_phase) if row.from_phase else None
    values["to_phase"] = Phase(row.to_phase)
    values["cause"] = Cause(row.cause)
    return Event(**values)
