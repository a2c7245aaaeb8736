"""What the broker answers, and what becomes of its record. Pure: the engine writes the record and does the work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_never

from voxint_broker.record import Lease, Record, State

if TYPE_CHECKING:
    from datetime import datetime

LONGEST_RETRY = timedelta(seconds=30)
"""A refusal asks to come back after the lease's end, but after no longer than this: leases end early as well."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its status code and JSON body."""

    status: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wish:
    """An acquire, as it was asked for; `new_id` is the id of the lease, should it become one."""

    holder: str
    ttl: timedelta
    lease_id: str | None
    new_id: str


def acquire(record: Record, wish: Wish, now: datetime) -> tuple[Reply, Record]:
    """A new lease (no id), the answer to a repeated request for it, or a renewal."""
    if wish.lease_id is not None:
        return _renew(record, wish, wish.lease_id, now)
    if record.failed_acquire is not None and record.state is not State.HELD:
        return _failure("acquire_failed", record.failed_acquire), replace(record, failed_acquire=None)
    match record.state:
        case State.FREE | State.EXPIRED | State.ERROR:
            fence = record.fence + 1
            asked = Lease(wish.new_id, wish.holder, wish.ttl, fence)
            # After an expiry or a failed start somebody else's memory may be in use: that is not forgotten.
            dirty = record.state is not State.FREE
            begun = record.moved(State.ACQUIRING, now, lease=asked, fence=fence, granted_before=dirty)
            return _pending(begun, now), begun
        case State.ACQUIRING | State.HELD:
            return _same_or_other(record, wish, now)
        case State.RELEASING:
            if record.lease is not None and record.lease.holder != wish.holder:
                return _held_by(record.lease, now), record
            return _pending(record, now), record
        case _:
            assert_never(record.state)


def _same_or_other(record: Record, wish: Wish, now: datetime) -> tuple[Reply, Record]:
    lease = _lease(record)
    if lease.holder != wish.holder:
        return _held_by(lease, now), record
    if record.state is State.ACQUIRING:
        return _pending(record, now), record
    return _extended(record, lease, wish, now)


def _renew(record: Record, wish: Wish, lease_id: str, now: datetime) -> tuple[Reply, Record]:
    lease = record.lease
    if lease is None or lease.id != lease_id or record.state not in {State.HELD, State.ACQUIRING}:
        return Reply(404, {"error": "there is no such lease", "code": "no_such_lease"}), record
    if lease.holder != wish.holder:
        return _held_by(lease, now), record
    if record.state is State.ACQUIRING:
        return _pending(record, now), record
    return _extended(record, lease, wish, now)


def _extended(record: Record, lease: Lease, wish: Wish, now: datetime) -> tuple[Reply, Record]:
    extended = replace(lease, ttl=wish.ttl, expires_at=now + wish.ttl, fetched=True)
    return granted(extended), replace(record, lease=extended)


def release(record: Record, lease_id: str, now: datetime, *, runs: bool | None) -> tuple[Reply, Record]:
    """Give a lease back. `runs`: whether all services are seen to run (None: that cannot be told)."""
    lease = record.lease
    ours = lease is not None and lease.id == lease_id
    match record.state:
        case State.ACQUIRING | State.HELD if lease is not None:
            if not ours:
                return _no_lease(), record
            return _back(record, now, keep=lease)
        case State.EXPIRED:
            return _back(record, now, keep=lease)
        case State.RELEASING:
            return _pending(record, now), record
        case State.ERROR:
            return _failure("restore_failed", record.reason or "the services did not come back"), record
        case _:
            if runs and lease_id == record.last_released:
                return Reply(200, {"state": "released"}), record
            return (_no_lease(), record) if runs else _back(record, now, keep=None)


def _back(record: Record, now: datetime, *, keep: Lease | None) -> tuple[Reply, Record]:
    moved = record.moved(State.RELEASING, now, lease=keep)
    return _pending(moved, now), moved


def after_time(record: Record, now: datetime) -> Record:
    """The record once what the clock decides is done: a lease that is over has expired."""
    lease = record.lease
    if record.state is State.HELD and lease is not None and lease.expires_at is not None and lease.expires_at <= now:
        return record.moved(State.EXPIRED, now, reason="the lease ran out without a renewal")
    return record


def given_up(record: Record, now: datetime, why: str) -> Record:
    """The record once nobody wants the lease any more that was asked for."""
    return record.moved(State.RELEASING, now, lease=None, last_released=_lease(record).id, reason=why)


def status(record: Record, now: datetime) -> dict[str, Any]:
    """The contract's fields, and more. A lease counts as held from its first request until it is given back."""
    lease = record.lease if record.state not in {State.EXPIRED, State.FREE} else None
    return {
        "state": "held" if lease is not None else "free",
        "holder": lease.holder if lease is not None else None,
        "lease_id": lease.id if lease is not None else None,
        "expires_at": _moment(lease.expires_at) if lease is not None else None,
        "phase": record.state.value,
        "since": _moment(record.since),
        "elapsed_seconds": round(max((now - record.since).total_seconds(), 0), 3),
        "fence": record.fence,
        "reason": record.reason,
    }


def granted(lease: Lease) -> Reply:
    """The answer that grants a lease, or renews it."""
    return Reply(200, {"lease_id": lease.id, "expires_at": _moment(lease.expires_at), "fence": lease.fence})


def _pending(record: Record, now: datetime) -> Reply:
    elapsed = round(max((now - record.since).total_seconds(), 0), 3)
    return Reply(202, {"state": "pending", "phase": record.state.value, "elapsed_seconds": elapsed})


def _held_by(lease: Lease, now: datetime) -> Reply:
    left = LONGEST_RETRY if lease.expires_at is None else min(max(lease.expires_at - now, timedelta(0)), LONGEST_RETRY)
    wait = max(1, round(left.total_seconds()))
    return Reply(
        409,
        {
            "holder": lease.holder,
            "retry_after_seconds": wait,
            "error": f"{lease.holder} holds the GPU",
            "code": "held_by_another",
        },
    )


def _no_lease() -> Reply:
    return Reply(404, {"error": "there is no such lease", "code": "no_such_lease"})


def _failure(code: str, reason: str) -> Reply:
    return Reply(500, {"error": reason, "code": code})


def _lease(record: Record) -> Lease:
    if record.lease is None:
        raise AssertionError(f"state {record.state} without a lease")
    return record.lease


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")
