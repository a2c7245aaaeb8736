"""What an answer of the broker means. Adapters turn bytes into one of these; nothing above them knows HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Granted:
    """A lease is ours: new, or renewed. `expires_at` is on our own clock; None means it does not expire."""

    lease_id: str
    expires_at: datetime | None
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """The broker is still at work on the other service: ask again."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Not now. `holder` is who has the GPU, where the broker says so."""

    holder: str | None = None
    retry_after: timedelta | None = None
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """A renewal says that the lease is no longer ours."""

    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """Released; or there was nothing to release."""


@dataclass(frozen=True, slots=True)
class Free:
    """Status: nobody holds a lease."""


@dataclass(frozen=True, slots=True)
class Held:
    """Status: somebody holds a lease."""

    holder: str | None
    lease_id: str | None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """No usable answer, with a reason that a person can act on. It is neither yes nor no."""

    reason: str


AcquireOutcome = Granted | Pending | Refused | Failed
RenewOutcome = Granted | Lost | Failed
ReleaseOutcome = Done | Pending | Failed
StatusOutcome = Free | Held | Failed
