"""Which calls a tick makes.

The stored phase and its lease alone pick them, so a crash before the save repeats a call that is safe to repeat; what
an earlier call of the same tick saw may only take a later one away.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from voxint.gpu_phase.model import Condition, Phase, RequestKind
from voxint.gpu_phase.outcomes import Granted

if TYPE_CHECKING:
    from datetime import datetime

    from voxint.gpu_phase.model import LlmSeen, PhaseState, Request, ServiceSeen, WorkSeen
    from voxint.gpu_phase.outcomes import AcquireOutcome, ReleaseOutcome, RenewOutcome, StatusOutcome


class Call(StrEnum):
    """The kinds of call that a tick can make."""

    PROBE_LLM = "probe_llm"
    INSPECT = "inspect"
    STATUS = "status"
    ACQUIRE = "acquire"
    RENEW = "renew"
    START = "start"
    HEALTH = "health"
    PLACEMENT = "placement"
    STOP = "stop"
    RELEASE = "release"


CALLS: dict[Phase, tuple[Call, ...]] = {
    Phase.LLM: (Call.PROBE_LLM, Call.INSPECT, Call.STATUS),
    Phase.DRAINING_POST: (Call.INSPECT,),
    Phase.ACQUIRING: (Call.INSPECT, Call.ACQUIRE),
    Phase.STARTING_SERVICES: (Call.RENEW, Call.START, Call.HEALTH, Call.PLACEMENT),
    Phase.AUDIO: (Call.RENEW, Call.INSPECT, Call.PLACEMENT),
    Phase.DRAINING: (Call.RENEW, Call.INSPECT),
    Phase.STOPPING_SERVICES: (Call.RENEW, Call.STOP, Call.INSPECT),
    Phase.RELEASING: (Call.INSPECT, Call.STATUS, Call.RELEASE),
    Phase.ERROR: (Call.RENEW, Call.STOP, Call.INSPECT),
}
"""The calls of each phase, in order. `plan` leaves out those that the lease or a request rules out."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a tick has seen so far; None where nothing was asked. `now` is read once, before any call."""

    now: datetime
    work: WorkSeen
    request: Request | None = None
    hold_until: datetime | None = None
    services: tuple[ServiceSeen, ...] | None = None
    llm: LlmSeen | None = None
    acquire: AcquireOutcome | None = None
    renewal: RenewOutcome | None = None
    release: ReleaseOutcome | None = None
    status: StatusOutcome | None = None


def plan(state: PhaseState, request: Request | None) -> tuple[Call, ...]:
    """The calls that this state may make, in order."""
    return tuple(call for call in CALLS[state.phase] if _wanted(call, state, request))


def _wanted(call: Call, state: PhaseState, request: Request | None) -> bool:
    if state.phase is Phase.ACQUIRING and release_asked(request):
        return False
    match call:
        case Call.RENEW:
            return state.lease_renewable
        case Call.RELEASE:
            return state.lease_id is not None
        case Call.STATUS:
            return state.phase is Phase.LLM or state.lease_id is None
        case Call.START | Call.HEALTH | Call.PLACEMENT:
            return not release_asked(request)
        case _:
            return True


def may(call: Call, seen: Seen) -> bool:
    """Whether a planned call is still right, given what the calls before it saw."""
    match call:
        case Call.ACQUIRE:
            return all_stopped(seen.services)
        case Call.START | Call.HEALTH | Call.PLACEMENT:
            return renewed(seen)
        case Call.RELEASE:
            return all_stopped(seen.services)
        case _:
            return True


def release_asked(request: Request | None) -> bool:
    """Whether the pending request is a release."""
    return request is not None and request.kind is RequestKind.RELEASE


def all_stopped(services: tuple[ServiceSeen, ...] | None) -> bool:
    """Whether every model service was seen to be stopped. Not asked, or unknown, is no."""
    return services is not None and all(service.condition is Condition.STOPPED for service in services)


def renewed(seen: Seen) -> bool:
    """Whether this tick's renewal was answered with the lease, and that is still good."""
    grant = seen.renewal
    return isinstance(grant, Granted) and (grant.expires_at is None or seen.now < grant.expires_at)
