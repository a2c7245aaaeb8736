"""What the broker knows and must not forget: the values that the journal holds."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """Who has the GPU, or on which way it is."""

    FREE = "free"  # nobody holds a lease; the services run
    ACQUIRING = "acquiring"  # somebody asked: the services are being stopped and the memory is being watched
    HELD = "held"  # a lease is in force; the services are stopped
    RELEASING = "releasing"  # the services are being brought back
    EXPIRED = "expired"  # a lease ran out; the services stay stopped until the memory is free
    ERROR = "error"  # a step failed; it is tried again


class JournalError(Exception):
    """The journal cannot be read or written. The text says which file and why."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease: asked for (not yet granted), in force, or being given back. `fetched`: its holder was told of it."""

    id: str
    holder: str
    ttl: timedelta
    fence: int
    granted_at: datetime | None = None
    expires_at: datetime | None = None
    fetched: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """One state of the broker. `turn` rises with every change of state: work for an older one is given up."""

    state: State
    since: datetime
    turn: int = 0
    fence: int = 0
    lease: Lease | None = None
    last_released: str | None = None
    reason: str | None = None
    failed_acquire: str | None = None
    """Why the last acquire came to nothing; its holder has not been told yet."""
    granted_before: bool = True
    """Whether somebody else may have used the GPU since the services ran: then nothing starts without free memory."""
    handles: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By service, what its adapter needs to find it again after the broker was killed."""

    def moved(self, state: State, now: datetime, **changes: Any) -> Record:  # noqa: ANN401 - fields of this class
        """The record in another state."""
        changes.setdefault("reason", None)
        return replace(self, state=state, since=now, turn=self.turn + 1, **changes)


def fresh(now: datetime) -> Record:
    """The record of a broker that has never run: the services are wanted, so they are looked for and started."""
    return Record(State.RELEASING, now)


def to_json(record: Record) -> dict[str, Any]:
    """The record as JSON values."""
    return {"version": 1, **{name: _plain(value) for name, value in asdict(record).items()}}


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON values
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return value


def from_json(value: object) -> Record:
    """The record that was written.

    Raises:
        JournalError: it is not one of ours, or a part of it is missing or of the wrong kind.
    """
    if not isinstance(value, dict):
        raise JournalError("it is no JSON object")
    if value.get("version") != 1:
        raise JournalError(f"its version is {value.get('version')!r}, and this broker reads version 1")
    try:
        lease = value["lease"]
        return Record(
            State(value["state"]),
            _moment(value["since"]),
            int(value["turn"]),
            int(value["fence"]),
            None if lease is None else _lease(lease),
            value["last_released"],
            value["reason"],
            value["failed_acquire"],
            bool(value["granted_before"]),
            {str(name): dict(handle) for name, handle in value["handles"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise JournalError(f"a part of it is missing or wrong ({type(error).__name__}: {error})") from error


def _lease(value: dict[str, Any]) -> Lease:
    ttl = float(value["ttl"])
    if not math.isfinite(ttl):
        raise ValueError("ttl is not finite")
    return Lease(
        str(value["id"]),
        str(value["holder"]),
        timedelta(seconds=ttl),
        int(value["fence"]),
        _moment(value["granted_at"]) if value["granted_at"] else None,
        _moment(value["expires_at"]) if value["expires_at"] else None,
        bool(value["fetched"]),
    )


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
